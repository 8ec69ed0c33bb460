//! The end of a block, whoever gives it up: a program, a context or a graph.

use crate::host_memory::{FREED, fill, return_host_memory};
use crate::state::State;

/// Takes a block off the books and gives its memory to its pool or back to the host.
pub(crate) fn release(state: &mut State, address: u64) {
    let Some(block) = state.blocks.remove(&address) else { return };
    fill(address, block.size, FREED);
    state.live_bytes -= block.size;
    state.freed.insert(address);
    match block.pool.and_then(|pool| state.pools.get_mut(&pool)) {
        Some(pool) => pool.keep(address, block.size),
        None => return_host_memory(address),
    }
}
