//! The cache: requests and frees, and the driver calls that they cause.
//!
//! The bookkeeping is done under the lock by `state`; this module decides what a request is, calls
//! the driver with the lock given back, and rescues requests when the driver is out of memory.

mod audit;
mod release;
mod request;
mod slow;
mod streams;

use crate::alloc::class::class_of;
use crate::alloc::driver::{Address, AllocError, Driver, DriverStream};
use crate::alloc::fork;
use crate::alloc::lock::{BiasedLock, Guard, Locked, RawLock};
use crate::alloc::peaks::{PeakWindow, Peaks};
use crate::alloc::policy::{
    Action, CapRequest, EffectiveCap, KillSwitch, Prefill, action_before, plan_cap,
};
use crate::alloc::state::{Phase, State};
use crate::alloc::stats::{Bypass, Counter, FreeCause, Gauges, Mode, Snapshot};
use crate::alloc::table::{BlockState, UNCLASSED};

pub use audit::ClassDepth;
pub use request::{Allocation, FreeRequest, Freed, Request, Served, StreamKey};

/// What a cache is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// Whether it may ever be on.
    pub kill_switch: KillSwitch,
    /// The cap on idle bytes that is asked for.
    pub cap: CapRequest,
    /// What a prefill does with it.
    pub prefill: Prefill,
}

/// A caching allocator over a driver. See the [module](crate::alloc).
#[derive(Debug)]
pub struct Cache<D: Driver, L: RawLock = BiasedLock> {
    driver: D,
    block_align: u64,
    prefill: Prefill,
    fork_generation: u32,
    pub(crate) state: Locked<State, L>,
}

pub(crate) type StateGuard<'a, L> = Guard<'a, State, L>;

impl<D: Driver, L: RawLock> Cache<D, L> {
    /// A cache that is off until the policy enables it.
    pub fn new(driver: D, config: Config) -> Self {
        let mode = match config.kill_switch {
            KillSwitch::Killed => Mode::Killed,
            KillSwitch::Policy => Mode::Off,
        };
        let cache = Cache {
            block_align: driver.block_align(),
            prefill: config.prefill,
            driver,
            fork_generation: fork::watch(),
            state: Locked::new(State::new(mode, config.cap)),
        };
        let host = cache.register_stream(DriverStream::HOST);
        debug_assert_eq!(host, StreamKey::HOST);
        cache
    }

    /// The driver underneath.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    #[inline]
    pub(crate) fn is_forked_child(&self) -> bool {
        fork::generation() != self.fork_generation
    }

    /// Serves a request: from the cache where it has a block of the class, else from the driver.
    ///
    /// # Errors
    /// Where no block can be that large, the driver refuses, or the cache may not call it any more.
    #[inline]
    pub fn alloc(&self, request: Request) -> Result<Allocation, AllocError> {
        if self.is_forked_child() {
            return Err(slow::closed_error(request));
        }
        let Request { bytes, align, fill, stream } = request;
        let class = if bytes == 0 { None } else { class_of(bytes) };
        let mut state = self.state.lock();
        if let Some(class) = class
            && state.mode == Mode::On
            && state.phase == Phase::Eager
            && align <= self.block_align
            && let Some(address) = state.serve(stream.0, class, bytes)
        {
            return Ok(Allocation { address, served: Served::Cache });
        }
        self.alloc_slow(state, bytes, align, fill, stream)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// Nobody uses the block any more, and it came from this cache or, where it did not, from the
    /// driver that foreign blocks are freed to.
    #[inline]
    pub unsafe fn free(&self, free: FreeRequest) -> Freed {
        if self.is_forked_child() {
            return Freed::Ignored;
        }
        let FreeRequest { address, stream, bytes, align } = free;
        let mut state = self.state.lock();
        if let Some(index) = state.table.find(address) {
            if state.table.get(index).state == BlockState::Live
                && state.mode == Mode::On
                && state.phase == Phase::Eager
                && state.keep(index, stream.0)
            {
                return Freed::Own;
            }
            return self.free_slow(state, index, stream);
        }
        // SAFETY: the caller vouches for foreign blocks.
        unsafe { self.free_foreign(state, address, stream, bytes, align) }
    }

    /// Counts a request that did not come through [`alloc`](Self::alloc), and the driver call that
    /// served it: the caller made it itself, for the reason given.
    pub fn count_bypass(&self, reason: Bypass) {
        if self.is_forked_child() {
            return;
        }
        let mut state = self.state.lock();
        state.counters[reason] += 1;
        state.counters[crate::alloc::stats::AllocCause::Bypass] += 1;
    }

    /// The physical and requested bytes of a block that is handed out; `None` where the address is
    /// not one that this cache has handed out.
    pub fn lookup(&self, address: Address) -> Option<BlockInfo> {
        if self.is_forked_child() {
            return None;
        }
        let state = self.state.lock();
        let block = state.table.get(state.table.find(address)?);
        (block.state == BlockState::Live).then_some(BlockInfo {
            physical_bytes: block.physical_bytes,
            requested_bytes: block.requested_bytes,
            stream: StreamKey(block.stream),
        })
    }

    /// Changes what the user of a handed-out block asks for, in place. Returns false where the block
    /// is too small, is not handed out, or a smaller class would do.
    pub fn resize_in_place(&self, address: Address, bytes: u64) -> bool {
        if self.is_forked_child() || bytes == 0 {
            return false;
        }
        let mut state = self.state.lock();
        let Some(index) = state.table.find(address) else { return false };
        let block = state.table.get_mut(index);
        let fits = block.state == BlockState::Live
            && (bytes == block.physical_bytes
                || class_of(bytes).is_some_and(|class| class.bytes == block.physical_bytes));
        if fits {
            let before = std::mem::replace(&mut block.requested_bytes, bytes);
            state.gauges.live_requested_bytes -= before;
            state.gauges.live_requested_bytes += bytes;
        }
        fits
    }

    /// Applies the policy before a forward over `seq_len` tokens and counts a decode step. Returns
    /// what was done.
    pub fn before_forward(&self, seq_len: usize) -> Action {
        if self.is_forked_child() {
            return Action::Leave;
        }
        self.poll_fences();
        let action = action_before(self.prefill, seq_len, self.state.lock().mode);
        self.apply(action);
        if seq_len == 1 {
            let mut state = self.state.lock();
            state.note_step();
            self.settle(state);
        }
        action
    }

    /// Does what the policy says. A drain within a capture is put off until its end.
    pub fn apply(&self, action: Action) {
        if self.is_forked_child() {
            return;
        }
        match action {
            Action::Leave => {}
            Action::Enable => {
                self.resolve_cap();
                let mut state = self.state.lock();
                if matches!(state.mode, Mode::Off | Mode::Held | Mode::Prefill) {
                    state.mode = Mode::On;
                }
            }
            Action::ServePrefill => {
                self.resolve_cap();
                let mut state = self.state.lock();
                if state.phase == Phase::Eager && matches!(state.mode, Mode::Off | Mode::On) {
                    state.mode = Mode::Prefill;
                }
            }
            Action::Hold => self.hold(),
            Action::DrainAndDisable => {
                self.poll_fences();
                let mut state = self.state.lock();
                if state.phase != Phase::Eager {
                    state.drain_deferred = true;
                    state.counters[Counter::DrainsDeferred] += 1;
                    return;
                }
                state.drain_and_disable();
                self.settle(state);
            }
        }
    }

    /// Keeps the idle blocks of decode over a prefill, unless the device has less free than they may
    /// come to. Within a capture the cache stays as it is.
    fn hold(&self) {
        self.poll_fences();
        let free_bytes = self.driver.free_bytes();
        let mut state = self.state.lock();
        if state.phase != Phase::Eager || !matches!(state.mode, Mode::On | Mode::Held) {
            return;
        }
        let pressed = match (state.cap.bytes(), free_bytes) {
            (Some(cap_bytes), Some(free_bytes)) => free_bytes < cap_bytes,
            _ => false,
        };
        if pressed {
            state.drain_and_disable();
        } else if state.mode == Mode::On {
            state.mode = Mode::Held;
            state.counters[Counter::Holds] += 1;
        }
        self.settle(state);
    }

    /// Settles the cap when the cache is first enabled: the default depends on the memory that is
    /// free then.
    fn resolve_cap(&self) -> EffectiveCap {
        if let Some(effective) = self.state.lock().effective_cap {
            return effective;
        }
        let free_bytes = self.driver.free_bytes();
        let mut state = self.state.lock();
        // Another thread may have settled it meanwhile: blocks are kept under that one already.
        if let Some(effective) = state.effective_cap {
            return effective;
        }
        let effective = plan_cap(state.cap_request, free_bytes);
        state.cap = effective.cap;
        *state.effective_cap.insert(effective)
    }

    /// Waits for all work on the device. Returns whether it is done: within a capture, the cache's or one
    /// past it, nothing may wait.
    pub fn synchronize(&self) -> bool {
        if self.is_forked_child() {
            return false;
        }
        let state = self.state.lock();
        let captured = state.phase == Phase::Capturing || !self.driver.may_wait();
        if captured || state.mode == Mode::Closed {
            return false;
        }
        let barrier = self.raise_barrier(state);
        let synchronised = self.driver.synchronize(None).is_ok();
        drop(barrier.lower());
        synchronised
    }

    /// Gives every idle block back to the driver and leaves the cache as it is otherwise. Within a
    /// capture nothing is done.
    pub fn flush(&self) {
        if self.is_forked_child() {
            return;
        }
        let mut state = self.state.lock();
        if state.phase == Phase::Eager {
            state.release_all_idle(None, FreeCause::Flush);
        }
        self.settle(state);
    }

    /// Says that this block is not kept when it is freed. One that is not handed out is left alone.
    pub fn never_keep(&self, address: Address) {
        if self.is_forked_child() {
            return;
        }
        let mut state = self.state.lock();
        if let Some(index) = state.table.find(address)
            && state.table.get(index).state == BlockState::Live
        {
            state.table.get_mut(index).slot = UNCLASSED;
        }
    }

    /// Keeps none of the blocks that are handed out now when they are freed: whoever owns the memory
    /// that they were cut from is about to go.
    pub fn keep_no_live_block(&self) {
        if self.is_forked_child() {
            return;
        }
        self.state.lock().table.unclass_all_but_idle();
    }

    /// Gives every idle block back and never calls the driver again: what is handed out, pinned or
    /// parked now stays where it is, and a later free is ignored.
    pub fn shutdown(&self) {
        if self.is_forked_child() {
            return;
        }
        let mut state = self.state.lock();
        if state.mode == Mode::Closed {
            return;
        }
        if state.phase == Phase::Eager {
            state.release_all_idle(None, FreeCause::Shutdown);
        }
        let mut state = self.quiesce_and_lock_out(state);
        state.mode = Mode::Closed;
    }

    /// Everything that can be read, at one moment.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        Snapshot {
            counters: state.read_counters(),
            gauges: state.gauges.read(),
            peaks: state.peaks.lifetime(),
            mode: state.mode,
            cap: state.effective_cap,
            blocks: state.table.len(),
            block_records: state.table.capacity(),
            pins_exceed_cap: state.pins_exceed_cap,
        }
    }

    /// What is held now.
    pub fn gauges(&self) -> Gauges {
        self.state.lock().gauges.read()
    }

    /// Opens a window over the peaks that the caller alone reads.
    pub fn open_window(&self) -> PeakWindow {
        let mut state = self.state.lock();
        let current = state.current();
        state.peaks.open(current)
    }

    /// The window's highest values so far.
    pub fn read_window(&self, window: &PeakWindow) -> Peaks {
        self.state.lock().peaks.read(window)
    }

    /// Reads the window and starts it anew at the current values.
    pub fn restart_window(&self, window: &PeakWindow) -> Peaks {
        let mut state = self.state.lock();
        let current = state.current();
        state.peaks.restart(window, current)
    }

    /// Reads the window a last time.
    pub fn close_window(&self, window: PeakWindow) -> Peaks {
        self.state.lock().peaks.close(window)
    }
}

/// What is known of a block that is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// Bytes that the driver allocated.
    pub physical_bytes: u64,
    /// Bytes that were asked for.
    pub requested_bytes: u64,
    /// The stream that it belongs to.
    pub stream: StreamKey,
}

impl<D: Driver, L: RawLock> Drop for Cache<D, L> {
    fn drop(&mut self) {
        self.shutdown();
    }
}
