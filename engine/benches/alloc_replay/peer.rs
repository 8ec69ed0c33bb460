//! What every allocator in the comparison can do, the driver that counts their calls, and ours.

use std::alloc::{GlobalAlloc as _, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::alloc::driver::{Address, Driver, DriverBlock, DriverError, DriverRequest};
use engine::alloc::lock::{BiasedLock, RawLock};
use engine::alloc::stats::{Counter, MUST_BE_ZERO};
use engine::alloc::{Cache, Config, FreeRequest, Request};

use crate::workload::{Event, StepKind, Workload};

/// What a driver call is taken to cost, as on a GPU's stream-ordered pool.
pub(crate) const DRIVER_CALL_NS: f64 = 2000.0;

/// A driver without memory: it counts.
#[derive(Debug, Default)]
pub(crate) struct BenchDriver {
    next_address: AtomicU64,
    allocs: AtomicU64,
    frees: AtomicU64,
    held_bytes: AtomicU64,
    held_peak_bytes: AtomicU64,
}

impl BenchDriver {
    pub(crate) fn note_free(&self, bytes: u64) {
        self.frees.fetch_add(1, Ordering::Relaxed);
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_alloc(&self, bytes: u64) {
        self.allocs.fetch_add(1, Ordering::Relaxed);
        let held_bytes = self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.held_peak_bytes.fetch_max(held_bytes, Ordering::Relaxed);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.allocs.load(Ordering::Relaxed) + self.frees.load(Ordering::Relaxed)
    }

    pub(crate) fn allocs(&self) -> u64 {
        self.allocs.load(Ordering::Relaxed)
    }

    pub(crate) fn held_peak_bytes(&self) -> u64 {
        self.held_peak_bytes.load(Ordering::Relaxed)
    }
}

impl Driver for BenchDriver {
    fn name(&self) -> &'static str {
        "bench"
    }
    fn block_align(&self) -> u64 {
        512
    }
    fn alloc(&self, request: DriverRequest) -> Result<Address, DriverError> {
        self.note_alloc(request.bytes);
        let span = request.bytes.next_multiple_of(512);
        Ok(Address((1 << 40) + self.next_address.fetch_add(span, Ordering::Relaxed)))
    }
    unsafe fn free(&self, block: DriverBlock) -> Result<(), DriverError> {
        self.note_free(block.bytes);
        Ok(())
    }
}

/// One allocator in the comparison.
pub(crate) trait Peer {
    fn alloc(&mut self, bytes: u64) -> u64;
    fn free(&mut self, address: u64, bytes: u64);
    fn begin_step(&mut self, _kind: StepKind) {}
    fn driver(&self) -> &BenchDriver;
}

/// Ours: the cache as it ships, with its lock, side table and statistics.
pub(crate) struct Ours<L: RawLock = BiasedLock> {
    cache: Cache<BenchDriver, L>,
}

impl<L: RawLock> Default for Ours<L> {
    fn default() -> Self {
        Self::with(Config::default())
    }
}

impl<L: RawLock> Ours<L> {
    pub(crate) fn with(config: Config) -> Self {
        Ours { cache: Cache::new(BenchDriver::default(), config) }
    }
}

impl<L: RawLock> Peer for Ours<L> {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let request = Request { align: 256, ..Request::of_bytes(bytes) };
        self.cache.alloc(request).expect("the bench driver has no limit").address.0
    }
    fn free(&mut self, address: u64, _bytes: u64) {
        // SAFETY: the bench driver has no memory behind its addresses.
        unsafe { self.cache.free(FreeRequest::of(Address(address))) };
    }
    fn begin_step(&mut self, kind: StepKind) {
        self.cache.before_forward(match kind {
            StepKind::Decode => 1,
            StepKind::Prefill => 512,
        });
    }
    fn driver(&self) -> &BenchDriver {
        self.cache.driver()
    }
}

impl<L: RawLock> Drop for Ours<L> {
    fn drop(&mut self) {
        let counters = self.cache.snapshot().counters;
        for &counter in MUST_BE_ZERO {
            assert_eq!(counters[counter], 0, "{counter:?} after {}", counters[Counter::Requests]);
        }
    }
}

/// The system allocator: a speed reference whose headers are in the memory itself.
#[derive(Default)]
pub(crate) struct SystemAllocator {
    driver: BenchDriver,
}

impl Peer for SystemAllocator {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let layout = Layout::from_size_align(bytes as usize, 64).expect("a layout");
        // SAFETY: no workload asks for nothing.
        unsafe { System.alloc(layout).expose_provenance() as u64 }
    }
    fn free(&mut self, address: u64, bytes: u64) {
        let layout = Layout::from_size_align(bytes as usize, 64).expect("a layout");
        // SAFETY: the block came from `alloc` with the same layout.
        unsafe { System.dealloc(std::ptr::with_exposed_provenance_mut(address as usize), layout) };
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

type ReplayFn = dyn Fn(&dyn Workload, Timing) -> Replay;

/// Makes fresh instances of one peer and replays them.
pub(crate) struct PeerFactory {
    pub(crate) name: &'static str,
    /// Whether its driver calls and held bytes can be counted.
    pub(crate) counted: bool,
    replay: Box<ReplayFn>,
}

impl PeerFactory {
    pub(crate) fn of<P: Peer + Default + 'static>(name: &'static str) -> Self {
        Self::made_by(name, P::default)
    }

    pub(crate) fn made_by<P: Peer + 'static>(
        name: &'static str,
        make: impl Fn() -> P + 'static,
    ) -> Self {
        let replay = move |workload: &dyn Workload, timing| replay(make(), workload, timing);
        PeerFactory { name, counted: true, replay: Box::new(replay) }
    }

    pub(crate) fn uncounted<P: Peer + Default + 'static>(name: &'static str) -> Self {
        PeerFactory { counted: false, ..Self::of::<P>(name) }
    }

    pub(crate) fn replay(&self, workload: &dyn Workload, timing: Timing) -> Replay {
        (self.replay)(workload, timing)
    }
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// Each step as a whole.
    Steps,
    /// Each free on its own, for the worst one.
    Frees,
}

/// What a replay gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replay {
    pub(crate) pairs: u64,
    pub(crate) step_ns_per_pair: Vec<f64>,
    pub(crate) worst_free: Duration,
    pub(crate) driver_calls: u64,
    pub(crate) driver_allocs_after_warm_up: u64,
    pub(crate) held_peak_bytes: u64,
    pub(crate) requested_peak_bytes: u64,
}

const WARM_UP_STEPS: usize = 50;

fn replay<P: Peer>(mut peer: P, workload: &dyn Workload, timing: Timing) -> Replay {
    let mut slots = vec![(0_u64, 0_u64); workload.slots()];
    let mut result = Replay::default();
    let (mut events, mut requested) = (vec![], Requested::new(workload.slots()));
    let mut allocs_at_warm_up = 0;
    for step in 0..workload.steps() {
        events.clear();
        let kind = workload.fill(step, &mut events);
        if step == WARM_UP_STEPS.min(workload.steps() / 2) {
            allocs_at_warm_up = peer.driver().allocs();
        }
        let start = Instant::now();
        peer.begin_step(kind);
        match timing {
            Timing::Steps => run_events(&mut peer, &events, &mut slots),
            Timing::Frees => time_frees(&mut peer, &events, &mut slots, &mut result.worst_free),
        }
        let took = start.elapsed();
        let pairs = count_pairs(&events, &mut requested, &mut result);
        result.step_ns_per_pair.push(took.as_nanos() as f64 / pairs.max(1) as f64);
    }
    result.driver_calls = peer.driver().calls();
    result.driver_allocs_after_warm_up = peer.driver().allocs() - allocs_at_warm_up;
    result.held_peak_bytes = peer.driver().held_peak_bytes();
    result
}

/// The part that is measured, under a name of its own for profilers.
#[inline(never)]
fn run_events<P: Peer>(peer: &mut P, events: &[Event], slots: &mut [(u64, u64)]) {
    for event in events {
        match *event {
            Event::Alloc { slot, bytes } => slots[slot as usize] = (peer.alloc(bytes), bytes),
            Event::Free { slot } => {
                let (address, bytes) = slots[slot as usize];
                peer.free(address, bytes);
            }
        }
    }
}

fn time_frees<P: Peer>(
    peer: &mut P,
    events: &[Event],
    slots: &mut [(u64, u64)],
    worst: &mut Duration,
) {
    for event in events {
        match *event {
            Event::Alloc { slot, bytes } => slots[slot as usize] = (peer.alloc(bytes), bytes),
            Event::Free { slot } => {
                let (address, bytes) = slots[slot as usize];
                let start = Instant::now();
                peer.free(address, bytes);
                *worst = (*worst).max(start.elapsed());
            }
        }
    }
}

/// What is asked for and not freed yet.
struct Requested {
    live_bytes: u64,
    bytes_of: Vec<u64>,
}

impl Requested {
    fn new(slots: usize) -> Self {
        Requested { live_bytes: 0, bytes_of: vec![0; slots] }
    }
}

fn count_pairs(events: &[Event], requested: &mut Requested, result: &mut Replay) -> u64 {
    let mut pairs = 0;
    for event in events {
        match *event {
            Event::Alloc { slot, bytes } => {
                requested.bytes_of[slot as usize] = bytes;
                requested.live_bytes += bytes;
                result.requested_peak_bytes = result.requested_peak_bytes.max(requested.live_bytes);
                pairs += 1;
            }
            Event::Free { slot } => requested.live_bytes -= requested.bytes_of[slot as usize],
        }
    }
    result.pairs += pairs;
    pairs
}
