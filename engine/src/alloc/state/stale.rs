//! Records that the driver has proved wrong: it handed out an address that the cache believed to hold.

use crate::alloc::state::{Place, State};
use crate::alloc::stats::Counter;
use crate::alloc::table::{BlockState, UNCLASSED};

impl State {
    /// The driver handed an address out that it should not have had: somebody freed the block behind
    /// the cache's back. The old record is dropped without a driver call.
    pub(super) fn forget_stale(&mut self, index: u32) {
        self.counters[Counter::StaleAddresses] += 1;
        let block = *self.table.get(index);
        let place = match block.state {
            BlockState::Live => {
                self.gauges.live_requested_bytes -= block.requested_bytes;
                if block.pins > 0 {
                    self.gauges.pinned_live_bytes -= block.physical_bytes;
                }
                Place::Live
            }
            BlockState::Idle => {
                if let Some(lists) = &mut self.streams[block.stream as usize].lists {
                    lists.class_mut(block.slot).unlink(&mut self.table, index);
                }
                Place::Idle
            }
            // Links of the other states run through queues and graphs: the record stays as it is,
            // under an address that no driver gives, and leaves with its queue. Nothing of it may ever
            // be handed out: it is in no class any more, nor in what a rehearsal has stocked.
            _ => {
                self.leave_reserve(index);
                self.table.rename(index);
                self.table.get_mut(index).slot = UNCLASSED;
                return;
            }
        };
        self.gauges.subtract(block.physical_bytes, place);
        self.gauges.held_bytes -= block.physical_bytes;
        self.graphs.iter_mut().for_each(|graph| graph.blocks.retain(|&pinned| pinned != index));
        self.touched.retain(|&touched| touched != index);
        self.table.remove(index);
    }

    /// Takes a block out of what a rehearsal has stocked, where it is in there: it stays parked.
    fn leave_reserve(&mut self, index: u32) {
        let block = self.table.get(index);
        let (slot, stream) = (block.slot, block.stream as usize);
        if block.state != BlockState::Parked || slot == UNCLASSED {
            return;
        }
        if let Some(reserve) = self.streams.get_mut(stream).and_then(|s| s.reserve.as_mut())
            && reserve.class_mut(slot).unlink(&mut self.table, index)
        {
            self.parked.push(&mut self.table, index);
        }
    }
}
