//! Interleavings of several threads in one cache, explored by a scheduler that decides who runs next
//! at every access of the lock and every driver call.

#[path = "../src/alloc/lock/biased.rs"]
mod biased;
#[path = "alloc_interleavings/ground.rs"]
mod ground;

use std::cell::UnsafeCell;
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

/// The lock in ordinary use, over atomics that the scheduler sees.
#[derive(Debug, Default)]
struct ScheduledLock {
    biased: biased::Biased,
    taken: AtomicBool,
}

impl RawLock for ScheduledLock {
    fn lock(&self) {
        self.biased.lock();
        assert!(!self.taken.swap(true, Ordering::SeqCst), "two threads are inside");
    }

    unsafe fn unlock(&self) {
        self.taken.store(false, Ordering::SeqCst);
        // SAFETY: the caller holds the lock.
        unsafe { self.biased.unlock() };
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

/// A count that only the lock protects.
#[derive(Debug, Default)]
struct Counted {
    lock: ScheduledLock,
    count: UnsafeCell<u64>,
}

// SAFETY: the count is reached with the lock held only.
unsafe impl Sync for Counted {}

impl Counted {
    fn add_one(&self) {
        self.lock.lock();
        // SAFETY: the lock is held.
        let before = unsafe { *self.count.get() };
        thread::yield_now();
        // SAFETY: as above.
        unsafe { *self.count.get() = before + 1 };
        // SAFETY: it was taken above.
        unsafe { self.lock.unlock() };
    }
}

#[test]
fn a_lock_with_an_owner_lets_one_thread_in_at_a_time() {
    let scenario = || {
        let counted = Arc::new(Counted::default());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let counted = counted.clone();
                thread::spawn(move || (0..5).for_each(|_| counted.add_one()))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        counted.lock.lock();
        // SAFETY: the lock is held.
        assert_eq!(unsafe { *counted.count.get() }, 15);
    };
    shuttle::check_random(scenario, 4 * ITERATIONS);
    shuttle::check_pct(scenario, 4 * ITERATIONS, 3);
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
