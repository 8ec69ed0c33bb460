//! What a request or a free does when the cache alone cannot settle it.

use std::time::Instant;

use super::release::nanoseconds_since;
use super::{Allocation, Cache, Freed, Request, Served, StateGuard, StreamKey};
use crate::alloc::class::{REQUEST_MAX_BYTES, SizeClass, class_of};
use crate::alloc::driver::{
    Address, AllocError, Driver, DriverBlock, DriverError, DriverRequest, Fill, Origin, Window,
};
use crate::alloc::lock::RawLock;
use crate::alloc::state::{Phase, Place, State};
use crate::alloc::stats::{AllocCause, Bypass, Counter, FreeCause, Mode};
use crate::alloc::table::{Block, BlockState, NONE, UNCLASSED};

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
        // A miss may have ended a window, and what aged out with it is on its way.
        self.settle(state);
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
            // What decode needs again is held already: nothing of a prefill joins it.
            Mode::Held => Some((Bypass::Off, UNCLASSED)),
            _ if request.align > self.block_align => Some((Bypass::Alignment, UNCLASSED)),
            _ if !state.cap.admits(class.bytes) => Some((Bypass::LargerThanCap, exact_slot)),
            Mode::Prefill if state.cap.is_large(class.bytes) => {
                Some((Bypass::LargePrefill, UNCLASSED))
            }
            Mode::On | Mode::Prefill | Mode::Closed => None,
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
    /// driver's own pool and asks once more. Within a capture that another thread has begun meanwhile,
    /// or that somebody has begun past the cache, nothing is done.
    fn rescue(&self, driver_request: DriverRequest) -> Result<Address, DriverError> {
        let mut state = self.state.lock();
        state.counters[Counter::OomRetries] += 1;
        if state.phase == Phase::Capturing || !self.driver.may_wait() {
            return Err(DriverError::OutOfMemory);
        }
        let barrier = self.raise_barrier(state);
        // What waited for other streams can go as well once these are done.
        let _ = self.timed(|driver| driver.synchronize(None));
        self.poll_fences();
        let mut state = self.settle_and_lock(self.state.lock());
        state.release_all_idle(None, FreeCause::Flush);
        drop(self.quiesce(state));
        // A pool gives back only what the host has seen to be free.
        let _ = self.timed(|driver| driver.synchronize(None));
        self.timed(|driver| driver.trim());
        let retried = self.timed(|driver| driver.alloc(driver_request));
        let mut state = barrier.lower();
        if retried.is_ok() {
            state.counters[Counter::OomRescues] += 1;
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
}

impl State {
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

    /// Gives everything idle back and switches the cache off.
    pub(crate) fn drain_and_disable(&mut self) {
        if matches!(self.mode, Mode::On | Mode::Held | Mode::Prefill) {
            self.mode = Mode::Off;
            self.counters[Counter::Drains] += 1;
            self.release_all_idle(None, FreeCause::Drain);
        }
    }
}
