//! Runs a sequence and holds the cache to its promises after every operation.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use engine::alloc::driver::sim::SimDriver;
use engine::alloc::driver::{Address, AllocError, DriverStream, Fill};
use engine::alloc::lock::RawLock;
use engine::alloc::policy::CapRequest;
use engine::alloc::stats::{Counter, Counters, MUST_BE_ZERO, Mode};
use engine::alloc::{
    Cache, Config, FreeRequest, Freed, GraphToken, PeakWindow, Request, Served, StreamKey,
};

use crate::op::Op;

const CAP_BYTES: u64 = 64 << 10;
const CAPACITY_BYTES: u64 = 2 << 20;
const STREAMS: usize = 3;

/// A lock for one thread: taking it twice is a mistake, not a wait. A driver call with the lock held
/// ends in one, because the driver's hook reads the cache.
#[derive(Debug, Default)]
pub(crate) struct OneThreadLock {
    held: AtomicBool,
}

impl RawLock for OneThreadLock {
    fn lock(&self) {
        assert!(!self.held.swap(true, Ordering::Relaxed), "the lock is taken twice");
    }

    unsafe fn unlock(&self) {
        self.held.store(false, Ordering::Relaxed);
    }
}

type TestCache = Cache<Arc<SimDriver>, OneThreadLock>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    None,
    Priming,
    Capturing,
}

struct Live {
    address: Address,
    bytes: u64,
    stream: usize,
}

struct Model {
    cache: Arc<TestCache>,
    driver: Arc<SimDriver>,
    streams: [StreamKey; STREAMS],
    live: Vec<Live>,
    last_freed: Option<Address>,
    window: Window,
    graphs: Vec<(GraphToken, HashSet<u64>)>,
    touched: HashSet<u64>,
    frees_at_begin: u64,
    double_frees: u64,
    requests: u64,
    earlier: Counters,
    peak_window: Option<PeakWindow>,
    /// Highest idle bytes that were seen from within a driver call.
    idle_in_calls: Arc<AtomicU64>,
}

pub(crate) fn run_sequence(ops: &[Op]) {
    let mut model = Model::new();
    for op in ops {
        model.apply(*op);
        model.check(*op);
    }
    model.finish();
}

impl Model {
    fn new() -> Self {
        let driver = Arc::new(SimDriver::with_capacity(CAPACITY_BYTES));
        driver.set_reuse_addresses(true);
        let config = Config { cap: CapRequest::Bytes(CAP_BYTES), ..Config::default() };
        let cache = Arc::new(TestCache::new(driver.clone(), config));
        let idle_in_calls = Arc::new(AtomicU64::new(0));
        let (seen, watched): (_, Weak<TestCache>) = (idle_in_calls.clone(), Arc::downgrade(&cache));
        driver.set_hook(Box::new(move || {
            if let Some(cache) = watched.upgrade() {
                seen.fetch_max(cache.gauges().idle_bytes, Ordering::Relaxed);
            }
        }));
        let streams = [0, 1, 2].map(|raw| cache.register_stream(DriverStream { device: 0, raw }));
        let peak_window = Some(cache.open_window());
        Model {
            cache,
            driver,
            streams,
            live: vec![],
            last_freed: None,
            window: Window::None,
            graphs: vec![],
            touched: HashSet::new(),
            frees_at_begin: 0,
            double_frees: 0,
            requests: 0,
            earlier: Counters::default(),
            peak_window,
            idle_in_calls,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Alloc { bytes, align, stream } => self.alloc(bytes, align, stream % STREAMS),
            Op::Free { block } if !self.live.is_empty() => {
                let block = block % self.live.len();
                self.free(block, self.live[block].stream);
            }
            Op::FreeOn { block, stream } if !self.live.is_empty() => {
                self.free(block % self.live.len(), stream % STREAMS);
            }
            Op::RecordUse { block, stream } if !self.live.is_empty() => {
                let address = self.live[block % self.live.len()].address;
                self.cache.record_use(address, self.streams[stream % STREAMS]);
            }
            Op::DoubleFree => self.double_free(),
            Op::ForeignFree => {
                let address = self.driver.foreign_block();
                let free = FreeRequest { bytes: 64, align: 1, ..FreeRequest::of(address) };
                // SAFETY: the simulated driver has no memory behind its addresses.
                assert_eq!(unsafe { self.cache.free(free) }, Freed::Foreign);
                if self.window == Window::Capturing {
                    self.touched.insert(address.0);
                }
            }
            Op::Decode => self.forward(1, 1),
            Op::DecodeMany => self.forward(1, 70),
            Op::Prefill => self.forward(16, 1),
            Op::FailAllocs { count } => self.driver.fail_next_allocs(count),
            Op::Prime => {
                let allowed = self.mode() == Mode::On && self.window == Window::None;
                assert_eq!(self.cache.prime_capture().is_ok(), allowed);
                if allowed {
                    self.window = Window::Priming;
                }
            }
            Op::Begin => self.begin(),
            Op::Commit => self.commit(),
            Op::Abort => {
                self.driver.set_capturing(false);
                self.cache.abort_capture();
                self.window = Window::None;
                self.touched.clear();
            }
            Op::DestroyGraph { graph } if !self.graphs.is_empty() => {
                let (token, _) = self.graphs.swap_remove(graph % self.graphs.len());
                self.cache.destroy_graph(token);
            }
            Op::CompleteEvents => self.driver.complete_events(),
            Op::Flush => self.cache.flush(),
            Op::RenewStream { stream } => {
                let stream = stream % STREAMS;
                self.cache.destroy_stream(self.streams[stream]);
                let driver = DriverStream { device: 0, raw: stream as u64 };
                let renewed = self.cache.register_stream(driver);
                assert_ne!(renewed, self.streams[stream], "keys are never used again");
                self.streams[stream] = renewed;
            }
            Op::Free { .. }
            | Op::FreeOn { .. }
            | Op::RecordUse { .. }
            | Op::DestroyGraph { .. } => {}
        }
    }

    fn forward(&self, seq_len: usize, times: u32) {
        for _ in 0..times {
            self.cache.before_forward(seq_len);
        }
    }

    fn mode(&self) -> Mode {
        self.cache.snapshot().mode
    }

    fn alloc(&mut self, bytes: u64, align: u64, stream: usize) {
        let request = Request { bytes, align, fill: Fill::Any, stream: self.streams[stream] };
        self.requests += 1;
        match self.cache.alloc(request) {
            Ok(allocation) if allocation.served == Served::Empty => assert_eq!(bytes, 0),
            Ok(allocation) => {
                let address = allocation.address;
                assert_eq!(address.0 % align, 0);
                assert!(self.live.iter().all(|live| live.address != address), "handed out twice");
                for (_, pinned) in &self.graphs {
                    assert!(!pinned.contains(&address.0), "a pinned block is handed out");
                }
                let info = self.cache.lookup(address).expect("it is handed out");
                assert!(info.physical_bytes >= bytes && info.requested_bytes == bytes);
                self.live.push(Live { address, bytes, stream });
                if self.window == Window::Capturing {
                    self.touched.insert(address.0);
                }
            }
            Err(AllocError::RequestTooLarge { .. }) => assert!(bytes > 1 << 62),
            Err(error) => {
                assert!(error.retry_can_help(), "{error}");
                let gauges = self.cache.gauges();
                if self.window != Window::Capturing {
                    assert_eq!(gauges.idle_bytes, 0, "an error while blocks are idle");
                }
            }
        }
    }

    fn free(&mut self, block: usize, stream: usize) {
        let live = self.live.swap_remove(block);
        let free = FreeRequest { stream: self.streams[stream], ..FreeRequest::of(live.address) };
        assert!(live.bytes > 0);
        // SAFETY: the simulated driver has no memory behind its addresses.
        assert_eq!(unsafe { self.cache.free(free) }, Freed::Own);
        self.last_freed = Some(live.address);
        if self.window == Window::Capturing {
            self.touched.insert(live.address.0);
        }
    }

    fn double_free(&mut self) {
        // A block that has gone back to the driver is foreign by then; only what the cache still
        // knows can be told from one.
        let Some(address) = self.last_freed.filter(|&address| self.cache.knows(address)) else {
            return;
        };
        if self.live.iter().any(|live| live.address == address) {
            return;
        }
        // SAFETY: the simulated driver has no memory behind its addresses.
        assert_eq!(unsafe { self.cache.free(FreeRequest::of(address)) }, Freed::Double);
        self.double_frees += 1;
    }

    fn begin(&mut self) {
        let allowed = self.mode() == Mode::On && self.window != Window::Capturing;
        assert_eq!(self.cache.begin_capture().is_ok(), allowed);
        if allowed {
            self.driver.set_capturing(true);
            self.window = Window::Capturing;
            self.touched.clear();
            self.frees_at_begin = self.driver.counts().frees;
        }
    }

    fn commit(&mut self) {
        if self.window == Window::Capturing {
            self.driver.set_capturing(false);
        }
        match self.cache.commit_capture() {
            Ok(token) => {
                assert_eq!(self.window, Window::Capturing);
                self.graphs.push((token, std::mem::take(&mut self.touched)));
                self.window = Window::None;
            }
            Err(_) if self.window == Window::Capturing => {
                self.window = Window::None;
                self.touched.clear();
            }
            Err(_) => {}
        }
    }

    fn check(&mut self, op: Op) {
        let snapshot = self.cache.snapshot();
        let (counters, gauges) = (snapshot.counters, snapshot.gauges);
        if let Err(fault) = self.cache.audit() {
            panic!("after {op:?}: {fault}");
        }
        let counts = self.driver.counts();
        assert_eq!(counts.faults, Vec::<String>::new(), "after {op:?}");
        assert_eq!(gauges.held_bytes, counts.held_bytes, "after {op:?}");
        assert_eq!(counters.driver_allocs(), counts.allocs, "after {op:?}");
        assert_eq!(counters.driver_frees(), counts.frees, "after {op:?}");
        assert!(gauges.idle_bytes <= CAP_BYTES, "after {op:?}");
        assert!(self.idle_in_calls.load(Ordering::Relaxed) <= CAP_BYTES, "within {op:?}");
        assert!(counters.has_not_fallen_since(&self.earlier), "after {op:?}");
        self.earlier = counters;
        assert_eq!(counters[Counter::Requests], self.requests, "after {op:?}");
        let answered = counters[Counter::Hits] + counters[Counter::Misses] + counters.bypasses();
        assert_eq!(answered, self.requests, "each request is counted once: {op:?}");
        for &counter in MUST_BE_ZERO {
            let expected = if counter == Counter::DoubleFrees { self.double_frees } else { 0 };
            assert_eq!(counters[counter], expected, "{counter:?} after {op:?}");
        }
        if self.window == Window::Capturing {
            assert_eq!(counts.frees, self.frees_at_begin, "a capture frees nothing: {op:?}");
        }
        let live_bytes: u64 = self.live.iter().map(|live| live.bytes).sum();
        assert_eq!(gauges.live_requested_bytes, live_bytes, "after {op:?}");
        if let Some(window) = &self.peak_window {
            let (window, life) = (self.cache.read_window(window), snapshot.peaks);
            assert!(life.live_bytes >= window.live_bytes && window.live_bytes >= gauges.live_bytes);
            assert!(life.idle_bytes >= window.idle_bytes && window.idle_bytes >= gauges.idle_bytes);
            assert!(life.idle_bytes <= CAP_BYTES, "for a moment within {op:?}");
            assert!(life.total_bytes >= window.total_bytes);
            assert!(window.total_bytes >= gauges.held_bytes);
        }
    }

    /// Everything is given back, in whatever order it comes: nothing is lost on the way.
    fn finish(mut self) {
        self.apply(Op::Abort);
        while !self.graphs.is_empty() {
            self.apply(Op::DestroyGraph { graph: 0 });
        }
        while let Some(last) = self.live.len().checked_sub(1) {
            self.apply(Op::Free { block: last });
        }
        self.apply(Op::CompleteEvents);
        self.apply(Op::Prefill);
        self.check(Op::Prefill);
        if let Some(window) = self.peak_window.take() {
            self.cache.close_window(window);
        }
        let gauges = self.cache.gauges();
        assert_eq!(gauges.held_bytes, 0, "a drain leaves {gauges:?}");
        assert_eq!(self.cache.snapshot().blocks, 0);
        self.driver.set_shut_down();
        self.cache.shutdown();
        assert_eq!(self.driver.counts().faults, Vec::<String>::new());
    }
}
