//! Interleavings of several threads in one cache, explored by a scheduler that decides who runs next
//! at every lock and every driver call.

use std::collections::HashMap;

use engine::alloc::driver::{Address, Driver, DriverBlock, DriverError, DriverRequest};
use engine::alloc::lock::RawLock;
use engine::alloc::policy::CapRequest;
use engine::alloc::stats::{Counter, MUST_BE_ZERO};
use engine::alloc::{Cache, Config, FreeRequest, Freed, Request};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

const ITERATIONS: usize = 500;
const CAP_BYTES: u64 = 8 << 10;

/// The lock that the scheduler sees: it waits by letting others run.
#[derive(Debug, Default)]
struct ScheduledLock {
    held: AtomicBool,
}

impl RawLock for ScheduledLock {
    fn lock(&self) {
        while self.held.swap(true, Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    unsafe fn unlock(&self) {
        self.held.store(false, Ordering::SeqCst);
    }

    fn relax() {
        thread::yield_now();
    }
}

#[derive(Debug, Default)]
struct Inner {
    blocks: HashMap<u64, u64>,
    vacant: Vec<u64>,
    next_address: u64,
    held_bytes: u64,
    allocs: u64,
    frees: u64,
}

/// A driver that hands freed addresses out again at once and has a capacity.
#[derive(Debug, Default)]
struct ScheduledDriver {
    inner: Mutex<Inner>,
    capacity_bytes: u64,
}

impl Driver for ScheduledDriver {
    fn name(&self) -> &'static str {
        "scheduled"
    }

    fn block_align(&self) -> u64 {
        512
    }

    fn alloc(&self, request: DriverRequest) -> Result<Address, DriverError> {
        let mut inner = self.inner.lock().unwrap();
        if inner.held_bytes + request.bytes > self.capacity_bytes {
            return Err(DriverError::OutOfMemory);
        }
        let address = inner.vacant.pop().unwrap_or_else(|| {
            inner.next_address += 1 << 20;
            inner.next_address
        });
        inner.held_bytes += request.bytes;
        inner.allocs += 1;
        assert!(inner.blocks.insert(address, request.bytes).is_none());
        Ok(Address(address))
    }

    unsafe fn free(&self, block: DriverBlock) -> Result<(), DriverError> {
        let mut inner = self.inner.lock().unwrap();
        let bytes = inner.blocks.remove(&block.address.0).expect("freed once");
        assert_eq!(bytes, block.bytes);
        inner.held_bytes -= bytes;
        inner.frees += 1;
        inner.vacant.push(block.address.0);
        Ok(())
    }
}

type ScheduledCache = Cache<ScheduledDriver, ScheduledLock>;

fn cache(capacity_bytes: u64) -> Arc<ScheduledCache> {
    let config = Config { cap: CapRequest::Bytes(CAP_BYTES), ..Config::default() };
    let driver = ScheduledDriver { capacity_bytes, ..ScheduledDriver::default() };
    let cache = Arc::new(ScheduledCache::new(driver, config));
    cache.before_forward(1);
    cache
}

fn free(cache: &ScheduledCache, address: Address) -> Freed {
    // SAFETY: the driver has no memory behind its addresses.
    unsafe { cache.free(FreeRequest::of(address)) }
}

/// Everything adds up once all threads are done, and nothing that must not happen has.
fn settled(cache: &ScheduledCache) {
    cache.audit().unwrap();
    let snapshot = cache.snapshot();
    for &counter in MUST_BE_ZERO {
        assert_eq!(snapshot.counters[counter], 0, "{counter:?}");
    }
    let inner = cache.driver().inner.lock().unwrap();
    assert_eq!(snapshot.gauges.held_bytes, inner.held_bytes);
    assert_eq!(snapshot.counters.driver_allocs(), inner.allocs);
    assert_eq!(snapshot.counters.driver_frees(), inner.frees);
    assert!(snapshot.peaks.idle_bytes <= CAP_BYTES);
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(scenario, ITERATIONS);
}

#[test]
fn two_threads_over_the_cap_share_the_cache_and_a_third_turns_the_policy() {
    explore(|| {
        let cache = cache(u64::MAX);
        let owned = Arc::new(Mutex::new(HashMap::new()));
        let workers: Vec<_> = (0..2_u64)
            .map(|worker| {
                let (cache, owned) = (cache.clone(), owned.clone());
                thread::spawn(move || {
                    for round in 0..6 {
                        let bytes = 1024 * (1 + (worker + round) % 4);
                        let a = cache.alloc(Request::of_bytes(bytes)).unwrap().address;
                        let b = cache.alloc(Request::of_bytes(3000)).unwrap().address;
                        for address in [a, b] {
                            let other = owned.lock().unwrap().insert(address, worker);
                            assert_eq!(other, None, "handed out twice");
                        }
                        for address in [a, b] {
                            owned.lock().unwrap().remove(&address);
                            assert_eq!(free(&cache, address), Freed::Own);
                        }
                        assert!(cache.gauges().idle_bytes <= CAP_BYTES);
                    }
                })
            })
            .collect();
        cache.before_forward(64);
        cache.before_forward(1);
        cache.flush();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        settled(&cache);
    });
}

#[test]
fn a_request_that_memory_suffices_for_is_rescued_whoever_holds_the_victims() {
    explore(|| {
        // Two threads hold at most 4 KiB each, and idle blocks fill the rest.
        let cache = cache(8 << 10);
        let workers: Vec<_> = (0..2_u64)
            .map(|worker| {
                let cache = cache.clone();
                thread::spawn(move || {
                    for round in 0..4 {
                        let bytes = 512 * (1 + (worker * 3 + round * 5) % 8);
                        // While the other thread's retry is under way its memory may be taken by
                        // this one, so that an error is allowed, but never a wrong count.
                        if let Ok(allocation) = cache.alloc(Request::of_bytes(bytes)) {
                            free(&cache, allocation.address);
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let counters = cache.snapshot().counters;
        assert_eq!(
            counters[Counter::OomRetries],
            counters[Counter::OomRescues] + counters[Counter::AllocFailures],
        );
        settled(&cache);
        cache.flush();
        assert!(cache.alloc(Request::of_bytes(8 << 10)).is_ok());
    });
}

#[test]
fn a_capture_on_one_thread_frees_nothing_while_another_thread_frees() {
    explore(|| {
        let cache = cache(u64::MAX);
        let blocks: Vec<Address> =
            (0..4).map(|_| cache.alloc(Request::of_bytes(4096)).unwrap().address).collect();
        let freer = {
            let cache = cache.clone();
            thread::spawn(move || {
                for address in blocks {
                    assert_eq!(free(&cache, address), Freed::Own);
                }
                cache.flush();
            })
        };
        if cache.begin_capture().is_ok() {
            let frees = cache.driver().inner.lock().unwrap().frees;
            let served = cache.alloc(Request::of_bytes(4096));
            if let Ok(allocation) = served {
                free(&cache, allocation.address);
            }
            assert_eq!(cache.driver().inner.lock().unwrap().frees, frees);
            match cache.commit_capture() {
                Ok(token) => cache.destroy_graph(token),
                Err(refused) => assert!(refused.to_string().contains("missed"), "{refused}"),
            }
        }
        freer.join().unwrap();
        settled(&cache);
    });
}
