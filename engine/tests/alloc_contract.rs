//! One contract over every driver that runs here: simulated, the system allocator, `mmap`.

#[path = "alloc_contract/suite.rs"]
mod suite;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use engine::alloc::driver::DriverStream;
use engine::alloc::driver::host::{HostDriver, HostDriverKind};
use engine::alloc::driver::sim::SimDriver;
use engine::alloc::{Cache, CaptureRefused, Config, FreeRequest, Request, Served};

#[test]
fn the_simulated_driver_keeps_the_contract() {
    suite::run(SimDriver::new);
}

#[test]
fn the_system_allocator_keeps_the_contract() {
    suite::run(|| HostDriver::new(HostDriverKind::System));
}

#[test]
fn mmap_keeps_the_contract() {
    suite::run(|| HostDriver::new(HostDriverKind::Mmap));
}

#[test]
fn a_block_that_another_stream_has_used_waits_for_that_streams_work() {
    let cache: Cache<SimDriver> = Cache::new(SimDriver::new(), Config::default());
    let other = cache.register_stream(DriverStream { device: 0, raw: 7 });
    cache.before_forward(1);
    let used_on_other = cache.alloc(Request::of_bytes(1000)).unwrap().address;
    cache.record_use(used_on_other, other);
    // SAFETY: the simulated driver has no memory behind its addresses.
    unsafe { cache.free(FreeRequest::of(used_on_other)) };
    let freed_on_other = cache.alloc(Request::of_bytes(1000)).unwrap();
    assert_eq!(freed_on_other.served, Served::Driver, "the event is pending");
    let free = FreeRequest { stream: other, ..FreeRequest::of(freed_on_other.address) };
    // SAFETY: as above.
    unsafe { cache.free(free) };
    assert_eq!(cache.gauges().parked_bytes, 2048);
    assert_eq!(cache.alloc(Request::of_bytes(1000)).unwrap().served, Served::Driver);
    cache.driver().complete_events();
    let reused = cache.alloc(Request::of_bytes(1000)).unwrap();
    assert_eq!(reused.served, Served::Cache, "the work is done");
    cache.audit().unwrap();
}

#[test]
fn a_capture_with_a_miss_is_refused_and_leaves_nothing_pinned() {
    let cache: Cache<SimDriver> = Cache::new(SimDriver::new(), Config::default());
    cache.before_forward(1);
    cache.begin_capture().unwrap();
    cache.driver().set_capturing(true);
    let missed = cache.alloc(Request::of_bytes(1000)).unwrap();
    assert_eq!(missed.served, Served::Driver);
    cache.driver().set_capturing(false);
    assert_eq!(cache.commit_capture(), Err(CaptureRefused::Misses { misses: 1 }));
    let gauges = cache.gauges();
    assert_eq!((gauges.pinned_bytes, gauges.pinned_live_bytes), (0, 0));
    // What the driver gave within a window is never kept.
    // SAFETY: the simulated driver has no memory behind its addresses.
    unsafe { cache.free(FreeRequest::of(missed.address)) };
    assert_eq!(cache.gauges().held_bytes, 0);
}

/// A driver's panic goes through the cache's free path: it poisons nothing, and nobody waits for the
/// calls that it has ended.
#[test]
fn a_driver_that_panics_in_a_free_leaves_a_cache_that_works_and_can_be_shut_down() {
    let driver = Arc::new(SimDriver::new());
    let panics = Arc::new(AtomicBool::new(false));
    let seen = panics.clone();
    driver.set_hook(Box::new(move || {
        if seen.load(Ordering::Relaxed) {
            std::panic::resume_unwind(Box::new("the driver panics"));
        }
    }));
    let cache: Cache<Arc<SimDriver>> = Cache::new(driver, Config::default());
    cache.before_forward(1);
    let blocks: Vec<_> =
        (0..3).map(|_| cache.alloc(Request::of_bytes(1000)).unwrap().address).collect();
    // SAFETY: the simulated driver has no memory behind its addresses.
    blocks.iter().for_each(|&block| unsafe {
        cache.free(FreeRequest::of(block));
    });
    panics.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| cache.flush())).is_err());
    panics.store(false, Ordering::Relaxed);
    let again = cache.alloc(Request::of_bytes(1000)).unwrap().address;
    // SAFETY: as above.
    unsafe { cache.free(FreeRequest::of(again)) };
    assert_eq!(cache.alloc(Request::of_bytes(1000)).unwrap().served, Served::Cache);
    cache.audit().unwrap();
    let (done, waits) = mpsc::channel();
    std::thread::spawn(move || {
        cache.shutdown();
        done.send(()).unwrap();
    });
    waits.recv_timeout(Duration::from_secs(20)).expect("the shutdown waits for ever");
}

#[test]
fn the_window_forbids_a_flush_a_drain_and_a_rescue() {
    let cache: Cache<SimDriver> = Cache::new(SimDriver::new(), Config::default());
    cache.before_forward(1);
    let block = cache.alloc(Request::of_bytes(1000)).unwrap().address;
    // SAFETY: the simulated driver has no memory behind its addresses.
    unsafe { cache.free(FreeRequest::of(block)) };
    cache.begin_capture().unwrap();
    cache.driver().set_capturing(true);
    cache.flush();
    cache.before_forward(512);
    cache.driver().fail_next_allocs(1);
    assert!(cache.alloc(Request::of_bytes(5000)).unwrap_err().retry_can_help());
    let gauges = cache.gauges();
    assert_eq!((gauges.idle_bytes, gauges.held_bytes), (1024, 1024));
    let counts = cache.driver().counts();
    assert_eq!((counts.frees, counts.synchronises, counts.trims), (0, 0, 0));
    assert_eq!(counts.faults, Vec::<String>::new());
    cache.driver().set_capturing(false);
    cache.abort_capture();
    // What was put off is done now.
    assert_eq!(cache.gauges().held_bytes, 0);
}
