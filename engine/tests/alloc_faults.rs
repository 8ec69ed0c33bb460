//! What others do behind the cache's back, and what two threads do at once: nothing of it may be
//! served, lost, or left waiting.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::alloc::driver::sim::SimDriver;
use engine::alloc::driver::{
    Address, Driver, DriverBlock, DriverError, DriverRequest, DriverStream,
};
use engine::alloc::policy::{Action, CapRequest, Prefill};
use engine::alloc::stats::{Counter, FreeCause};
use engine::alloc::{Cache, Config, FreeRequest, Request, Served, StreamKey};

const BYTES: u64 = 1024;

fn cache() -> Cache<SimDriver> {
    let cache = Cache::new(SimDriver::new(), Config::default());
    cache.driver().set_reuse_addresses(true);
    cache.before_forward(1);
    cache
}

fn on(stream: StreamKey) -> Request {
    Request { stream, ..Request::of_bytes(BYTES) }
}

fn free<D: Driver>(cache: &Cache<D>, address: Address) {
    // SAFETY: the simulated driver has no memory behind its addresses.
    unsafe { cache.free(FreeRequest::of(address)) };
}

/// A record whose address the driver gave to another block waits for another stream's event
/// meanwhile. Once the event is done it must leave, not be served under a name that is no address.
#[test]
fn a_stale_block_behind_a_fence_is_never_served() {
    let cache = cache();
    let other = cache.register_stream(DriverStream { device: 0, raw: 7 });
    let stale = cache.alloc(on(StreamKey::HOST)).unwrap().address;
    cache.record_use(stale, other);
    free(&cache, stale);
    cache.driver().free_behind(stale);
    let again = cache.alloc(on(StreamKey::HOST)).unwrap();
    assert_eq!((again.address, again.served), (stale, Served::Driver));
    assert_eq!(cache.snapshot().counters[Counter::StaleAddresses], 1);
    cache.driver().complete_events();
    cache.before_forward(1);
    let next = cache.alloc(on(StreamKey::HOST)).unwrap();
    assert_eq!(next.served, Served::Driver, "the record of a block that is gone is served");
    assert_eq!(next.address.0 % 2, 0, "an address that no driver gives");
    let gauges = cache.gauges();
    assert_eq!((gauges.parked_bytes, gauges.idle_bytes), (0, 0), "the stale record left");
    cache.audit().unwrap();
    assert_eq!(cache.driver().counts().faults, Vec::<String>::new());
}

/// The same for a block that a rehearsal has stocked for the capture.
#[test]
fn a_stale_block_in_a_rehearsals_stock_is_never_served() {
    let cache = cache();
    let other = cache.register_stream(DriverStream { device: 0, raw: 7 });
    cache.prime_capture().unwrap();
    let stale = cache.alloc(on(StreamKey::HOST)).unwrap().address;
    free(&cache, stale);
    cache.begin_capture().unwrap();
    cache.driver().set_capturing(true);
    cache.driver().free_behind(stale);
    assert_eq!(cache.alloc(on(other)).unwrap().address, stale, "the driver hands it out again");
    let next = cache.alloc(on(StreamKey::HOST)).unwrap();
    assert_eq!((next.address.0 % 2, next.served), (0, Served::Driver));
    cache.driver().set_capturing(false);
    cache.abort_capture();
    assert_eq!(cache.gauges().parked_bytes, 0);
    cache.audit().unwrap();
}

/// The gauges of a pinned block that is handed out go with its record.
#[test]
fn a_stale_pinned_block_leaves_the_gauges_true() {
    let cache = cache();
    free(&cache, cache.alloc(on(StreamKey::HOST)).unwrap().address);
    cache.begin_capture().unwrap();
    let pinned = cache.alloc(on(StreamKey::HOST)).unwrap();
    assert_eq!(pinned.served, Served::Cache);
    let token = cache.commit_capture().unwrap();
    assert_eq!(cache.gauges().pinned_live_bytes, BYTES);
    cache.driver().free_behind(pinned.address);
    assert_eq!(cache.alloc(on(StreamKey::HOST)).unwrap().address, pinned.address);
    assert_eq!(cache.gauges().pinned_live_bytes, 0);
    cache.audit().unwrap();
    cache.destroy_graph(token);
    cache.audit().unwrap();
}

/// Somebody captures a stream past the cache: nothing is waited for and no event is asked until that is
/// over, and a block that another stream has used is served to nobody meanwhile.
#[test]
fn nothing_waits_while_a_stream_is_captured_beside_the_cache() {
    let cache = cache();
    let other = cache.register_stream(DriverStream { device: 0, raw: 7 });
    let [fenced, later] = [(); 2].map(|()| cache.alloc(on(StreamKey::HOST)).unwrap().address);
    cache.record_use(fenced, other);
    free(&cache, fenced);
    cache.driver().set_captured_beside(true);
    cache.record_use(later, other);
    free(&cache, later);
    cache.before_forward(1);
    assert!(!cache.synchronize());
    cache.driver().fail_next_allocs(1);
    assert!(cache.alloc(Request::of_bytes(1 << 20)).unwrap_err().retry_can_help());
    let meanwhile = cache.alloc(on(StreamKey::HOST)).unwrap();
    assert_eq!(meanwhile.served, Served::Driver);
    assert_eq!(cache.driver().counts().faults, Vec::<String>::new());
    assert_eq!(cache.driver().counts().synchronises, 0);
    assert_eq!(cache.gauges().parked_bytes, 2 * BYTES);
    cache.audit().unwrap();
    cache.driver().set_captured_beside(false);
    cache.before_forward(1);
    cache.driver().complete_events();
    cache.before_forward(1);
    assert_eq!((cache.gauges().parked_bytes, cache.gauges().idle_bytes), (0, 2 * BYTES));
    cache.audit().unwrap();
}

/// A graph has the addresses of weights and workspaces in it that nobody asked for or freed within its
/// window.
#[test]
fn what_is_alive_across_a_capture_stays_with_its_graph() {
    let cache = cache();
    let other = cache.register_stream(DriverStream { device: 0, raw: 7 });
    let (weight, elsewhere) = (cache.alloc(on(StreamKey::HOST)).unwrap(), cache.alloc(on(other)));
    cache.begin_capture().unwrap();
    let token = cache.commit_capture_of(&[StreamKey::HOST]).unwrap();
    assert_eq!(cache.gauges().pinned_live_bytes, BYTES, "the other stream's block is its own");
    free(&cache, weight.address);
    assert_eq!(cache.gauges().pinned_bytes, BYTES);
    let next = cache.alloc(on(StreamKey::HOST)).unwrap().address;
    assert_ne!(next, weight.address, "the graph still reads there");
    cache.flush();
    cache.audit().unwrap();
    cache.destroy_graph(token);
    assert_eq!((cache.gauges().pinned_bytes, cache.gauges().idle_bytes), (0, BYTES));
    assert!(elsewhere.is_ok());
    cache.audit().unwrap();
}

#[test]
fn a_block_that_is_idle_keeps_its_class() {
    let cache = cache();
    let block = cache.alloc(on(StreamKey::HOST)).unwrap().address;
    free(&cache, block);
    cache.never_keep(block);
    cache.audit().unwrap();
    assert_eq!(cache.alloc(on(StreamKey::HOST)).unwrap().served, Served::Cache);
    cache.never_keep(block);
    free(&cache, block);
    assert_eq!(cache.gauges().held_bytes, 0, "handed out, it is not kept");
}

/// Blocks that age out when a miss ends a window go back to the driver with that miss.
#[test]
fn what_ages_out_at_a_miss_goes_back_at_once() {
    let cache = cache();
    let blocks: Vec<_> = (0..4).map(|_| cache.alloc(Request::of_bytes(8192)).unwrap()).collect();
    blocks.into_iter().for_each(|block| free(&cache, block.address));
    // A window without steps ends at the first miss after 2^18 requests; 16 are enough to age out.
    for window in 0..18_u64 {
        for _ in 0..=1 << 18 {
            free(&cache, cache.alloc(Request::of_bytes(BYTES)).unwrap().address);
        }
        let missed = cache.alloc(Request::of_bytes(16_384 + 4096 * window)).unwrap();
        assert_eq!(missed.served, Served::Driver);
        assert_eq!(cache.gauges().parked_bytes, 0, "nobody gives back what aged out");
    }
    assert_eq!(cache.snapshot().counters[FreeCause::Aged], 4);
    cache.audit().unwrap();
}

/// Says how much memory is free, and lets another thread enable the cache first, while the first one
/// waits for the answer.
struct Slow {
    sim: SimDriver,
    asked: AtomicBool,
}

static RACED: OnceLock<Cache<Slow>> = OnceLock::new();

impl Driver for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn block_align(&self) -> u64 {
        self.sim.block_align()
    }
    fn alloc(&self, request: DriverRequest) -> Result<Address, DriverError> {
        self.sim.alloc(request)
    }
    unsafe fn free(&self, block: DriverBlock) -> Result<(), DriverError> {
        // SAFETY: the caller gives the same guarantees.
        unsafe { self.sim.free(block) }
    }
    fn free_bytes(&self) -> Option<u64> {
        if self.asked.swap(true, Ordering::Relaxed) {
            return Some(64 << 30);
        }
        let other = std::thread::spawn(|| RACED.get().unwrap().before_forward(1));
        other.join().unwrap();
        Some(64 << 20)
    }
}

#[test]
fn two_threads_that_enable_first_settle_one_cap() {
    let slow = Slow { sim: SimDriver::new(), asked: AtomicBool::new(false) };
    let cache = RACED.get_or_init(|| Cache::new(slow, Config::default()));
    let unhurried: Cache<SimDriver> =
        Cache::new(SimDriver::with_capacity(64 << 30), Config::default());
    unhurried.before_forward(1);
    cache.before_forward(1);
    let cap = cache.snapshot().cap;
    assert!(cap.is_some());
    assert_eq!(cap, unhurried.snapshot().cap, "the second answer replaced the cap in force");
}

/// A class that was only ever missed is as recent as its last miss.
#[test]
fn the_class_that_was_asked_for_longest_ago_goes_first_even_without_a_hit() {
    let config = Config { cap: CapRequest::Bytes(16 << 10), ..Config::default() };
    let cache = Cache::<SimDriver>::new(SimDriver::new(), config);
    cache.before_forward(1);
    let alloc = |bytes| cache.alloc(Request::of_bytes(bytes)).unwrap();
    for bytes in [8 << 10, 1 << 10, 6 << 10] {
        free(&cache, alloc(bytes).address);
    }
    free(&cache, alloc(4 << 10).address);
    assert_eq!(cache.snapshot().counters[FreeCause::LeastRecent], 1);
    let served = [4 << 10, 6 << 10, 1 << 10, 8 << 10].map(|bytes| alloc(bytes).served);
    assert_eq!(served, [Served::Cache, Served::Cache, Served::Cache, Served::Driver]);
}

/// Blocks that are held over a prefill go back where the device runs short: before a prefill with less
/// free than the cap, and for a request that the driver refuses.
#[test]
fn held_blocks_go_back_under_pressure() {
    let (cap, prefill) = (CapRequest::Bytes(1 << 20), Prefill::Hold);
    let config = Config { cap, prefill, ..Config::default() };
    let cache = Cache::<SimDriver>::new(SimDriver::with_capacity(4 << 20), config);
    let alloc = |bytes| cache.alloc(Request::of_bytes(bytes)).unwrap().address;
    cache.before_forward(1);
    free(&cache, alloc(512 << 10));
    assert_eq!(cache.before_forward(64), Action::Hold);
    assert_eq!(cache.gauges().idle_bytes, 512 << 10);
    // What is left over does for this request only with the held block.
    let large = alloc((4 << 20) - (256 << 10));
    assert_eq!(cache.gauges().idle_bytes, 0);
    assert_eq!(cache.snapshot().counters[Counter::OomRescues], 1);
    free(&cache, large);
    cache.before_forward(1);
    free(&cache, alloc(512 << 10));
    let live = alloc(3 << 20);
    assert_eq!(cache.before_forward(64), Action::Hold);
    let snapshot = cache.snapshot();
    assert_eq!((snapshot.gauges.idle_bytes, snapshot.counters[Counter::Drains]), (0, 1));
    assert_eq!(snapshot.counters[Counter::Holds], 1, "the second did not hold");
    free(&cache, live);
    cache.audit().unwrap();
    assert_eq!(cache.driver().counts().faults, Vec::<String>::new());
}
