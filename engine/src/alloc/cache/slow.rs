//! What a request or a free does when the cache alone cannot settle it.

use std::time::Instant;

use super::{Allocation, Cache, Freed, Request, Served, StateGuard, StreamKey};
use crate::alloc::class::{REQUEST_MAX_BYTES, SizeClass, class_of};
use crate::alloc::driver::{
    Address, AllocError, Driver, DriverBlock, DriverError, DriverRequest, DriverStream, EventState,
    Fill, Origin, Window,
};
use crate::alloc::lock::RawLock;
use crate::alloc::state::{Fence, Phase, Place, State};
use crate::alloc::stats::{AllocCause, Bypass, Counter, FreeCause, Mode};
use crate::alloc::table::{Block, BlockState, NONE, UNCLASSED};

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

/// The error for a cache that may not call its driver any more.
#[cold]
pub(super) fn closed_error(request: Request) -> AllocError {
    AllocError::Driver {
        requested_bytes: request.bytes,
        source: DriverError::Failed {
            code: -1,
            message: "the allocator was shut down, or this is a forked child".to_owned(),
        },
    }
}

/// What to ask the driver for.
struct Plan {
    physical_bytes: u64,
    slot: u16,
    cause: AllocCause,
}

impl<D: Driver, L: RawLock> Cache<D, L> {
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow<'a>(
        &'a self,
        mut state: StateGuard<'a, L>,
        bytes: u64,
        align: u64,
        fill: Fill,
        stream: StreamKey,
    ) -> Result<Allocation, AllocError> {
        // Scalars, so that the fast path keeps them in registers.
        let request = Request { bytes, align, fill, stream };
        let class = if bytes == 0 { None } else { class_of(bytes) };
        if state.phase == Phase::Eager && !state.fences.is_empty() {
            drop(state);
            self.poll_fences();
            state = self.state.lock();
        }
        let plan = match self.plan_request(&mut state, request, class)? {
            Ok(plan) => plan,
            Err(allocation) => return Ok(allocation),
        };
        let window = match state.phase {
            Phase::Capturing => Window::Capture,
            Phase::Eager | Phase::Priming => Window::Eager,
        };
        let driver_request = DriverRequest {
            bytes: plan.physical_bytes,
            align: request.align.max(self.block_align),
            fill: request.fill,
            stream: state.driver_stream(request.stream.0),
            window,
        };
        let owner = if state.is_alive(request.stream.0) { request.stream.0 } else { NONE };
        drop(state);
        let start = Instant::now();
        let answer = self.driver.alloc(driver_request);
        let mut took_ns = nanoseconds_since(start);
        let address = match answer {
            Ok(address) => address,
            Err(error) => {
                let mut state = self.state.lock();
                state.note_driver_ns(std::mem::take(&mut took_ns));
                drop(state);
                if !error.is_shortage() || window == Window::Capture {
                    return Err(self.fail(request, error));
                }
                self.rescue(driver_request).map_err(|error| self.fail(request, error))?
            }
        };
        let mut block = Block::new(address, BlockState::Live, Origin::Cache, owner);
        block.physical_bytes = plan.physical_bytes;
        block.requested_bytes = request.bytes;
        block.slot = plan.slot;
        block.align_log2 = driver_request.align.ilog2() as u8;
        let mut state = self.state.lock();
        state.note_driver_ns(took_ns);
        state.counters[plan.cause] += 1;
        if state.enter(block).is_err() {
            state.counters[FreeCause::Metadata] += 1;
            state.in_flight += 1;
            drop(state);
            drop(self.call_frees(&[block.to_driver_block(driver_request.stream)]));
            return Err(self.fail(request, DriverError::OutOfMemory));
        }
        Ok(Allocation { address, served: Served::Driver })
    }

    /// Decides what a request is and counts it: an error, an allocation that needs no driver, or a
    /// plan for one.
    #[allow(clippy::type_complexity)]
    fn plan_request(
        &self,
        state: &mut State,
        request: Request,
        class: Option<SizeClass>,
    ) -> Result<Result<Plan, Allocation>, AllocError> {
        if state.mode == Mode::Closed {
            state.counters[Bypass::Closed] += 1;
            return Err(closed_error(request));
        }
        if request.bytes == 0 {
            state.counters[Bypass::ZeroSize] += 1;
            return Ok(Err(Allocation { address: Address::EMPTY, served: Served::Empty }));
        }
        let padded_bytes = request.bytes.checked_add(request.align);
        let (Some(class), Some(..=REQUEST_MAX_BYTES)) = (class, padded_bytes) else {
            state.counters[Bypass::TooLarge] += 1;
            return Err(AllocError::RequestTooLarge {
                requested_bytes: request.bytes,
                align: request.align,
            });
        };
        // A block of exactly a class's size may be kept later, however it came to be.
        let exact_slot = if class.bytes == request.bytes { class.slot } else { UNCLASSED };
        let bypass = match state.mode {
            Mode::Killed => Some((Bypass::Killed, UNCLASSED)),
            _ if !state.is_alive(request.stream.0) => Some((Bypass::Stream, UNCLASSED)),
            Mode::Off => Some((Bypass::Off, exact_slot)),
            _ if request.align > self.block_align => Some((Bypass::Alignment, UNCLASSED)),
            _ if !state.cap.admits(class.bytes) => Some((Bypass::LargerThanCap, exact_slot)),
            Mode::On | Mode::Closed => None,
        };
        if let Some((reason, mut slot)) = bypass {
            state.counters[reason] += 1;
            if request.align > self.block_align || state.phase == Phase::Capturing {
                slot = UNCLASSED;
            }
            if state.phase == Phase::Capturing {
                state.note_capture_miss();
            }
            return Ok(Ok(Plan { physical_bytes: request.bytes, slot, cause: AllocCause::Bypass }));
        }
        if state.phase == Phase::Capturing
            && let Some(address) = state.serve_reserve(request.stream.0, class, request.bytes)
        {
            return Ok(Err(Allocation { address, served: Served::Cache }));
        }
        if let Some(address) = state.serve(request.stream.0, class, request.bytes) {
            if state.phase == Phase::Capturing
                && let Some(index) = state.table.find(address)
            {
                state.touch(index);
            }
            return Ok(Err(Allocation { address, served: Served::Cache }));
        }
        state.counters[Counter::Misses] += 1;
        let now = state.now();
        if let Some(lists) = &mut state.streams[request.stream.0 as usize].lists {
            let list = lists.class_mut(class.slot);
            list.note_miss(now);
            if list.drained > 0 {
                list.drained -= 1;
                state.counters[Counter::RewarmMisses] += 1;
            }
        }
        if state.phase == Phase::Capturing {
            state.note_capture_miss();
            let cause = AllocCause::CaptureMiss;
            return Ok(Ok(Plan { physical_bytes: class.bytes, slot: UNCLASSED, cause }));
        }
        state.note_miss();
        Ok(Ok(Plan { physical_bytes: class.bytes, slot: class.slot, cause: AllocCause::Miss }))
    }

    /// The driver is out of memory: gives everything idle back, waits for the device, trims the
    /// driver's own pool and asks once more.
    fn rescue(&self, driver_request: DriverRequest) -> Result<Address, DriverError> {
        self.state.lock().counters[Counter::OomRetries] += 1;
        let synchronised = self.timed(|driver| driver.synchronize(None));
        let mut state = self.state.lock();
        if synchronised.is_ok() {
            state.fences_are_done();
        }
        let mut state = self.settle_and_lock(state);
        if state.phase != Phase::Capturing {
            state.release_all_idle(None, FreeCause::Flush);
        }
        drop(self.quiesce(state));
        self.timed(|driver| driver.trim());
        let retried = self.timed(|driver| driver.alloc(driver_request));
        if retried.is_ok() {
            self.state.lock().counters[Counter::OomRescues] += 1;
        }
        retried
    }

    fn fail(&self, request: Request, error: DriverError) -> AllocError {
        let mut state = self.state.lock();
        state.counters[Counter::AllocFailures] += 1;
        let (requested_bytes, holdings) = (request.bytes, state.holdings());
        match error {
            DriverError::OutOfMemory => AllocError::OutOfMemory { requested_bytes, holdings },
            DriverError::PoolLimit => AllocError::CapExceeded { requested_bytes, holdings },
            source @ DriverError::Failed { .. } => AllocError::Driver { requested_bytes, source },
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn free_slow(
        &self,
        mut state: StateGuard<'_, L>,
        index: u32,
        stream: StreamKey,
    ) -> Freed {
        if state.mode == Mode::Closed {
            state.counters[Counter::FreesAfterClose] += 1;
            return Freed::Ignored;
        }
        if state.table.get(index).state != BlockState::Live {
            state.counters[Counter::DoubleFrees] += 1;
            return Freed::Double;
        }
        state.note_use(index, stream.0);
        if state.table.get(index).used_on != NONE {
            state.counters[Counter::CrossStreamFrees] += 1;
        }
        state.take_back(index);
        state.place_freed(index);
        self.settle(state);
        Freed::Own
    }

    /// Frees a block that the cache did not allocate to the driver; within a capture it is parked.
    ///
    /// # Safety
    /// Nobody uses the block any more, and the driver accepts it.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn free_foreign(
        &self,
        mut state: StateGuard<'_, L>,
        address: Address,
        stream: StreamKey,
        bytes: u64,
        align: u64,
    ) -> Freed {
        if address == Address::EMPTY {
            return Freed::Empty;
        }
        if state.mode == Mode::Closed {
            state.counters[Counter::FreesAfterClose] += 1;
            return Freed::Ignored;
        }
        state.counters[Counter::ForeignFrees] += 1;
        let align = align.max(1);
        if state.phase == Phase::Capturing {
            let mut block = Block::new(address, BlockState::Parked, Origin::Foreign, stream.0);
            block.requested_bytes = bytes;
            block.align_log2 = align.ilog2() as u8;
            // Without memory for the record the block is left alone: freeing it would be worse.
            if let Ok(index) = state.table.insert(block) {
                state.touch(index);
                state.place_freed(index);
            }
            return Freed::Foreign;
        }
        state.counters[FreeCause::Foreign] += 1;
        state.in_flight += 1;
        let block = DriverBlock {
            address,
            bytes,
            align,
            stream: state.driver_stream(stream.0),
            origin: Origin::Foreign,
        };
        drop(state);
        drop(self.call_frees(&[block]));
        Freed::Foreign
    }

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
            if !state.unfenced.is_empty() {
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

    /// Puts an event behind the next block that another stream has used. The block is published
    /// only once its event is recorded.
    fn fence_next<'a>(&'a self, mut state: StateGuard<'a, L>) -> StateGuard<'a, L> {
        let Some(index) = state.pop_unfenced() else { return state };
        let block = *state.table.get(index);
        let user = state.driver_stream(block.used_on);
        let within_bound = state.cap.admits(state.fenced_bytes + block.physical_bytes);
        let only_user = !block.used_on_many && within_bound;
        drop(state);
        let event = match only_user {
            true => self.timed(|driver| driver.record_event(user)).ok(),
            false => None,
        };
        // Without an event there is one other way to know that the work is done.
        let synchronised = event.is_none()
            && self.timed(|driver| driver.synchronize(only_user.then_some(user))).is_ok();
        let mut state = self.state.lock();
        match event {
            Some(event) => {
                state.table.get_mut(index).state = BlockState::Fenced;
                state.fenced_bytes += block.physical_bytes;
                state.fences.push(Fence { block: index, event });
            }
            None => {
                let block = state.table.get_mut(index);
                block.used_on = NONE;
                block.used_on_many = false;
                if !synchronised {
                    // Nothing can tell when the work is done: the driver's own order must.
                    block.slot = UNCLASSED;
                }
                state.retire(index);
            }
        }
        state
    }

    /// Looks at the events that blocks wait for; those whose work is done are settled.
    pub(super) fn poll_fences(&self) {
        let mut state = self.state.lock();
        if state.fences.is_empty() || state.phase == Phase::Capturing {
            return;
        }
        let fences = std::mem::take(&mut state.fences);
        drop(state);
        let (done, pending): (Vec<Fence>, Vec<Fence>) = fences
            .into_iter()
            .partition(|fence| self.driver.poll_event(fence.event) == EventState::Done);
        let mut state = self.state.lock();
        state.fences.extend(pending);
        done.into_iter().for_each(|fence| state.fence_is_done(fence.block));
        self.settle(state);
    }

    /// Calls the driver to free blocks that were counted as in flight, without the lock, and comes
    /// back with the lock and the calls accounted for.
    fn call_frees(&self, blocks: &[DriverBlock]) -> StateGuard<'_, L> {
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

    fn timed<T>(&self, call: impl FnOnce(&D) -> T) -> T {
        let start = Instant::now();
        let result = call(&self.driver);
        let took_ns = nanoseconds_since(start);
        self.state.lock().note_driver_ns(took_ns);
        result
    }
}

fn nanoseconds_since(start: Instant) -> u64 {
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

impl State {
    /// Whether nothing waits for a decision or for the driver.
    fn is_settled(&self) -> bool {
        self.releasing.is_empty() && self.retiring.is_empty() && self.unfenced.is_empty()
    }

    fn note_driver_ns(&mut self, took_ns: u64) {
        let total_ns = &mut self.counters[Counter::DriverNs];
        *total_ns = total_ns.saturating_add(took_ns);
    }

    fn pop_unfenced(&mut self) -> Option<u32> {
        self.unfenced.pop(&self.table)
    }

    fn note_capture_miss(&mut self) {
        self.capture_misses += 1;
        self.counters[Counter::CaptureMisses] += 1;
    }

    /// Serves a request within a capture from what the rehearsal has stocked.
    fn serve_reserve(&mut self, stream: u32, class: SizeClass, bytes: u64) -> Option<Address> {
        let now = self.now();
        let reserve = self.streams.get_mut(stream as usize)?.reserve.as_mut()?;
        let index = reserve.take(&mut self.table, class.slot, class.bytes, now)?;
        self.touch(index);
        self.transfer(self.table.get(index).physical_bytes, Place::Parked, Place::Live);
        Some(self.hand_out(index, bytes))
    }

    /// Remembers that a block was used on a stream that is not its own.
    pub(super) fn note_use(&mut self, index: u32, stream: u32) {
        let block = self.table.get_mut(index);
        if stream == block.stream || block.stream == NONE {
            return;
        }
        if block.used_on != NONE && block.used_on != stream {
            block.used_on_many = true;
        }
        block.used_on = stream;
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
        if self.table.get(index).used_on == NONE {
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

    /// All work of all streams is done.
    pub(crate) fn fences_are_done(&mut self) {
        for fence in std::mem::take(&mut self.fences) {
            self.fence_is_done(fence.block);
        }
    }

    /// Gives everything idle back and switches the cache off.
    pub(crate) fn drain_and_disable(&mut self) {
        if self.mode == Mode::On {
            self.mode = Mode::Off;
            self.counters[Counter::Drains] += 1;
            self.release_all_idle(None, FreeCause::Drain);
        }
    }
}
