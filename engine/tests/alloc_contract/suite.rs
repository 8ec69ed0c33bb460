//! The contract that the cache keeps over any driver. A driver joins by being run through it.

use engine::alloc::class::class_of;
use engine::alloc::driver::{Address, AllocError, Driver};
use engine::alloc::policy::{Action, CapRequest, KillSwitch, Prefill};
use engine::alloc::stats::{Bypass, Counter, FreeCause, MUST_BE_ZERO};
use engine::alloc::{Cache, Config, FreeRequest, Freed, Request, Served};

/// Runs the whole contract; `driver` makes a fresh driver for each part.
#[allow(dead_code, reason = "each test program runs one of the two")]
pub(crate) fn run<D: Driver>(driver: impl Fn() -> D) {
    run_up_to_align(8192, driver);
}

/// Runs the whole contract over a driver that gives no larger alignment.
pub(crate) fn run_up_to_align<D: Driver>(align_limit: u64, driver: impl Fn() -> D) {
    every_size_hits_after_its_free(&on(driver()));
    the_block_that_was_freed_last_is_handed_out_first(&on(driver()));
    no_other_class_serves_a_request(&on(driver()));
    blocks_are_distinct_and_aligned(&on(driver()), align_limit);
    empty_requests_make_no_driver_call(&on(driver()));
    sizes_that_cannot_be_are_errors(&on(driver()));
    the_cap_bounds_what_is_idle(&capped(driver(), 64 << 10));
    a_drain_gives_everything_idle_back(&on(driver()));
    a_held_prefill_leaves_decode_its_blocks(&with_prefill(driver(), Prefill::Hold));
    a_served_prefill_keeps_all_but_large_blocks(&with_prefill(driver(), Prefill::On));
    blocks_from_before_the_cache_was_on_stay_exact(&cache(driver(), Config::default()));
    the_kill_switch_passes_everything_through(&cache(
        driver(),
        Config { kill_switch: KillSwitch::Killed, ..Config::default() },
    ));
    a_double_free_does_nothing(&on(driver()));
    nothing_is_freed_after_shutdown(&on(driver()));
    a_captured_graph_keeps_its_blocks(&on(driver()));
    a_block_that_a_window_takes_back_stays_with_its_graph(&on(driver()));
    steady_work_never_reaches_the_driver(&on(driver()));
}

fn cache<D: Driver>(driver: D, config: Config) -> Cache<D> {
    Cache::new(driver, config)
}

fn on<D: Driver>(driver: D) -> Cache<D> {
    let cache = cache(driver, Config::default());
    assert_eq!(cache.before_forward(1), Action::Enable);
    cache
}

fn capped<D: Driver>(driver: D, cap_bytes: u64) -> Cache<D> {
    let config = Config { cap: CapRequest::Bytes(cap_bytes), ..Config::default() };
    let cache = cache(driver, config);
    cache.before_forward(1);
    cache
}

/// Capped at a mebibyte.
fn with_prefill<D: Driver>(driver: D, prefill: Prefill) -> Cache<D> {
    let config = Config { cap: CapRequest::Bytes(1 << 20), prefill, ..Config::default() };
    cache(driver, config)
}

fn alloc<D: Driver>(cache: &Cache<D>, bytes: u64) -> Address {
    cache.alloc(Request::of_bytes(bytes)).unwrap().address
}

fn served<D: Driver>(cache: &Cache<D>, bytes: u64) -> (Address, Served) {
    let allocation = cache.alloc(Request::of_bytes(bytes)).unwrap();
    (allocation.address, allocation.served)
}

fn free<D: Driver>(cache: &Cache<D>, address: Address) -> Freed {
    // SAFETY: the address came from the cache, or the cache knows that it is not handed out; nothing
    // is read or written behind it.
    unsafe { cache.free(FreeRequest::of(address)) }
}

/// Everything adds up, and nothing that must not happen has.
fn settle<D: Driver>(cache: &Cache<D>) {
    cache.audit().unwrap();
    let counters = cache.snapshot().counters;
    for &counter in MUST_BE_ZERO {
        assert_eq!(counters[counter], 0, "{counter:?}");
    }
}

fn every_size_hits_after_its_free<D: Driver>(cache: &Cache<D>) {
    let mut sizes: Vec<u64> = (1..=64 << 10).collect();
    let mut border = 1;
    while border < 4 << 20 {
        border = class_of(border).unwrap().bytes;
        sizes.extend([border - 1, border, border + 1]);
        border += 1;
    }
    for bytes in sizes {
        let first = alloc(cache, bytes);
        free(cache, first);
        assert_eq!(served(cache, bytes), (first, Served::Cache), "{bytes} bytes");
        free(cache, first);
    }
    let counters = cache.snapshot().counters;
    assert_eq!(counters.bypasses(), 0, "no size is refused");
    assert_eq!(counters.driver_frees(), 0);
    settle(cache);
}

fn the_block_that_was_freed_last_is_handed_out_first<D: Driver>(cache: &Cache<D>) {
    let blocks: Vec<Address> = (0..5).map(|_| alloc(cache, 3000)).collect();
    for &block in &blocks {
        free(cache, block);
    }
    for &block in blocks.iter().rev() {
        assert_eq!(served(cache, 3000), (block, Served::Cache));
    }
    for block in blocks {
        free(cache, block);
    }
    settle(cache);
}

fn no_other_class_serves_a_request<D: Driver>(cache: &Cache<D>) {
    let classes = [512, 1024, 3584, 4096, 4608, 5120, 1 << 20, 9 << 17];
    for pair in classes.windows(2) {
        for (idle, asked) in [(pair[1], pair[0]), (pair[0], pair[1])] {
            let block = alloc(cache, idle);
            free(cache, block);
            let (other, from) = served(cache, asked);
            assert_eq!(from, Served::Driver, "{idle} bytes are idle, {asked} were asked for");
            free(cache, other);
            cache.flush();
        }
    }
    settle(cache);
}

fn blocks_are_distinct_and_aligned<D: Driver>(cache: &Cache<D>, align_limit: u64) {
    let mut blocks: Vec<(u64, u64)> = (0..300)
        .map(|i| {
            let align = (1 << (i % 14)).min(align_limit);
            let request = Request { align, ..Request::of_bytes(1 + i * 37) };
            let address = cache.alloc(request).unwrap().address;
            assert_eq!(address.0 % align, 0);
            (address.0, cache.lookup(address).unwrap().physical_bytes)
        })
        .collect();
    blocks.sort_unstable();
    for pair in blocks.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
    }
    for (address, _) in blocks {
        free(cache, Address(address));
    }
    settle(cache);
}

fn empty_requests_make_no_driver_call<D: Driver>(cache: &Cache<D>) {
    assert_eq!(served(cache, 0), (Address::EMPTY, Served::Empty));
    assert_eq!(free(cache, Address::EMPTY), Freed::Empty);
    let counters = cache.snapshot().counters;
    assert_eq!(counters[Bypass::ZeroSize], 1);
    assert_eq!(counters.driver_allocs() + counters.driver_frees(), 0);
    settle(cache);
}

fn sizes_that_cannot_be_are_errors<D: Driver>(cache: &Cache<D>) {
    for bytes in [u64::MAX, u64::MAX - 511, i64::MAX as u64, 1 << 63] {
        let error = cache.alloc(Request::of_bytes(bytes)).unwrap_err();
        assert!(matches!(error, AllocError::RequestTooLarge { .. }), "{error}");
        assert!(!error.retry_can_help());
    }
    let request = Request { align: 1 << 63, ..Request::of_bytes(i64::MAX as u64 - 1) };
    assert!(cache.alloc(request).is_err());
    assert_eq!(cache.snapshot().counters.driver_allocs(), 0);
    settle(cache);
}

fn the_cap_bounds_what_is_idle<D: Driver>(cache: &Cache<D>) {
    let blocks: Vec<Address> = (0..64).map(|i| alloc(cache, 4096 + 512 * (i % 5))).collect();
    for block in blocks {
        free(cache, block);
        assert!(cache.gauges().idle_bytes <= 64 << 10);
    }
    let large = alloc(cache, 1 << 20);
    free(cache, large);
    let snapshot = cache.snapshot();
    assert_eq!(snapshot.counters[Bypass::LargerThanCap], 1);
    assert_eq!(
        snapshot.counters[FreeCause::Unclassed] + snapshot.counters[FreeCause::LargerThanCap],
        1
    );
    assert!(snapshot.peaks.idle_bytes <= 64 << 10);
    assert!(snapshot.counters.evictions() > 0);
    settle(cache);
}

fn a_drain_gives_everything_idle_back<D: Driver>(cache: &Cache<D>) {
    let blocks: Vec<Address> = (1..100).map(|i| alloc(cache, i * 700)).collect();
    let kept = alloc(cache, 5000);
    blocks.into_iter().for_each(|block| assert_eq!(free(cache, block), Freed::Own));
    assert_eq!(cache.before_forward(512), Action::DrainAndDisable);
    let gauges = cache.gauges();
    assert_eq!((gauges.idle_bytes, gauges.held_bytes), (0, gauges.live_bytes));
    assert_eq!(cache.snapshot().counters[FreeCause::Drain], 99);
    // What the drain gave back is missed when decode starts again, and counted as its price.
    assert_eq!(cache.before_forward(1), Action::Enable);
    let again = alloc(cache, 700);
    assert_eq!(cache.snapshot().counters[Counter::RewarmMisses], 1);
    free(cache, again);
    free(cache, kept);
    settle(cache);
}

fn a_held_prefill_leaves_decode_its_blocks<D: Driver>(cache: &Cache<D>) {
    assert_eq!(cache.before_forward(512), Action::Leave, "nothing is held yet");
    assert_eq!(cache.before_forward(1), Action::Enable);
    let blocks: Vec<Address> = (1..20).map(|i| alloc(cache, i * 700)).collect();
    let growing = alloc(cache, 9000);
    blocks.iter().for_each(|&block| assert_eq!(free(cache, block), Freed::Own));
    let idle_bytes = cache.gauges().idle_bytes;
    for _ in 0..3 {
        assert_eq!(cache.before_forward(512), Action::Hold);
        assert_eq!(cache.gauges().idle_bytes, idle_bytes);
        let calls = cache.snapshot().counters.driver_allocs();
        let (once, from) = served(cache, 700);
        assert_eq!(from, Served::Driver, "decode's blocks are not for a prefill");
        assert_eq!(cache.snapshot().counters.driver_allocs(), calls + 1);
        free(cache, once);
        assert_eq!(cache.gauges().idle_bytes, idle_bytes, "what prefill has used is not kept");
    }
    free(cache, growing);
    assert!(cache.gauges().idle_bytes >= idle_bytes + 9000, "a block of decode is, whenever freed");
    assert_eq!(cache.before_forward(1), Action::Enable);
    let again: Vec<(Address, Served)> = (1..20).map(|i| served(cache, i * 700)).collect();
    assert!(again.iter().all(|(_, from)| *from == Served::Cache));
    let counters = cache.snapshot().counters;
    assert_eq!((counters[Counter::Holds], counters[Counter::Drains]), (1, 0));
    assert_eq!((counters[Counter::RewarmMisses], counters[FreeCause::Unclassed]), (0, 3));
    again.into_iter().for_each(|(block, _)| _ = free(cache, block));
    assert!(cache.prime_capture().is_ok(), "decode may be captured again");
    cache.abort_capture();
    settle(cache);
}

fn a_served_prefill_keeps_all_but_large_blocks<D: Driver>(cache: &Cache<D>) {
    assert_eq!(cache.before_forward(512), Action::ServePrefill, "before any decode step");
    let (block, from) = served(cache, 5000);
    assert_eq!(from, Served::Driver);
    free(cache, block);
    assert_eq!(served(cache, 5000), (block, Served::Cache));
    free(cache, block);
    let large = alloc(cache, 200 << 10);
    free(cache, large);
    let counters = cache.snapshot().counters;
    assert_eq!((counters[Bypass::LargePrefill], counters[FreeCause::Unclassed]), (1, 1));
    assert_eq!(cache.before_forward(512), Action::Leave);
    assert!(cache.begin_capture().is_err(), "a prefill is not captured");
    assert_eq!(cache.before_forward(1), Action::Enable);
    assert_eq!(served(cache, 5000), (block, Served::Cache));
    let large = alloc(cache, 200 << 10);
    free(cache, large);
    assert_eq!(served(cache, 200 << 10), (large, Served::Cache), "in decode they are kept");
    free(cache, large);
    free(cache, block);
    assert_eq!(cache.snapshot().counters[Counter::Drains], 0);
    settle(cache);
}

fn blocks_from_before_the_cache_was_on_stay_exact<D: Driver>(cache: &Cache<D>) {
    let (odd, exact) = (alloc(cache, 5000), alloc(cache, 5120));
    assert_eq!(cache.lookup(odd).unwrap().physical_bytes, 5000);
    cache.before_forward(1);
    free(cache, odd);
    free(cache, exact);
    let snapshot = cache.snapshot();
    assert_eq!(snapshot.counters[Bypass::Off], 2);
    assert_eq!(snapshot.counters[FreeCause::Unclassed], 1, "5000 bytes are no class");
    assert_eq!(snapshot.gauges.idle_bytes, 5120, "a block of a class's size is kept");
    assert_eq!(served(cache, 5000), (exact, Served::Cache));
    free(cache, exact);
    settle(cache);
}

fn the_kill_switch_passes_everything_through<D: Driver>(cache: &Cache<D>) {
    assert_eq!(cache.before_forward(1), Action::Leave);
    for bytes in [1, 100, 512, 5000, 1 << 20] {
        let block = alloc(cache, bytes);
        assert_eq!(cache.lookup(block).unwrap().physical_bytes, bytes, "to the byte");
        free(cache, block);
    }
    let counters = cache.snapshot().counters;
    assert_eq!(counters[Bypass::Killed], 5);
    assert_eq!((counters.driver_allocs(), counters.driver_frees()), (5, 5));
    assert!(cache.prime_capture().unwrap_err().to_string().contains("kill switch"));
    assert!(cache.begin_capture().is_err());
    settle(cache);
}

fn a_double_free_does_nothing<D: Driver>(cache: &Cache<D>) {
    let block = alloc(cache, 1000);
    assert_eq!(free(cache, block), Freed::Own);
    assert_eq!(free(cache, block), Freed::Double);
    assert_eq!(served(cache, 1000), (block, Served::Cache));
    assert_ne!(alloc(cache, 1000), block);
    cache.audit().unwrap();
    let counters = cache.snapshot().counters;
    assert_eq!((counters[Counter::DoubleFrees], counters.driver_frees()), (1, 0));
}

fn nothing_is_freed_after_shutdown<D: Driver>(cache: &Cache<D>) {
    let (kept, idle) = (alloc(cache, 1000), alloc(cache, 2000));
    free(cache, idle);
    cache.shutdown();
    let frees = cache.snapshot().counters.driver_frees();
    assert_eq!(frees, 1, "what was idle went back");
    assert_eq!(free(cache, kept), Freed::Ignored);
    assert!(cache.alloc(Request::of_bytes(1)).is_err());
    cache.before_forward(1);
    cache.flush();
    let counters = cache.snapshot().counters;
    assert_eq!((counters.driver_frees(), counters[Counter::FreesAfterClose]), (frees, 1));
    settle(cache);
}

fn a_captured_graph_keeps_its_blocks<D: Driver>(cache: &Cache<D>) {
    let step = || {
        let (a, b) = (alloc(cache, 1000), alloc(cache, 9000));
        free(cache, a);
        let c = alloc(cache, 1000);
        free(cache, b);
        [a, b, c]
    };
    cache.prime_capture().unwrap();
    free(cache, step()[2]);
    cache.begin_capture().unwrap();
    let captured = step();
    assert_ne!(captured[0], captured[2], "a block freed within the window is not handed out again");
    assert_eq!(cache.before_forward(512), Action::DrainAndDisable);
    assert_eq!(cache.snapshot().counters[Counter::DrainsDeferred], 1);
    let token = cache.commit_capture().unwrap();
    // The drain that was put off is done now, and has left the graph's blocks alone.
    let gauges = cache.gauges();
    assert_eq!(gauges.idle_bytes, 0);
    assert_eq!((gauges.pinned_bytes, gauges.pinned_live_bytes), (1024 + 9216, 1024));
    free(cache, captured[2]);
    cache.before_forward(1);
    cache.flush();
    assert_eq!(cache.gauges().pinned_bytes, 2 * 1024 + 9216);
    let fresh = [alloc(cache, 1000), alloc(cache, 9000)];
    assert!(captured.iter().all(|pinned| !fresh.contains(pinned)));
    cache.destroy_graph(token);
    let gauges = cache.gauges();
    assert_eq!((gauges.pinned_bytes, gauges.idle_bytes), (0, 2 * 1024 + 9216));
    fresh.into_iter().for_each(|block| assert_eq!(free(cache, block), Freed::Own));
    settle(cache);
}

fn a_block_that_a_window_takes_back_stays_with_its_graph<D: Driver>(cache: &Cache<D>) {
    // Kernels captured before the free have its address.
    let early = alloc(cache, 3000);
    cache.begin_capture().unwrap();
    free(cache, early);
    let token = cache.commit_capture().unwrap();
    assert_eq!(cache.gauges().pinned_bytes, 3072);
    let other = alloc(cache, 3000);
    assert_ne!(other, early);
    free(cache, other);
    cache.destroy_graph(token);
    assert_eq!(cache.gauges().idle_bytes, 2 * 3072);
    // An abort instead frees it as if there had been no window.
    let again = alloc(cache, 3000);
    cache.begin_capture().unwrap();
    free(cache, again);
    assert_eq!(cache.gauges().parked_bytes, 3072);
    cache.abort_capture();
    let gauges = cache.gauges();
    assert_eq!((gauges.parked_bytes, gauges.pinned_bytes, gauges.idle_bytes), (0, 0, 2 * 3072));
    settle(cache);
}

fn steady_work_never_reaches_the_driver<D: Driver>(cache: &Cache<D>) {
    let step = || {
        cache.before_forward(1);
        for i in 1..200 {
            let (a, b) = (alloc(cache, i * 97), alloc(cache, i * 1031));
            free(cache, a);
            free(cache, b);
        }
    };
    step();
    let warm = cache.snapshot().counters;
    (0..300).for_each(|_| step());
    let delta = cache.snapshot().counters.since(&warm);
    assert_eq!((delta.driver_allocs(), delta.driver_frees(), delta.bypasses()), (0, 0, 0));
    assert_eq!(delta[Counter::Hits], delta[Counter::Requests]);
    settle(cache);
}
