//! The cap on idle memory in the middle of an operation.
//!
//! At the start of every driver call idle bytes are counted in three ways: by the gauge; from what the
//! driver itself holds, less what is handed out and what is on its way; and by a walk over the
//! records, together with the victims that are not with the driver yet. A freed block becomes idle
//! only when its victims are gone, so that all three are within the cap. A cache that inserts first
//! and evicts afterwards fails the third, and shows in the peak.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use engine::alloc::driver::Address;
use engine::alloc::driver::sim::SimDriver;
use engine::alloc::policy::CapRequest;
use engine::alloc::stats::{FreeCause, MUST_BE_ZERO};
use engine::alloc::{Cache, Config, FreeRequest, Freed, Request, Served};
use proptest::prelude::*;

const CAP_BYTES: u64 = 64 << 10;

type TestCache = Cache<Arc<SimDriver>>;

/// What the driver's hook has seen at the start of driver calls, at most.
#[derive(Debug, Default)]
struct Seen {
    /// Physical bytes that the test has.
    handed_out_bytes: AtomicU64,
    calls: AtomicU64,
    /// Idle bytes by the gauge.
    gauge_bytes: AtomicU64,
    /// What the driver holds, less what is handed out or on its way.
    driver_bytes: AtomicU64,
    /// Idle blocks and victims, by a walk over the records and what is in the middle of its call.
    walk_bytes: AtomicU64,
}

struct Bench {
    cache: Arc<TestCache>,
    seen: Arc<Seen>,
}

impl Bench {
    fn new() -> Self {
        let driver = Arc::new(SimDriver::new());
        driver.set_reuse_addresses(true);
        let config = Config { cap: CapRequest::Bytes(CAP_BYTES), ..Config::default() };
        let cache = Arc::new(TestCache::new(driver.clone(), config));
        let seen = Arc::new(Seen::default());
        let (watched, record, held): (Weak<TestCache>, _, _) =
            (Arc::downgrade(&cache), seen.clone(), Arc::downgrade(&driver));
        driver.set_hook(Box::new(move || {
            let (Some(cache), Some(driver)) = (watched.upgrade(), held.upgrade()) else { return };
            let (gauges, held_bytes) = (cache.gauges(), driver.held_bytes());
            // A block leaves the cache's books before its driver call.
            let in_call_bytes = held_bytes.saturating_sub(gauges.held_bytes);
            let handed_out_bytes = record.handed_out_bytes.load(Ordering::Relaxed);
            let on_their_way_bytes = gauges.parked_bytes + in_call_bytes;
            let by_driver = held_bytes.saturating_sub(handed_out_bytes + on_their_way_bytes);
            record.calls.fetch_add(1, Ordering::Relaxed);
            record.gauge_bytes.fetch_max(gauges.idle_bytes, Ordering::Relaxed);
            record.driver_bytes.fetch_max(by_driver, Ordering::Relaxed);
            let by_walk = cache.idle_or_evicted_bytes() + in_call_bytes;
            record.walk_bytes.fetch_max(by_walk, Ordering::Relaxed);
        }));
        cache.before_forward(1);
        Bench { cache, seen }
    }

    fn physical_bytes(&self, address: Address) -> u64 {
        self.cache.lookup(address).unwrap().physical_bytes
    }

    fn alloc(&self, bytes: u64) -> Address {
        let address = self.cache.alloc(Request::of_bytes(bytes)).unwrap().address;
        self.seen.handed_out_bytes.fetch_add(self.physical_bytes(address), Ordering::Relaxed);
        address
    }

    fn free(&self, address: Address) {
        self.seen.handed_out_bytes.fetch_sub(self.physical_bytes(address), Ordering::Relaxed);
        // SAFETY: the simulated driver has no memory behind its addresses.
        assert_eq!(unsafe { self.cache.free(FreeRequest::of(address)) }, Freed::Own);
    }

    fn check(&self) {
        assert!(self.seen.calls.load(Ordering::Relaxed) > 0);
        let seen = [&self.seen.gauge_bytes, &self.seen.driver_bytes, &self.seen.walk_bytes]
            .map(|highest| highest.load(Ordering::Relaxed));
        assert!(seen.iter().all(|&bytes| bytes <= CAP_BYTES), "{seen:?} idle within an operation");
        let snapshot = self.cache.snapshot();
        assert!(snapshot.peaks.idle_bytes <= CAP_BYTES, "for a moment");
        for &counter in MUST_BE_ZERO {
            assert_eq!(snapshot.counters[counter], 0, "{counter:?}");
        }
        self.cache.audit().unwrap();
    }
}

#[test]
fn a_block_comes_in_only_when_its_victims_are_gone() {
    let bench = Bench::new();
    let blocks: Vec<Address> = (0..40).map(|_| bench.alloc(4096)).collect();
    blocks.into_iter().for_each(|block| bench.free(block));
    bench.check();
    let snapshot = bench.cache.snapshot();
    assert!(snapshot.counters.evictions() > 0);
    assert!(snapshot.gauges.idle_bytes > CAP_BYTES / 8 * 7 - 4096);
}

#[test]
fn eviction_goes_down_to_seven_eighths_and_large_blocks_go_one_by_one() {
    let bench = Bench::new();
    let small: Vec<Address> = (0..17).map(|_| bench.alloc(4096)).collect();
    small.into_iter().for_each(|block| bench.free(block));
    // 16 blocks fill the cap. The 17th asks for three victims: 14 blocks are seven eighths.
    let snapshot = bench.cache.snapshot();
    assert_eq!((snapshot.counters.evictions(), snapshot.gauges.idle_bytes), (3, 14 * 4096));
    let bench = Bench::new();
    let large: Vec<Address> = (0..4).map(|_| bench.alloc(20 << 10)).collect();
    large.into_iter().for_each(|block| bench.free(block));
    // Three fit; the fourth needs the room of one, though two of 20 KiB alone are below 56 KiB.
    let snapshot = bench.cache.snapshot();
    assert_eq!((snapshot.counters.evictions(), snapshot.gauges.idle_bytes), (1, 3 * (20 << 10)));
    bench.check();
}

#[test]
fn surplus_goes_before_the_working_set_and_the_least_recent_class_first() {
    let bench = Bench::new();
    // A class with surplus, used in every window by one block of four.
    let surplus: Vec<Address> = (0..4).map(|_| bench.alloc(4096)).collect();
    surplus.into_iter().for_each(|block| bench.free(block));
    let touch = |bytes| {
        let address = bench.alloc(bytes);
        bench.free(address);
    };
    touch(1024);
    for _ in 0..24 {
        bench.cache.before_forward(1);
        touch(1024);
        touch(4096);
    }
    // The class of 1 KiB is the least recent one, but all of it is used.
    let incoming: Vec<Address> = (0..6).map(|_| bench.alloc(8192)).collect();
    incoming.into_iter().for_each(|block| bench.free(block));
    bench.check();
    let counters = bench.cache.snapshot().counters;
    assert!(counters[FreeCause::Surplus] > 0);
    assert_eq!(counters[FreeCause::LeastRecent], 0);
    let served = bench.cache.alloc(Request::of_bytes(1024)).unwrap().served;
    assert_eq!(served, Served::Cache, "the working set is still there");
}

#[test]
fn entries_that_nothing_touches_age_out_without_pressure() {
    let bench = Bench::new();
    let blocks: Vec<Address> = (0..4).map(|_| bench.alloc(4096)).collect();
    blocks.into_iter().for_each(|block| bench.free(block));
    // Twice eight windows of eight steps: in the first the four blocks were still being handed out.
    for _ in 0..2 * 64 {
        bench.cache.before_forward(1);
        let touched = bench.alloc(4096);
        bench.free(touched);
    }
    let snapshot = bench.cache.snapshot();
    assert_eq!((snapshot.counters[FreeCause::Aged], snapshot.gauges.idle_bytes), (3, 4096));
    bench.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sizes in any order, far over the cap.
    #[test]
    fn nothing_is_over_the_cap_at_any_driver_call(
        ops in prop::collection::vec((any::<bool>(), 0_usize..1000, 1_u64..40_000), 50..400)
    ) {
        let bench = Bench::new();
        let mut live = vec![];
        for (alloc, which, bytes) in ops {
            if alloc || live.is_empty() {
                // Half of the sizes are alike.
                let bytes = if which % 2 == 0 { 4096 } else { bytes };
                live.push(bench.alloc(bytes));
            } else {
                bench.free(live.swap_remove(which % live.len()));
            }
            if which % 50 == 0 {
                bench.cache.before_forward(1);
            }
        }
        live.into_iter().for_each(|block| bench.free(block));
        bench.check();
    }
}

/// What another thread is giving back to the driver is not idle, and comes on top of the walk.
#[test]
fn threads_do_not_lift_the_cap() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..400_u64 {
                    let blocks: Vec<Address> = (0..8)
                        .map(|i| bench.alloc(1000 + 512 * ((round + i * thread) % 9)))
                        .collect();
                    blocks.into_iter().for_each(|block| bench.free(block));
                }
            });
        }
    });
    let snapshot = bench.cache.snapshot();
    assert!(snapshot.peaks.idle_bytes <= CAP_BYTES);
    assert!(bench.seen.gauge_bytes.load(Ordering::Relaxed) <= CAP_BYTES);
    assert!(snapshot.counters.evictions() > 0);
    bench.cache.audit().unwrap();
}
