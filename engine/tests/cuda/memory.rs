//! What the driver is asked for, and what happens when it has no more.

use candle_core::{DType, Device, Tensor};
use engine::alloc::Config;
use engine::alloc::driver::AllocError;
use engine::alloc::policy::CapRequest;
use engine::alloc::stats::{Bypass, Counter};
use engine::alloc::steps::Monitored as _;
use engine::cuda::last_failure;

use crate::harness::{
    Expect, cached, driver, driver_calls, installed, killed, refuse_allocs, scenario, set_capacity,
    set_sticky_errors, settle,
};
use crate::ops::{Step, values};

const NO_POOLS: &[(&str, &str)] = &[("ARC_STANDIN_POOLS", "0")];

fn tensor(device: &Device, bytes: usize) -> candle_core::Result<Tensor> {
    Tensor::zeros(bytes / 4, DType::F32, device)
}

/// Steps that repeat reach the driver once.
fn steady_work_stays_in_the_cache() {
    let (device, allocator) = cached(Config::default());
    let step = Step::new(&device);
    let expected = values(&step.run().unwrap());
    let warm = driver_calls();
    let hits = allocator.snapshot().counters[Counter::Hits];
    for _ in 0..100 {
        allocator.before_forward(1);
        assert_eq!(values(&step.run().unwrap()), expected);
    }
    assert_eq!(driver_calls(), warm, "the driver was not called");
    assert!(allocator.snapshot().counters[Counter::Hits] > hits + 600);
    settle(allocator);
}

#[test]
fn steady_work_stays_in_the_cache_with_pools() {
    let name = "memory::steady_work_stays_in_the_cache_with_pools";
    scenario(name, &[], Expect::Clean, steady_work_stays_in_the_cache);
}

#[test]
fn steady_work_stays_in_the_cache_without_pools() {
    let name = "memory::steady_work_stays_in_the_cache_without_pools";
    scenario(name, NO_POOLS, Expect::Clean, || {
        steady_work_stays_in_the_cache();
        assert_eq!(driver("alloc_async"), 0, "a device without pools is never asked for one");
    });
}

/// Allocations and frees of ten steps, as the driver counts them.
fn count_ten_steps(device: &Device) -> (u64, u64) {
    let step = Step::new(device);
    drop(step.run().unwrap());
    let before = driver_calls();
    for _ in 0..10 {
        drop(step.run().unwrap());
    }
    let after = driver_calls();
    (after.0 - before.0, after.1 - before.1)
}

/// Counted by `engine/tests/cuda_plain.rs`, which has candle and cudarc alone.
const PLAIN_TEN_STEPS: (u64, u64) = (90, 90);

#[test]
fn the_kill_switch_gives_the_calls_of_unmodified_candle() {
    let name = "memory::the_kill_switch_gives_the_calls_of_unmodified_candle";
    scenario(name, &[], Expect::Clean, || {
        let (device, allocator) = installed(killed());
        allocator.before_forward(1);
        assert_eq!(count_ten_steps(&device), PLAIN_TEN_STEPS);
        let counters = allocator.snapshot().counters;
        assert_eq!(counters[Counter::Requests], counters.bypasses());
        settle(allocator);
    });
}

#[test]
fn hooks_without_a_cache_pass_everything_on() {
    let name = "memory::hooks_without_a_cache_pass_everything_on";
    scenario(name, &[], Expect::Clean, || {
        let device = engine::cuda::open_device(0).unwrap();
        assert_eq!(count_ten_steps(&device), PLAIN_TEN_STEPS);
    });
}

#[test]
fn prefill_drains_and_passes_by() {
    scenario("memory::prefill_drains_and_passes_by", &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        drop(step.run().unwrap());
        assert!(allocator.cache().gauges().idle_bytes > 0);
        allocator.before_forward(512);
        assert_eq!(allocator.cache().gauges().idle_bytes, 0);
        let before = driver_calls();
        drop(step.run().unwrap());
        let after = driver_calls();
        assert_eq!(after.0 - before.0, after.1 - before.1, "what is off is freed at once");
        assert!(after.0 > before.0);
        settle(allocator);
    });
}

#[test]
fn the_cap_holds_on_the_device() {
    scenario("memory::the_cap_holds_on_the_device", &[], Expect::Clean, || {
        let cap_bytes = 1 << 20;
        let config = Config { cap: CapRequest::Bytes(cap_bytes), ..Config::default() };
        let (device, allocator) = cached(config);
        for round in 0..200 {
            let tensors: Vec<Tensor> =
                (1..20).map(|i| tensor(&device, 4096 * (i + round % 7)).unwrap()).collect();
            drop(tensors);
            let gauges = allocator.cache().gauges();
            assert!(gauges.idle_bytes <= cap_bytes, "{gauges:?}");
            assert_eq!(driver("live_bytes"), gauges.held_bytes);
        }
        let before = driver_calls();
        drop(tensor(&device, 2 << 20).unwrap());
        let after = driver_calls();
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "larger than the cap");
        let counters = allocator.snapshot().counters;
        assert_eq!(counters[Bypass::LargerThanCap], 1);
        assert!(counters.evictions() > 0);
        settle(allocator);
    });
}

#[test]
fn an_unbounded_cache_keeps_everything() {
    scenario("memory::an_unbounded_cache_keeps_everything", &[], Expect::Clean, || {
        let config = Config { cap: CapRequest::Unbounded, ..Config::default() };
        let (device, allocator) = cached(config);
        let frees = driver_calls().1;
        let idle_bytes = allocator.cache().gauges().idle_bytes;
        // The last one is larger than the default cap's share of this device.
        let sizes: Vec<usize> = (12..30).map(|log2| 1 << log2).collect();
        for &bytes in &sizes {
            drop(tensor(&device, bytes).unwrap());
        }
        assert_eq!(driver_calls().1, frees);
        let kept = allocator.cache().gauges().idle_bytes - idle_bytes;
        assert_eq!(kept, sizes.iter().sum::<usize>() as u64);
        settle(allocator);
    });
}

#[test]
fn out_of_memory_gives_idle_blocks_back_and_tries_again() {
    let name = "memory::out_of_memory_gives_idle_blocks_back_and_tries_again";
    scenario(name, &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let kept = tensor(&device, 1 << 20).unwrap();
        drop((0..8).map(|_| tensor(&device, 8 << 20).unwrap()).collect::<Vec<_>>());
        let idle_bytes = allocator.cache().gauges().idle_bytes;
        assert!(idle_bytes >= 64 << 20);
        // What is free is not enough, what is idle makes it so.
        set_capacity(driver("live_bytes") + driver("reserved_bytes") + (16 << 20));
        set_sticky_errors(true);
        let large = tensor(&device, 70 << 20).unwrap();
        let counters = allocator.snapshot().counters;
        assert_eq!((counters[Counter::OomRetries], counters[Counter::OomRescues]), (1, 1));
        assert_eq!(allocator.cache().gauges().idle_bytes, 0);
        assert!(driver("pool_trim") > 0);
        // The refusal that was dealt with is not anybody's error later.
        device.synchronize().unwrap();
        drop((kept, large));
        settle(allocator);
    });
}

#[test]
fn a_refusal_that_stays_is_an_error_with_its_figures() {
    let name = "memory::a_refusal_that_stays_is_an_error_with_its_figures";
    scenario(name, &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let kept = tensor(&device, 32 << 20).unwrap();
        drop(tensor(&device, 4 << 20).unwrap());
        set_capacity(driver("live_bytes") + driver("reserved_bytes"));
        let error = tensor(&device, 64 << 20).unwrap_err().to_string();
        assert!(error.contains("OUT_OF_MEMORY"), "{error}");
        let Some(AllocError::OutOfMemory { requested_bytes, holdings }) = last_failure() else {
            panic!("{:?}", last_failure());
        };
        assert_eq!(requested_bytes, 64 << 20);
        assert_eq!((holdings.live_bytes, holdings.idle_bytes), (32 << 20, 0));
        // The device works on, and what was given back can be had again.
        drop(tensor(&device, 4 << 20).unwrap());
        drop(kept);
        drop(tensor(&device, 32 << 20).unwrap());
        settle(allocator);
    });
}

#[test]
fn a_refused_request_without_idle_blocks_is_retried_once() {
    let name = "memory::a_refused_request_without_idle_blocks_is_retried_once";
    scenario(name, NO_POOLS, Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        refuse_allocs(1);
        drop(tensor(&device, 4096).unwrap());
        refuse_allocs(2);
        assert!(tensor(&device, 1 << 20).is_err());
        let counters = allocator.snapshot().counters;
        assert_eq!((counters[Counter::OomRetries], counters[Counter::OomRescues]), (2, 1));
        settle(allocator);
    });
}

#[test]
fn blocks_of_others_and_double_frees_are_told_apart() {
    let name = "memory::blocks_of_others_and_double_frees_are_told_apart";
    scenario(name, &[], Expect::NoViolation, || {
        use cudarc::driver::sys;
        let device = engine::cuda::open_device(0).unwrap();
        let stream = device.as_cuda_device().unwrap().cuda_stream().cu_stream();
        let mut before_install = 0;
        // SAFETY: the place is valid.
        unsafe { sys::cuMemAllocAsync(&mut before_install, 4096, stream).result().unwrap() };
        let allocator = engine::cuda::install(&device, Config::default()).unwrap();
        allocator.before_forward(1);
        let mut own = 0;
        let mut empty = 1;
        // SAFETY: the places are valid; each block is given up by its free, and the last free is of
        // one that is not handed out, which is what is asked about.
        unsafe {
            sys::cuMemFreeAsync(before_install, stream).result().unwrap();
            sys::cuMemAllocAsync(&mut own, 4096, stream).result().unwrap();
            sys::cuMemFreeAsync(own, stream).result().unwrap();
            let again = sys::cuMemFreeAsync(own, stream);
            assert_eq!(again, sys::CUresult::CUDA_ERROR_INVALID_VALUE);
            let calls = driver_calls();
            sys::cuMemAllocAsync(&mut empty, 0, stream).result().unwrap();
            sys::cuMemFreeAsync(empty, stream).result().unwrap();
            assert_eq!(driver_calls(), calls, "nothing was asked for");
            let too_large = sys::cuMemAllocAsync(&mut empty, usize::MAX - 100, stream);
            assert_eq!(too_large, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            assert_eq!(driver_calls(), calls, "no block can be that large");
        }
        let counters = allocator.snapshot().counters;
        assert_eq!(counters[Counter::ForeignFrees], 1);
        assert_eq!(counters[Counter::DoubleFrees], 1);
        assert_eq!(counters[Bypass::TooLarge], 1);
        assert_eq!(driver("violation"), 0, "the driver never saw the double free");
    });
}
