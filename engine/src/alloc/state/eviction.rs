//! What leaves the lists without being asked for: eviction under the cap, ageing, drains.

use crate::alloc::class::{HUGE_SLOT, SLOTS};
use crate::alloc::policy::Cap;
use crate::alloc::state::{Chain, Phase, Place, State};
use crate::alloc::stats::{Counter, FreeCause};
use crate::alloc::table::BlockState;

/// Decode steps in one window of the idle lists.
const STEPS_PER_WINDOW: u64 = 8;
/// Requests after which a window ends though no decode step was announced.
const REQUESTS_PER_WINDOW: u64 = 1 << 18;

/// How far eviction goes for a block that comes in.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// Idle bytes with which the block is within the cap.
    fits_bytes: u64,
    /// Idle bytes with which it is within seven eighths of the cap.
    goal_bytes: u64,
    /// Blocks that are larger than this are evicted for the cap alone.
    small_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Victim {
    /// The lowest goes first: surplus before working set, then the least recently used.
    rank: (bool, u64),
    stream: usize,
    slot: usize,
    evictable: u32,
    block_bytes: u64,
}

impl State {
    /// Evicts until `incoming_bytes` fit. Returns whether they fit now; where they do not, victims
    /// are queued, and once these are released there is room.
    pub(super) fn make_room(&mut self, incoming_bytes: u64) -> bool {
        let Cap::Bounded(cap_bytes) = self.cap else { return true };
        if self.gauges.idle_bytes + incoming_bytes <= cap_bytes {
            return true;
        }
        let room = Room {
            fits_bytes: cap_bytes.saturating_sub(incoming_bytes),
            goal_bytes: (cap_bytes - cap_bytes / 8).saturating_sub(incoming_bytes),
            small_bytes: cap_bytes / 8,
        };
        while self.gauges.idle_bytes > room.goal_bytes && self.evict_least_recent(&room) {}
        false
    }

    /// Evicts from the bottom of the least recently used class, of those with surplus or, where none
    /// has any, of all: as much as the bound and then the goal ask for. Returns false where nothing
    /// is left that should go.
    fn evict_least_recent(&mut self, room: &Room) -> bool {
        let fits = self.gauges.idle_bytes <= room.fits_bytes;
        let mut victim: Option<Victim> = None;
        for (stream, lists) in self.streams.iter().enumerate() {
            let Some(lists) = &lists.lists else { continue };
            for (slot, class) in lists.filled() {
                let block_bytes = self.table.get(class.head()).physical_bytes;
                // The goal spares the next frees an eviction each. A block of more than an eighth of
                // the cap makes that room on its own, when its turn comes.
                if fits && block_bytes > room.small_bytes {
                    continue;
                }
                let surplus = class.surplus();
                let candidate = Victim {
                    rank: (surplus == 0, class.last_touch()),
                    stream,
                    slot,
                    evictable: if surplus > 0 { surplus } else { class.depth() },
                    block_bytes,
                };
                if victim.as_ref().is_none_or(|best| candidate.rank < best.rank) {
                    victim = Some(candidate);
                }
            }
        }
        let Some(victim) = victim else { return false };
        let target_bytes = match victim.block_bytes > room.small_bytes {
            true => room.fits_bytes,
            false => room.goal_bytes,
        };
        // Blocks of the last slot differ in size, so that one goes at a time.
        let count = match victim.slot == usize::from(HUGE_SLOT) {
            true => 1,
            false => {
                let excess_bytes = self.gauges.idle_bytes - target_bytes;
                let wanted = excess_bytes.div_ceil(victim.block_bytes);
                u32::try_from(wanted).map_or(victim.evictable, |n| n.min(victim.evictable))
            }
        };
        let Some(lists) = &mut self.streams[victim.stream].lists else { return false };
        let chain = lists.classes_mut()[victim.slot].cut_bottom(&mut self.table, count);
        let cause = if victim.rank.0 { FreeCause::LeastRecent } else { FreeCause::Surplus };
        self.release_idle(Chain { head: chain }, cause);
        true
    }

    /// Queues idle blocks that were cut out of their lists. A block that a captured graph needs is
    /// never among them; if it were, it is kept and the fault counted.
    fn release_idle(&mut self, mut chain: Chain, cause: FreeCause) {
        while let Some(index) = chain.pop(&self.table) {
            let block = self.table.get_mut(index);
            let physical_bytes = block.physical_bytes;
            if block.pins > 0 {
                block.state = BlockState::Pinned;
                self.counters[Counter::PinnedEvictions] += 1;
                self.transfer(physical_bytes, Place::Idle, Place::Pinned);
                continue;
            }
            self.transfer(physical_bytes, Place::Idle, Place::Parked);
            self.queue_release(index, cause);
        }
    }

    /// Queues every idle block, or those of one stream.
    pub(crate) fn release_all_idle(&mut self, only_stream: Option<u32>, cause: FreeCause) {
        for stream in 0..self.streams.len() {
            if only_stream.is_some_and(|only| only as usize != stream) {
                continue;
            }
            for slot in 0..SLOTS {
                let Some(lists) = &mut self.streams[stream].lists else { break };
                let class = &mut lists.classes_mut()[slot];
                let depth = class.depth();
                if depth == 0 {
                    continue;
                }
                if cause == FreeCause::Drain {
                    class.drained = depth;
                }
                let chain = class.cut_bottom(&mut self.table, depth);
                self.release_idle(Chain { head: chain }, cause);
            }
        }
    }

    /// Counts a decode step and ends the lists' window where it is due.
    pub(crate) fn note_step(&mut self) {
        self.counters[Counter::Steps] += 1;
        self.steps_in_window += 1;
        if self.steps_in_window >= STEPS_PER_WINDOW {
            self.roll_window();
        }
    }

    /// Ends the lists' window where many requests came without a step.
    pub(crate) fn note_miss(&mut self) {
        if self.now() - self.served_at_window > REQUESTS_PER_WINDOW {
            self.roll_window();
        }
    }

    fn roll_window(&mut self) {
        if self.phase != Phase::Eager {
            return;
        }
        self.steps_in_window = 0;
        self.served_at_window = self.now();
        for stream in 0..self.streams.len() {
            let Some(lists) = &mut self.streams[stream].lists else { continue };
            if !lists.close_window() {
                continue;
            }
            for slot in 0..SLOTS {
                let Some(lists) = &mut self.streams[stream].lists else { break };
                let chain = lists.take_aged(&mut self.table, slot);
                self.release_idle(Chain { head: chain }, FreeCause::Aged);
            }
        }
    }

    /// Gives the idle blocks of streams that are gone back, and their lists with them.
    pub(crate) fn purge_gone_streams(&mut self) {
        for stream in 0..self.streams.len() {
            if !self.streams[stream].alive && self.streams[stream].lists.is_some() {
                self.release_all_idle(Some(stream as u32), FreeCause::StreamGone);
                self.streams[stream].lists = None;
            }
        }
    }
}
