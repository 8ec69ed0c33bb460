//! Recounts of what the gauges say, for tests and for whoever suspects a leak.

use super::Cache;
use crate::alloc::driver::{Address, Driver, DriverStream};
use crate::alloc::lock::RawLock;
use crate::alloc::state::State;
use crate::alloc::stats::Gauges;
use crate::alloc::table::{Block, BlockState, NONE};

/// The idle blocks of one class on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassDepth {
    /// The stream.
    pub stream: DriverStream,
    /// Physical bytes of one block; of the most recent one where sizes above 256 MiB share a list.
    pub block_bytes: u64,
    /// Number of idle blocks.
    pub blocks: u32,
}

impl<D: Driver, L: RawLock> Cache<D, L> {
    /// The classes that have idle blocks, with their depth.
    pub fn class_depths(&self) -> Vec<ClassDepth> {
        let state = self.state.lock();
        let mut depths = vec![];
        for stream in &state.streams {
            for class in stream.lists.iter().flat_map(|lists| lists.classes()) {
                if class.depth() > 0 {
                    depths.push(ClassDepth {
                        stream: stream.driver,
                        block_bytes: state.table.get(class.head()).physical_bytes,
                        blocks: class.depth(),
                    });
                }
            }
        }
        depths
    }

    /// Whether the cache knows the address: handed out, idle or held for another reason.
    pub fn knows(&self, address: Address) -> bool {
        self.state.lock().table.find(address).is_some()
    }

    /// Bytes that are idle, or were evicted and have not gone to the driver yet, recounted from the
    /// records. A block becomes idle only when its victims are gone, so that on one thread these are
    /// within the cap at every moment.
    pub fn idle_or_evicted_bytes(&self) -> u64 {
        let state = self.state.lock();
        let counts = |block: &Block| match block.state {
            BlockState::Idle => true,
            BlockState::Releasing => block.release_cause.is_eviction(),
            _ => false,
        };
        state.table.iter().filter(|(_, block)| counts(block)).map(|(_, b)| b.physical_bytes).sum()
    }

    /// Recounts every block and list and compares them with the gauges.
    ///
    /// # Errors
    /// What does not add up, in words.
    pub fn audit(&self) -> Result<(), String> {
        self.state.lock().audit()
    }
}

impl State {
    fn audit(&self) -> Result<(), String> {
        let mut recount = Gauges::default();
        for (_, block) in self.table.iter() {
            let bytes = block.physical_bytes;
            recount.held_bytes += bytes;
            match block.state {
                BlockState::Live => {
                    recount.live_bytes += bytes;
                    recount.live_requested_bytes += block.requested_bytes;
                    recount.pinned_live_bytes += if block.pins > 0 { bytes } else { 0 };
                }
                BlockState::Idle => recount.idle_bytes += bytes,
                BlockState::Pinned => recount.pinned_bytes += bytes,
                BlockState::Retiring
                | BlockState::Parked
                | BlockState::Fenced
                | BlockState::Releasing => recount.parked_bytes += bytes,
                BlockState::Vacant => return Err("a vacant record is counted".to_owned()),
            }
        }
        if recount != self.gauges.read() {
            return Err(format!("gauges {:?} but a recount gives {recount:?}", self.gauges));
        }
        let held =
            recount.live_bytes + recount.idle_bytes + recount.parked_bytes + recount.pinned_bytes;
        if held != recount.held_bytes {
            return Err(format!("{held} bytes are accounted for, {} are held", recount.held_bytes));
        }
        self.audit_lists(recount.idle_bytes)
    }

    fn audit_lists(&self, idle_bytes: u64) -> Result<(), String> {
        let mut seen = vec![false; self.table.capacity()];
        let mut listed_bytes = 0;
        for (key, stream) in (0_u32..).zip(&self.streams) {
            for (slot, class) in stream.lists.iter().flat_map(|lists| lists.classes()).enumerate() {
                let mut index = class.head();
                let mut depth = 0;
                let mut above = NONE;
                while index != NONE {
                    let block = self.table.get(index);
                    if std::mem::replace(&mut seen[index as usize], true) {
                        return Err(format!("block {:#x} is in two lists", block.address));
                    }
                    if block.state != BlockState::Idle
                        || block.stream != key
                        || usize::from(block.slot) != slot
                        || block.pins != 0
                    {
                        return Err(format!("{block:?} is idle in slot {slot} of stream {key}"));
                    }
                    if above != NONE && block.above != above {
                        return Err(format!("{block:?} is not below {above}"));
                    }
                    above = index;
                    listed_bytes += block.physical_bytes;
                    depth += 1;
                    index = block.next;
                }
                if depth > 0 && class.bottom() != above {
                    return Err(format!("slot {slot} ends with {above}, not {}", class.bottom()));
                }
                if depth != class.depth() {
                    return Err(format!("slot {slot} says {} and has {depth}", class.depth()));
                }
            }
        }
        if listed_bytes != idle_bytes {
            return Err(format!("{listed_bytes} bytes are listed, {idle_bytes} are idle"));
        }
        Ok(())
    }
}
