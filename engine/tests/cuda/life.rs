//! Threads, forks, and the end of the process.

use candle_core::{DType, Tensor};
use engine::alloc::Config;
use engine::alloc::steps::Monitored as _;
use engine::cuda::{InstallError, install};

use crate::harness::{Expect, cached, driver, driver_calls, scenario, settle};
use crate::ops::{Step, values};

#[test]
fn threads_share_the_cache() {
    scenario("life::threads_share_the_cache", &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let expected = values(&Step::new(&device).run().unwrap());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let step = Step::new(&device);
                    for _ in 0..200 {
                        assert_eq!(values(&step.run().unwrap()), expected);
                    }
                });
            }
        });
        // Four threads hold at most four times what one does.
        assert!(driver_calls().0 < 200, "{:?}", driver_calls());
        settle(allocator);
    });
}

#[test]
fn a_second_installation_is_refused() {
    scenario("life::a_second_installation_is_refused", &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let second = install(&device, Config::default());
        assert!(matches!(second, Err(InstallError::AlreadyInstalled)));
        drop(Step::new(&device).run().unwrap());
        settle(allocator);
    });
}

/// Leaves the cache full and the device open: the process ends over them.
fn end_with_idle_blocks() {
    let (device, allocator) = cached(Config::default());
    drop(Step::new(&device).run().unwrap());
    assert!(allocator.cache().gauges().idle_bytes > 0);
    std::mem::forget(device);
}

#[test]
fn what_is_idle_is_given_back_at_the_end_of_the_process() {
    let name = "life::what_is_idle_is_given_back_at_the_end_of_the_process";
    scenario(name, &[], Expect::Clean, end_with_idle_blocks);
}

#[test]
fn a_block_that_is_freed_after_the_end_is_left_alone() {
    let name = "life::a_block_that_is_freed_after_the_end_is_left_alone";
    scenario(name, &[], Expect::NoViolation, || {
        let (device, allocator) = cached(Config::default());
        let tensor = Tensor::zeros(1024, DType::F32, &device).unwrap();
        allocator.shutdown();
        let calls = driver_calls();
        drop(tensor);
        let after = Tensor::zeros(1024, DType::F32, &device);
        assert!(after.is_err(), "a cache that is closed serves nothing");
        // A request that the cache would only hand on is not handed on either.
        let mut address = 0;
        // SAFETY: the place is valid; nothing is allocated.
        let passed =
            unsafe { cudarc::driver::sys::cuMemAllocAsync(&mut address, 64, std::ptr::null_mut()) };
        assert_eq!(passed, cudarc::driver::sys::CUresult::CUDA_ERROR_DEINITIALIZED);
        assert_eq!(driver_calls(), calls, "the driver was not called");
    });
}

#[test]
fn a_forked_child_leaves_the_driver_alone() {
    scenario("life::a_forked_child_leaves_the_driver_alone", &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let tensor = Tensor::zeros(1024, DType::F32, &device).unwrap();
        let calls = driver_calls();
        // SAFETY: the child only frees through the hooks, asks the stand-in for its counters, and
        // ends without running handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(tensor);
            // Streams that this thread has not used: they must not be looked up either.
            let mut address = 0;
            // SAFETY: the places are valid; nothing is there to be freed.
            unsafe {
                use cudarc::driver::sys;
                for stream in [0x10, 0].map(std::ptr::without_provenance_mut) {
                    let _ = sys::cuMemAllocAsync(&mut address, 64, stream);
                    let _ = sys::cuMemFreeAsync(4096, stream);
                }
                let _ = sys::cuMemAlloc_v2(&mut address, 64);
                let _ = sys::cuMemFree_v2(4096);
                let mut handle = std::ptr::null_mut();
                let stream = std::ptr::without_provenance_mut(0x10);
                let _ = sys::cuStreamEndCapture(stream, &mut handle);
                let mut executable = std::ptr::null_mut();
                let graph = std::ptr::without_provenance_mut(0x10);
                let _ = sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0);
                let mut context = std::ptr::null_mut();
                let retained = sys::cuDevicePrimaryCtxRetain(&mut context, 0);
                assert_eq!(retained, sys::CUresult::CUDA_ERROR_DEINITIALIZED);
            }
            let untouched = driver_calls() == calls && driver("violation") == 0;
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(if untouched { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the place is valid and the child is this process's own.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child called the driver");
        drop(tensor);
        settle(allocator);
    });
}

#[test]
fn the_order_of_the_end_does_not_matter() {
    scenario("life::the_order_of_the_end_does_not_matter", &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let output = step.run().unwrap();
        drop(device);
        drop(step);
        allocator.before_forward(64);
        // The last tensor holds the stream and the context.
        drop(output);
        assert_eq!(driver("context_destroy"), 1);
        assert_eq!(driver("ended_with_context"), 0);
        assert_eq!(allocator.cache().gauges().held_bytes, 0);
        settle(allocator);
    });
}
