//! A simulated driver: addresses without memory behind them, a capacity, failures on demand, and
//! strict checks.
//!
//! It refuses what a real driver would answer with corruption: a double free, a foreign pointer, a
//! wrong size, a call within a capture or after shutdown. Such calls are kept as faults, so that a
//! test can hold the list to be empty.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    Address, Driver, DriverBlock, DriverError, DriverRequest, DriverStream, EventId, EventState,
    Origin, Window,
};

/// What is called at the start of every driver call, for tests that look at the cache from there.
pub type CallHook = Box<dyn Fn() + Send + Sync>;

/// What the driver has done and holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimCounts {
    /// Successful allocations.
    pub allocs: u64,
    /// Allocations that were refused.
    pub refused_allocs: u64,
    /// Successful frees, foreign ones included.
    pub frees: u64,
    /// Frees of blocks that the driver's user did not allocate through it.
    pub foreign_frees: u64,
    /// Calls to synchronise.
    pub synchronises: u64,
    /// Calls to trim.
    pub trims: u64,
    /// Bytes that are allocated now.
    pub held_bytes: u64,
    /// Highest value of `held_bytes`.
    pub held_peak_bytes: u64,
    /// Everything that a real driver would have answered with an error or with corruption.
    pub faults: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct SimBlock {
    bytes: u64,
    align: u64,
}

#[derive(Debug, Default)]
struct Inner {
    counts: SimCounts,
    capacity_bytes: Option<u64>,
    fail_next_allocs: u32,
    fail_frees: bool,
    reuse_addresses: bool,
    capturing: bool,
    shut_down: bool,
    next_address: u64,
    blocks: HashMap<u64, SimBlock>,
    foreign: HashSet<u64>,
    recycled: HashMap<u64, Vec<u64>>,
    next_event: u64,
    pending_events: HashSet<u64>,
}

/// See the module.
#[derive(Default)]
pub struct SimDriver {
    inner: Mutex<Inner>,
    captured_beside: AtomicBool,
    hook: Mutex<Option<CallHook>>,
}

impl fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDriver").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Alignment of every address.
const ALIGN_BYTES: u64 = 512;

impl SimDriver {
    /// A driver without a limit.
    #[must_use]
    pub fn new() -> Self {
        SimDriver::default()
    }

    /// A driver that is out of memory beyond `capacity_bytes`.
    #[must_use]
    pub fn with_capacity(capacity_bytes: u64) -> Self {
        let driver = SimDriver::new();
        driver.inner().capacity_bytes = Some(capacity_bytes);
        driver
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) -> MutexGuard<'_, Inner> {
        if let Some(hook) = &*self.hook.lock().unwrap_or_else(PoisonError::into_inner) {
            hook();
        }
        let mut inner = self.inner();
        if inner.shut_down {
            inner.counts.faults.push("call after shutdown".to_owned());
        }
        inner
    }

    /// What it has done and holds.
    #[must_use]
    pub fn counts(&self) -> SimCounts {
        self.inner().counts.clone()
    }

    /// Bytes that are allocated now.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.inner().counts.held_bytes
    }

    /// The next `count` allocations are refused for want of memory.
    pub fn fail_next_allocs(&self, count: u32) {
        self.inner().fail_next_allocs = count;
    }

    /// Every free fails from now on, or does not.
    pub fn set_frees_fail(&self, fail: bool) {
        self.inner().fail_frees = fail;
    }

    /// Whether addresses that were freed are given out again, as real drivers do.
    pub fn set_reuse_addresses(&self, reuse: bool) {
        self.inner().reuse_addresses = reuse;
    }

    /// Whether a graph is being captured: then every free is a fault.
    pub fn set_capturing(&self, capturing: bool) {
        self.inner().capturing = capturing;
    }

    /// Whether somebody captures a stream past the cache: then every wait and every question about an
    /// event is a fault.
    pub fn set_captured_beside(&self, captured: bool) {
        self.captured_beside.store(captured, Ordering::Relaxed);
    }

    /// From now on every call is a fault.
    pub fn set_shut_down(&self) {
        self.inner().shut_down = true;
    }

    /// Is called at the start of every driver call.
    pub fn set_hook(&self, hook: CallHook) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(hook);
    }

    /// A block that somebody else has allocated and that may be freed here once.
    pub fn foreign_block(&self) -> Address {
        let mut inner = self.inner();
        let address = inner.fresh_address(1, ALIGN_BYTES);
        inner.foreign.insert(address);
        Address(address)
    }

    /// Frees a block behind the cache's back.
    pub fn free_behind(&self, address: Address) {
        let mut inner = self.inner();
        if let Some(block) = inner.blocks.remove(&address.0) {
            inner.counts.held_bytes -= block.bytes;
            inner.recycled.entry(block.bytes).or_default().push(address.0);
        }
    }

    /// All work is done: events that were recorded so far complete.
    pub fn complete_events(&self) {
        self.inner().pending_events.clear();
    }
}

impl Inner {
    fn fresh_address(&mut self, bytes: u64, align: u64) -> u64 {
        let start = self.next_address.max(0x7f00_0000_0000).next_multiple_of(align);
        self.next_address = start + bytes;
        start
    }
}

impl Driver for SimDriver {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn block_align(&self) -> u64 {
        ALIGN_BYTES
    }

    fn alloc(&self, request: DriverRequest) -> Result<Address, DriverError> {
        let mut inner = self.call();
        if request.bytes == 0 || !request.align.is_power_of_two() {
            inner.counts.faults.push(format!("bad request: {request:?}"));
        }
        if inner.capturing != (request.window == Window::Capture) {
            inner.counts.faults.push("the window is not what the driver sees".to_owned());
        }
        let held_bytes = inner.counts.held_bytes.saturating_add(request.bytes);
        if inner.fail_next_allocs > 0 || inner.capacity_bytes.is_some_and(|cap| held_bytes > cap) {
            inner.fail_next_allocs = inner.fail_next_allocs.saturating_sub(1);
            inner.counts.refused_allocs += 1;
            return Err(DriverError::OutOfMemory);
        }
        let recycled = match inner.reuse_addresses && request.align <= ALIGN_BYTES {
            true => inner.recycled.get_mut(&request.bytes).and_then(Vec::pop),
            false => None,
        };
        let align = request.align.max(ALIGN_BYTES);
        let address = recycled.unwrap_or_else(|| inner.fresh_address(request.bytes, align));
        inner.blocks.insert(address, SimBlock { bytes: request.bytes, align: request.align });
        inner.counts.allocs += 1;
        inner.counts.held_bytes = held_bytes;
        inner.counts.held_peak_bytes = inner.counts.held_peak_bytes.max(held_bytes);
        Ok(Address(address))
    }

    unsafe fn free(&self, block: DriverBlock) -> Result<(), DriverError> {
        let mut inner = self.call();
        let failed = |message: &str| DriverError::Failed { code: 1, message: message.to_owned() };
        if inner.capturing {
            inner.counts.faults.push(format!("free within a capture: {block:?}"));
        }
        if inner.fail_frees {
            return Err(failed("frees fail"));
        }
        if block.origin == Origin::Foreign {
            if !inner.foreign.remove(&block.address.0) {
                inner.counts.faults.push(format!("free of an unknown pointer: {block:?}"));
                return Err(failed("unknown pointer"));
            }
            inner.counts.frees += 1;
            inner.counts.foreign_frees += 1;
            return Ok(());
        }
        let Some(known) = inner.blocks.remove(&block.address.0) else {
            inner.counts.faults.push(format!("double free: {block:?}"));
            return Err(failed("double free"));
        };
        if known.bytes != block.bytes || known.align != block.align {
            inner.counts.faults.push(format!("{block:?} was allocated as {known:?}"));
        }
        inner.counts.frees += 1;
        inner.counts.held_bytes -= known.bytes;
        inner.recycled.entry(known.bytes).or_default().push(block.address.0);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        !self.captured_beside.load(Ordering::Relaxed)
    }

    fn synchronize(&self, _stream: Option<DriverStream>) -> Result<(), DriverError> {
        let mut inner = self.call();
        if !self.may_wait() {
            inner.counts.faults.push("a wait ends somebody's capture".to_owned());
        }
        inner.counts.synchronises += 1;
        inner.pending_events.clear();
        Ok(())
    }

    fn trim(&self) {
        self.call().counts.trims += 1;
    }

    fn free_bytes(&self) -> Option<u64> {
        let inner = self.inner();
        inner.capacity_bytes.map(|capacity| capacity.saturating_sub(inner.counts.held_bytes))
    }

    fn record_event(&self, _stream: DriverStream) -> Result<EventId, DriverError> {
        let mut inner = self.call();
        if inner.capturing {
            inner.counts.faults.push("event recorded within a capture".to_owned());
        }
        inner.next_event += 1;
        let event = inner.next_event;
        inner.pending_events.insert(event);
        Ok(EventId(event))
    }

    fn poll_event(&self, event: EventId) -> EventState {
        let mut inner = self.call();
        if !self.may_wait() {
            inner
                .counts
                .faults
                .push("a question about an event ends somebody's capture".to_owned());
        }
        match inner.pending_events.contains(&event.0) {
            true => EventState::Pending,
            false => EventState::Done,
        }
    }
}
