//! Blocks on their way: to the lists, behind another stream's event, or back to the driver, which is
//! called here without the lock.

use std::time::Instant;

use super::{Cache, StateGuard};
use crate::alloc::driver::{Address, Driver, DriverBlock, DriverStream, EventState, Origin};
use crate::alloc::lock::RawLock;
use crate::alloc::state::{Fence, Phase, State};
use crate::alloc::stats::{Counter, Mode};
use crate::alloc::table::{BlockState, NONE};

/// Blocks that leave the release queue under one hold of the lock.
const RELEASE_BATCH: usize = 16;

/// Fills a batch up.
const NO_BLOCK: DriverBlock = DriverBlock {
    address: Address::EMPTY,
    bytes: 0,
    align: 1,
    stream: DriverStream::HOST,
    origin: Origin::Foreign,
};

impl<D: Driver, L: RawLock> Cache<D, L> {
    /// Decides the place of every freed block and gives back to the driver what has to go, without
    /// the lock.
    pub(crate) fn settle(&self, state: StateGuard<'_, L>) {
        if state.is_settled() {
            return;
        }
        drop(self.settle_and_lock(state));
    }

    pub(crate) fn settle_and_lock<'a>(&'a self, mut state: StateGuard<'a, L>) -> StateGuard<'a, L> {
        loop {
            if !state.unfenced.is_empty() && self.driver.may_wait() {
                state = self.fence_next(state);
                continue;
            }
            while state.settle_one() {}
            if state.releasing.is_empty() || state.mode == Mode::Closed {
                debug_assert!(state.cap.admits(state.gauges.idle_bytes));
                if !state.cap.admits(state.gauges.idle_bytes) {
                    state.counters[Counter::CapOvershoots] += 1;
                }
                return state;
            }
            let mut batch = [NO_BLOCK; RELEASE_BATCH];
            let mut count = 0;
            while count < RELEASE_BATCH
                && let Some(block) = state.next_release()
            {
                batch[count] = block;
                count += 1;
            }
            drop(state);
            state = self.call_frees(&batch[..count]);
        }
    }

    /// Settles, and waits until no thread is in the middle of giving blocks back to the driver.
    pub(crate) fn quiesce<'a>(&'a self, state: StateGuard<'a, L>) -> StateGuard<'a, L> {
        let mut state = self.settle_and_lock(state);
        while state.in_flight > 0 {
            drop(state);
            L::relax();
            state = self.settle_and_lock(self.state.lock());
        }
        state
    }

    /// As [`quiesce`](Self::quiesce), and waits for every other driver call that must not fall into
    /// what follows. Not to be called from within one.
    pub(crate) fn quiesce_and_lock_out<'a>(
        &'a self,
        state: StateGuard<'a, L>,
    ) -> StateGuard<'a, L> {
        let mut state = self.quiesce(state);
        while state.barriers > 0 {
            drop(state);
            L::relax();
            state = self.quiesce(self.state.lock());
        }
        state
    }

    /// Says that driver calls follow which must not fall into a capture or come after the end.
    pub(super) fn raise_barrier(&self, mut state: StateGuard<'_, L>) -> Barrier<'_, D, L> {
        state.barriers += 1;
        Barrier { cache: self, raised: true }
    }

    /// Puts an event behind the next block that another stream has used. The block is published
    /// only once its event is recorded.
    fn fence_next<'a>(&'a self, mut state: StateGuard<'a, L>) -> StateGuard<'a, L> {
        let Some(index) = state.pop_unfenced() else { return state };
        let block = *state.table.get(index);
        let user = state.driver_stream(block.used_on);
        let within_bound = state.cap.admits(state.fenced_bytes + block.physical_bytes);
        let only_user = !block.used_on_many && within_bound;
        let barrier = self.raise_barrier(state);
        let event = match only_user {
            true => self.timed(|driver| driver.record_event(user)).ok(),
            false => None,
        };
        // Without an event there is one other way to know that the work is done.
        let synchronised = event.is_none()
            && self.timed(|driver| driver.synchronize(only_user.then_some(user))).is_ok();
        let mut state = barrier.lower();
        match event {
            Some(event) => {
                state.table.get_mut(index).state = BlockState::Fenced;
                state.fenced_bytes += block.physical_bytes;
                state.fences.push(Fence { block: index, event });
            }
            None if synchronised => {
                let block = state.table.get_mut(index);
                block.used_on = NONE;
                block.used_on_many = false;
                state.retire(index);
            }
            // Nothing can tell when the other stream is done with the block: it is left alone, parked
            // for ever, because freeing it could pull it from under work.
            None => state.counters[Counter::FreeFailures] += 1,
        }
        state
    }

    /// Looks at the events that blocks wait for; those whose work is done are settled.
    pub(super) fn poll_fences(&self) {
        let mut state = self.state.lock();
        if state.fences.is_empty() || state.phase == Phase::Capturing || !self.driver.may_wait() {
            return;
        }
        let fences = std::mem::take(&mut state.fences);
        let barrier = self.raise_barrier(state);
        let (done, pending): (Vec<Fence>, Vec<Fence>) = fences
            .into_iter()
            .partition(|fence| self.driver.poll_event(fence.event) == EventState::Done);
        let mut state = barrier.lower();
        state.fences.extend(pending);
        done.into_iter().for_each(|fence| state.fence_is_done(fence.block));
        self.settle(state);
    }

    /// Calls the driver to free blocks that were counted as in flight, without the lock, and comes
    /// back with the lock and the calls accounted for.
    pub(super) fn call_frees(&self, blocks: &[DriverBlock]) -> StateGuard<'_, L> {
        let start = Instant::now();
        let mut calls = FreeCalls { cache: self, returned: 0, unfinished: blocks.len() };
        for &block in blocks {
            // SAFETY: the block left the table before this call, so no second free can find it, and
            // it entered the table with the bytes and alignment that the driver gave it with; for a
            // foreign block the caller of `free` vouches.
            let freed = unsafe { self.driver.free(block) };
            calls.returned += usize::from(freed.is_ok());
        }
        let took_ns = nanoseconds_since(start);
        let mut state = self.state.lock();
        calls.settle(&mut state);
        state.note_driver_ns(took_ns);
        state
    }

    pub(super) fn timed<T>(&self, call: impl FnOnce(&D) -> T) -> T {
        let start = Instant::now();
        let result = call(&self.driver);
        let took_ns = nanoseconds_since(start);
        self.state.lock().note_driver_ns(took_ns);
        result
    }
}

pub(super) fn nanoseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Driver frees that are under way. A driver that panics leaves none of them counted as in flight:
/// whoever waits for them would wait for ever.
struct FreeCalls<'a, D: Driver, L: RawLock> {
    cache: &'a Cache<D, L>,
    returned: usize,
    unfinished: usize,
}

impl<D: Driver, L: RawLock> FreeCalls<'_, D, L> {
    fn settle(&mut self, state: &mut State) {
        let count = std::mem::take(&mut self.unfinished);
        state.in_flight -= count;
        state.counters[Counter::FreeFailures] += (count - self.returned) as u64;
    }
}

impl<D: Driver, L: RawLock> Drop for FreeCalls<'_, D, L> {
    fn drop(&mut self) {
        if self.unfinished > 0 {
            let mut state = self.cache.state.lock();
            self.settle(&mut state);
        }
    }
}

/// Driver calls that are under way; see [`Cache::raise_barrier`].
pub(super) struct Barrier<'a, D: Driver, L: RawLock> {
    cache: &'a Cache<D, L>,
    raised: bool,
}

impl<'a, D: Driver, L: RawLock> Barrier<'a, D, L> {
    /// The calls have returned.
    pub(super) fn lower(mut self) -> StateGuard<'a, L> {
        let mut state = self.cache.state.lock();
        state.barriers -= 1;
        self.raised = false;
        state
    }
}

impl<D: Driver, L: RawLock> Drop for Barrier<'_, D, L> {
    /// A driver that panics does not make others wait for ever.
    fn drop(&mut self) {
        if self.raised {
            self.cache.state.lock().barriers -= 1;
        }
    }
}

impl State {
    /// Whether nothing waits for a decision or for the driver.
    fn is_settled(&self) -> bool {
        self.releasing.is_empty() && self.retiring.is_empty() && self.unfenced.is_empty()
    }

    fn pop_unfenced(&mut self) -> Option<u32> {
        self.unfenced.pop(&self.table)
    }

    pub(super) fn note_driver_ns(&mut self, took_ns: u64) {
        let total_ns = &mut self.counters[Counter::DriverNs];
        *total_ns = total_ns.saturating_add(took_ns);
    }

    /// Sends a block that was just freed, and is parked, where it belongs next.
    pub(crate) fn place_freed(&mut self, index: u32) {
        match self.phase {
            Phase::Priming | Phase::Capturing => {
                self.table.get_mut(index).state = BlockState::Parked;
                self.parked.push(&mut self.table, index);
                if self.phase == Phase::Capturing {
                    self.touch(index);
                }
            }
            Phase::Eager => self.place_unparked(index),
        }
    }

    /// Sends a parked block on: behind a fence where another stream has used it.
    pub(crate) fn place_unparked(&mut self, index: u32) {
        let block = *self.table.get(index);
        // The work of a stream that is gone was waited for.
        let is_done = block.used_on == NONE || !block.used_on_many && !self.is_alive(block.used_on);
        if is_done {
            self.table.get_mut(index).used_on = NONE;
            self.retire(index);
        } else {
            self.table.get_mut(index).state = BlockState::Retiring;
            self.unfenced.push(&mut self.table, index);
        }
    }

    fn fence_is_done(&mut self, index: u32) {
        let block = self.table.get_mut(index);
        block.used_on = NONE;
        self.fenced_bytes -= block.physical_bytes;
        self.retire(index);
    }
}
