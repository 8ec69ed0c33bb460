//! Allocation, copies and fills. Every address is checked against the live allocations first.

use std::ffi::{c_uchar, c_void};
use std::sync::MutexGuard;

use crate::capture;
use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::host_memory::{NEW, fill, take_host_memory};
use crate::release::release;
use crate::state::capture::Capture;
use crate::state::{Block, PER_THREAD, State, code_of, enter, enter_context, is_special};

/// Whether a request is to be refused: on demand, or because the limit leaves no room for `new` more
/// bytes. Counts a refusal.
fn refuse(state: &mut State, stream: Option<usize>, new: u64) -> bool {
    let held = state.live_bytes + state.reserved_bytes();
    let on_demand = state.refuse_allocs > 0;
    if !on_demand && held.saturating_add(new) <= state.settings.capacity_bytes {
        return false;
    }
    state.refuse_allocs = state.refuse_allocs.saturating_sub(u64::from(on_demand));
    COUNTERS.alloc_failed.add();
    if state.sticky_errors
        && let Some(stream) = stream
        && let Some(stream) = state.streams.get_mut(&stream)
    {
        stream.pending_error = Some(code::OUT_OF_MEMORY);
    }
    true
}

fn remember(state: &mut State, address: u64, block: Block) {
    fill(address, block.size, NEW);
    state.freed.remove(&address);
    state.live_bytes += block.size;
    state.blocks.insert(address, block);
    let held = state.live_bytes + state.reserved_bytes();
    state.peak_bytes = state.peak_bytes.max(held);
}

/// Allocates from a pool in the order of a stream.
pub(crate) fn alloc_from_pool(
    call: &str,
    mut state: MutexGuard<'_, State>,
    size: usize,
    pool: Option<usize>,
    stream: usize,
) -> Result<u64, Code> {
    let context = stream_context(&mut state, call, stream)?;
    if size == 0 {
        return Err(code::INVALID_VALUE);
    }
    let pool = match pool {
        Some(pool) => pool,
        None => state.current_pool(context)?,
    };
    if !state.pools.contains_key(&pool) {
        state.violate(format!("{call}: pool {pool:#x} does not exist"));
        return Err(code::INVALID_HANDLE);
    }
    let size = size as u64;
    let reserved = state.pools[&pool].has_reserved(size);
    let new = if reserved { 0 } else { size };
    if !reserved && !state.pools[&pool].has_room(size) {
        COUNTERS.alloc_failed.add();
        return Err(code::OUT_OF_MEMORY);
    }
    if refuse(&mut state, Some(stream), new) {
        return Err(code::OUT_OF_MEMORY);
    }
    let reused = state.pools.get_mut(&pool).and_then(|pool| pool.reuse(size));
    let address = reused.unwrap_or_else(|| take_host_memory(size));
    if let Some(pool) = state.pools.get_mut(&pool) {
        pool.add_used(size);
    }
    remember(&mut state, address, Block { size, context, pool: Some(pool), of_graph: false });
    COUNTERS.alloc_async.add();
    Ok(address)
}

/// The capture of the per-thread stream, where that is the stream. On it allocations and frees become
/// nodes of the graph, as on every stream of a real driver; on all others they are refused here, because
/// the cache never makes one.
fn own_capture(state: &mut State, stream: usize) -> Option<&mut Capture> {
    state.streams.get_mut(&stream).filter(|_| stream == PER_THREAD)?.capture.as_mut()
}

fn alloc_node(state: &mut State, size: usize) -> Result<u64, Code> {
    if size == 0 {
        return Err(code::INVALID_VALUE);
    }
    let address = take_host_memory(size as u64);
    let context = crate::state::CURRENT.get();
    remember(state, address, Block { size: size as u64, context, pool: None, of_graph: true });
    if let Some(capture) = own_capture(state, PER_THREAD) {
        capture.record_alloc(address);
    }
    COUNTERS.alloc_async.add();
    COUNTERS.alloc_node.add();
    Ok(address)
}

/// The context of a stream, refusing one that is captured.
fn stream_context(state: &mut State, call: &str, stream: usize) -> Result<usize, Code> {
    state.check_stream(call, stream)?;
    if is_special(stream) {
        return Ok(crate::state::CURRENT.get());
    }
    if capture::invalidate_if_capturing(state, stream) {
        if call.contains("Free") {
            COUNTERS.free_in_capture.add();
        } else {
            COUNTERS.alloc_in_capture.add();
        }
        state.violate(format!("{call}: the stream is captured"));
        return Err(code::CAPTURE_UNSUPPORTED);
    }
    Ok(state.streams[&stream].context)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocAsync(
    address: *mut u64,
    size: usize,
    stream: usize,
) -> Code {
    code_of(enter("cuMemAllocAsync").and_then(|mut state| {
        let found = match own_capture(&mut state, stream) {
            Some(_) => alloc_node(&mut state, size)?,
            None => alloc_from_pool("cuMemAllocAsync", state, size, None, stream)?,
        };
        // SAFETY: the caller passes a place for one address.
        unsafe { address.write(found) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, size: usize) -> Code {
    code_of(enter_context("cuMemAlloc").and_then(|(mut state, context)| {
        if size == 0 {
            return Err(code::INVALID_VALUE);
        }
        if capture::invalidate_all(&mut state) {
            COUNTERS.alloc_in_capture.add();
            state.violate("cuMemAlloc: a stream is captured".to_owned());
            return Err(code::CAPTURE_UNSUPPORTED);
        }
        if refuse(&mut state, None, size as u64) {
            return Err(code::OUT_OF_MEMORY);
        }
        let found = take_host_memory(size as u64);
        let block = Block { size: size as u64, context, pool: None, of_graph: false };
        remember(&mut state, found, block);
        COUNTERS.alloc_sync.add();
        // SAFETY: the caller passes a place for one address.
        unsafe { address.write(found) };
        Ok(())
    }))
}

/// Refuses an address that is not the start of a live block, and says what it is instead.
fn check_free(state: &mut State, call: &str, address: u64) -> Result<(), Code> {
    if state.blocks.contains_key(&address) {
        return Ok(());
    }
    let what = match state.blocks.range(..=address).next_back() {
        _ if state.freed.contains(&address) => "was freed already",
        Some((start, block)) if address < start + block.size => "is inside of a block",
        _ => "is not from this driver",
    };
    state.violate(format!("{call}: {address:#x} {what}"));
    Err(code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> Code {
    code_of(enter("cuMemFreeAsync").and_then(|mut state| {
        if let Some(capture) = own_capture(&mut state, stream) {
            if !capture.record_free(address) {
                state.violate(format!("cuMemFreeAsync: {address:#x} is not of this capture"));
                return Err(code::INVALID_VALUE);
            }
            COUNTERS.free_async.add();
            COUNTERS.free_node.add();
            return Ok(());
        }
        stream_context(&mut state, "cuMemFreeAsync", stream)?;
        check_free(&mut state, "cuMemFreeAsync", address)?;
        if let Some(pool) = state.blocks[&address].pool
            && state.destroyed_pools.contains(&pool)
        {
            state.violate(format!("cuMemFreeAsync: the pool of {address:#x} was destroyed"));
        }
        release(&mut state, address);
        COUNTERS.free_async.add();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFree_v2(address: u64) -> Code {
    code_of(enter_context("cuMemFree").and_then(|(mut state, _)| {
        if capture::invalidate_all(&mut state) {
            COUNTERS.free_in_capture.add();
            state.violate("cuMemFree: a stream is captured".to_owned());
            return Err(code::CAPTURE_UNSUPPORTED);
        }
        check_free(&mut state, "cuMemFree", address)?;
        release(&mut state, address);
        COUNTERS.free_sync.add();
        Ok(())
    }))
}

/// Refuses a range that does not lie within one live block.
pub(crate) fn check_range(
    state: &mut State,
    call: &str,
    address: u64,
    size: usize,
) -> Result<(), Code> {
    if size == 0 {
        return Ok(());
    }
    let inside = state
        .blocks
        .range(..=address)
        .next_back()
        .is_some_and(|(start, block)| address + size as u64 <= start + block.size);
    if inside {
        return Ok(());
    }
    state.violate(format!("{call}: {size} bytes at {address:#x} are not within a live block"));
    Err(code::INVALID_VALUE)
}

fn memset(call: &'static str, address: u64, unit: &[u8], count: usize, stream: usize) -> Code {
    code_of(enter(call).and_then(|mut state| {
        state.check_stream(call, stream)?;
        let size = count * unit.len();
        check_range(&mut state, call, address, size)?;
        if !address.is_multiple_of(unit.len() as u64) {
            state.violate(format!("{call}: {address:#x} is not aligned to {}", unit.len()));
            return Err(code::INVALID_VALUE);
        }
        COUNTERS.memset.add();
        let unit = unit.to_vec();
        capture::submit(call, state, stream, move || {
            // SAFETY: the range was checked to lie within one live block.
            let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, size) };
            for place in bytes.chunks_exact_mut(unit.len()) {
                place.copy_from_slice(&unit);
            }
        })
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemsetD8Async(
    address: u64,
    value: c_uchar,
    count: usize,
    stream: usize,
) -> Code {
    memset("cuMemsetD8Async", address, &[value], count, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemsetD32Async(
    address: u64,
    value: u32,
    count: usize,
    stream: usize,
) -> Code {
    memset("cuMemsetD32Async", address, &value.to_ne_bytes(), count, stream)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    size: usize,
    stream: usize,
) -> Code {
    let call = "cuMemcpyHtoDAsync";
    code_of(enter(call).and_then(|mut state| {
        state.check_stream(call, stream)?;
        check_range(&mut state, call, to, size)?;
        if capture::invalidate_if_capturing(&mut state, stream) {
            // A real driver would read the host's memory again at each launch of the graph.
            state.violate(format!("{call}: host memory is read within a capture"));
            return Err(code::CAPTURE_UNSUPPORTED);
        }
        COUNTERS.memcpy_htod.add();
        drop(state);
        // SAFETY: the caller passes `size` readable bytes; the target was checked.
        unsafe { (to as *mut u8).copy_from(from.cast(), size) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    size: usize,
    stream: usize,
) -> Code {
    let call = "cuMemcpyDtoHAsync";
    code_of(enter(call).and_then(|mut state| {
        state.check_stream(call, stream)?;
        check_range(&mut state, call, from, size)?;
        if capture::invalidate_if_capturing(&mut state, stream) {
            state.violate(format!("{call}: host memory is written within a capture"));
            return Err(code::CAPTURE_UNSUPPORTED);
        }
        COUNTERS.memcpy_dtoh.add();
        drop(state);
        // SAFETY: the caller passes `size` writable bytes; the source was checked.
        unsafe { to.cast::<u8>().copy_from(from as *const u8, size) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    size: usize,
    stream: usize,
) -> Code {
    let call = "cuMemcpyDtoDAsync";
    code_of(enter(call).and_then(|mut state| {
        state.check_stream(call, stream)?;
        check_range(&mut state, call, to, size)?;
        check_range(&mut state, call, from, size)?;
        COUNTERS.memcpy_dtod.add();
        capture::submit(call, state, stream, move || {
            // SAFETY: both ranges were checked to lie within live blocks; they may overlap.
            unsafe { (to as *mut u8).copy_from(from as *const u8, size) };
        })
    }))
}
