//! Graph capture: pins, replay, refusal, and giving up at every step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use candle_core::{CudaDevice, DType, Device, Tensor};
use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use engine::alloc::policy::Action;
use engine::alloc::stats::Counter;
use engine::alloc::steps::Monitored as _;
use engine::alloc::{CaptureRefused, Config};
use engine::cuda::CudaAllocator;
use engine::cuda::capture::{CaptureError, capture};

use crate::harness::{Expect, cached, driver, driver_calls, installed, killed, scenario, settle};
use crate::ops::{Step, values};

const THIS_THREAD: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

fn cuda(device: &Device) -> &CudaDevice {
    device.as_cuda_device().unwrap()
}

/// What candle has uploaded for the two strided operations of a step, and keeps in a static.
const UPLOADS: Expect = Expect::Held { blocks: 2 };

fn stream_of(device: &Device) -> Arc<CudaStream> {
    cuda(device).cuda_stream()
}

/// Runs a step for a capture that follows. What candle uploads for its own kernels is kept from here
/// on, and looked up for as long as what this returns is there.
fn rehearse(device: &Device, allocator: &CudaAllocator, step: &Step) -> impl Sized + use<> {
    let uploads = cuda(device).enable_cuda_graph_htod_cache();
    allocator.cache().prime_capture().unwrap();
    drop(step.run().unwrap());
    uploads
}

/// Nothing of a capture is left: no pin, no parked block, and the next step hits.
fn assert_as_before(allocator: &CudaAllocator, step: &Step, expected: &[f32]) {
    let gauges = allocator.cache().gauges();
    assert_eq!((gauges.pinned_bytes, gauges.pinned_live_bytes, gauges.parked_bytes), (0, 0, 0));
    let calls = driver_calls();
    assert_eq!(values(&step.run().unwrap()), expected);
    assert_eq!(driver_calls(), calls, "the cache is as it was before");
    assert_eq!((driver("alloc_in_capture"), driver("free_in_capture")), (0, 0));
    settle(allocator);
}

#[test]
fn a_captured_step_replays_what_eager_work_gives() {
    let name = "capture::a_captured_step_replays_what_eager_work_gives";
    scenario(name, &[], UPLOADS, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let expected = values(&step.run().unwrap());
        let frees = driver_calls().1;
        let (graph, output) = capture(cuda(&device), &mut || step.run()).unwrap();
        assert_eq!(driver_calls().1, frees, "nothing is freed in a capture");
        let gauges = allocator.cache().gauges();
        assert!(gauges.pinned_bytes + gauges.pinned_live_bytes > 0);
        graph.launch().unwrap();
        assert_eq!(values(&output), expected);
        // Eager work of every size in between must not get what the graph has baked in.
        for kib in 1..200 {
            drop(Tensor::ones(kib * 256, DType::F32, &device).unwrap());
            drop(step.run().unwrap());
        }
        allocator.before_forward(64);
        allocator.before_forward(1);
        for value in [0.25, -3.0] {
            step.set_input(value);
            graph.launch().unwrap();
            let replayed = values(&output);
            assert_eq!(replayed, values(&step.run().unwrap()), "input {value}");
        }
        assert_eq!(driver("graph_launch"), 3);
        let pinned = allocator.cache().gauges();
        assert_eq!(
            pinned.pinned_bytes + pinned.pinned_live_bytes,
            gauges.pinned_bytes + gauges.pinned_live_bytes,
            "the pins last"
        );
        drop(graph);
        let gauges = allocator.cache().gauges();
        assert_eq!((gauges.pinned_bytes, gauges.pinned_live_bytes), (0, 0));
        drop(output);
        settle(allocator);
    });
}

#[test]
fn pins_last_until_the_graph_and_all_made_from_it_are_gone() {
    let name = "capture::pins_last_until_the_graph_and_all_made_from_it_are_gone";
    scenario(name, &[], UPLOADS, || {
        use cudarc::driver::result;
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let _uploads = rehearse(&device, allocator, &step);
        let stream = stream_of(&device);
        stream.begin_capture(THIS_THREAD).unwrap();
        drop(step.run().unwrap());
        let pinned = || allocator.cache().gauges().pinned_bytes;
        // SAFETY: the graph is this capture's, each handle is destroyed once and not used after.
        unsafe {
            let graph = result::stream::end_capture(stream.cu_stream()).unwrap();
            let instantiate =
                || result::graph::instantiate(graph, CUgraphInstantiate_flags(0)).unwrap();
            let (first, second) = (instantiate(), instantiate());
            assert!(pinned() > 0);
            result::graph::exec_destroy(first).unwrap();
            result::graph::exec_destroy(second).unwrap();
            assert!(pinned() > 0, "the graph can be instantiated once more");
            let third = instantiate();
            result::graph::destroy(graph).unwrap();
            assert!(pinned() > 0, "what was made from it can still be launched");
            result::graph::launch(third, stream.cu_stream()).unwrap();
            result::graph::exec_destroy(third).unwrap();
        }
        assert_eq!(pinned(), 0);
        settle(allocator);
    });
}

#[test]
fn without_a_rehearsal_a_capture_that_misses_is_refused() {
    let name = "capture::without_a_rehearsal_a_capture_that_misses_is_refused";
    scenario(name, &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let expected = values(&step.run().unwrap());
        let stream = stream_of(&device);
        let kept = Tensor::zeros(100, DType::F32, &device).unwrap();
        stream.begin_capture(THIS_THREAD).unwrap();
        // A size that nothing has asked for before: it comes from beside the capture.
        let missed = Tensor::ones(12_345, DType::F32, &device).unwrap();
        drop(kept);
        let ended = stream.end_capture(CUgraphInstantiate_flags(0));
        assert!(ended.is_err(), "a graph that used unpinned memory must not be launched");
        drop(missed);
        let counters = allocator.snapshot().counters;
        assert_eq!(counters[Counter::CaptureMisses], 1);
        assert_eq!(counters[Counter::CapturesRefused], 1);
        assert_eq!(driver("graph_instantiate"), 0);
        assert_as_before(allocator, &step, &expected);
    });
}

#[test]
fn giving_up_at_any_step_restores_the_state_before() {
    let name = "capture::giving_up_at_any_step_restores_the_state_before";
    scenario(name, &[], UPLOADS, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let expected = values(&step.run().unwrap());
        // Before the first operation and after each, in the rehearsal and in the capture.
        let operations = 4;
        for fail_at in 0..2 * (operations + 1) {
            let (fail_pass, fail_operation) =
                (fail_at / (operations + 1), fail_at % (operations + 1));
            let mut pass = 0;
            let result = capture(cuda(&device), &mut || {
                let mut kept = vec![];
                for operation in 0..=operations {
                    if (pass, operation) == (fail_pass, fail_operation) {
                        candle_core::bail!("operation {operation} of pass {pass} fails");
                    }
                    kept.push(step.run()?);
                }
                pass += 1;
                Ok(kept)
            });
            assert!(matches!(result, Err(CaptureError::Step(_))), "{fail_at}");
            drop(result);
            let gauges = allocator.cache().gauges();
            assert_eq!(
                (gauges.pinned_bytes, gauges.pinned_live_bytes, gauges.parked_bytes),
                (0, 0, 0),
                "{fail_at}"
            );
            assert_eq!(values(&step.run().unwrap()), expected, "{fail_at}");
            settle(allocator);
        }
        assert_as_before(allocator, &step, &expected);
    });
}

#[test]
fn a_capture_that_the_driver_refuses_leaves_no_window_open() {
    let name = "capture::a_capture_that_the_driver_refuses_leaves_no_window_open";
    scenario(name, &[], UPLOADS, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let expected = values(&step.run().unwrap());
        let stream = stream_of(&device);
        // The null stream cannot be captured.
        // SAFETY: the driver refuses.
        let refused = unsafe {
            cudarc::driver::sys::cuStreamBeginCapture_v2(std::ptr::null_mut(), THIS_THREAD)
        };
        assert_ne!(refused, cudarc::driver::sys::CUresult::CUDA_SUCCESS);
        assert_as_before(allocator, &step, &expected);
        let _uploads = rehearse(&device, allocator, &step);
        // A second capture while one is going on, on this stream and on another.
        stream.begin_capture(THIS_THREAD).unwrap();
        assert!(stream.begin_capture(THIS_THREAD).is_err());
        let other = stream.context().new_stream().unwrap();
        assert!(other.begin_capture(THIS_THREAD).is_err(), "the cache has one window");
        drop(step.run().unwrap());
        drop(stream.end_capture(CUgraphInstantiate_flags(0)).unwrap());
        assert_as_before(allocator, &step, &expected);
    });
}

#[test]
fn a_drain_within_a_capture_waits_for_its_end() {
    let name = "capture::a_drain_within_a_capture_waits_for_its_end";
    scenario(name, &[], UPLOADS, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let _uploads = rehearse(&device, allocator, &step);
        let stream = stream_of(&device);
        stream.begin_capture(THIS_THREAD).unwrap();
        drop(step.run().unwrap());
        let frees = driver_calls().1;
        allocator.before_forward(512);
        allocator.cache().flush();
        assert_eq!(driver_calls().1, frees);
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        assert_eq!(allocator.snapshot().counters[Counter::DrainsDeferred], 1);
        let gauges = allocator.cache().gauges();
        assert_eq!(gauges.idle_bytes, 0, "the drain was done at the end");
        assert!(gauges.pinned_bytes > 0, "and the graph kept its blocks");
        graph.launch().unwrap();
        drop(graph);
        settle(allocator);
    });
}

#[test]
fn a_step_that_panics_leaves_no_capture_behind() {
    let name = "capture::a_step_that_panics_leaves_no_capture_behind";
    scenario(name, &[], UPLOADS, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let expected = values(&step.run().unwrap());
        for panicking_pass in 0..2 {
            let mut pass = 0;
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                drop(capture(cuda(&device), &mut || {
                    let output = step.run()?;
                    if pass == panicking_pass {
                        std::panic::resume_unwind(Box::new("within the step"));
                    }
                    pass += 1;
                    Ok(output)
                }));
            }));
            assert!(panicked.is_err());
            // What candle has uploaded, and keeps, came out of the cache.
            drop(step.run().unwrap());
            assert_as_before(allocator, &step, &expected);
        }
        drop(capture(cuda(&device), &mut || step.run()).unwrap());
        assert_as_before(allocator, &step, &expected);
    });
}

#[test]
fn a_captured_stream_that_is_destroyed_takes_its_window_with_it() {
    let name = "capture::a_captured_stream_that_is_destroyed_takes_its_window_with_it";
    scenario(name, &[], UPLOADS, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let expected = values(&step.run().unwrap());
        let other = stream_of(&device).context().new_stream().unwrap();
        other.begin_capture(THIS_THREAD).unwrap();
        drop(other);
        assert_as_before(allocator, &step, &expected);
        drop(capture(cuda(&device), &mut || step.run()).unwrap());
        drop(step.run().unwrap());
        assert_as_before(allocator, &step, &expected);
    });
}

#[test]
fn what_is_given_up_within_a_capture_is_waited_for_at_its_end() {
    let name = "capture::what_is_given_up_within_a_capture_is_waited_for_at_its_end";
    scenario(name, &[], UPLOADS, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let (earlier, output) = capture(cuda(&device), &mut || step.run()).unwrap();
        drop(output);
        let stream = stream_of(&device);
        let other = stream.context().new_stream().unwrap();
        // SAFETY: the block is zeroed by the driver and given up below.
        let block = unsafe { other.alloc::<u8>(1 << 20) }.unwrap();
        let _uploads = rehearse(&device, allocator, &step);
        stream.begin_capture(THIS_THREAD).unwrap();
        drop(step.run().unwrap());
        let waits = driver("context_sync");
        // Each of these needs the device to be done, and nothing may wait within a capture.
        drop(block);
        drop(other);
        drop(earlier);
        assert_eq!(driver("context_sync"), waits);
        let pinned = || allocator.cache().gauges().pinned_bytes;
        assert!(pinned() > 0);
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        assert!(driver("context_sync") > waits);
        assert!(pinned() > 0, "the new graph's blocks");
        drop(graph);
        assert_eq!(pinned(), 0, "and none of the earlier one's");
        settle(allocator);
    });
}

#[test]
fn memory_freed_without_a_stream_within_a_capture_is_waited_for_at_its_end() {
    let name = "capture::memory_freed_without_a_stream_within_a_capture_is_waited_for_at_its_end";
    scenario(name, &[], Expect::Clean, || {
        use cudarc::driver::result;
        let (device, allocator) = cached(Config::default());
        let stream = stream_of(&device);
        // SAFETY: the block is given up within the capture and not used.
        let block = unsafe { result::malloc_async(stream.cu_stream(), 1 << 20) }.unwrap();
        stream.begin_capture(THIS_THREAD).unwrap();
        let waits = driver("context_sync");
        // SAFETY: as above.
        unsafe { result::free_sync(block) }.unwrap();
        assert_eq!(driver("context_sync"), waits);
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap();
        assert_eq!(driver("context_sync"), waits + 1);
        drop(graph);
        settle(allocator);
    });
}

#[test]
fn the_cache_stays_off_under_a_capture_that_began_without_it() {
    let name = "capture::the_cache_stays_off_under_a_capture_that_began_without_it";
    scenario(name, &[], Expect::Clean, || {
        let (device, allocator) = installed(Config::default());
        let stream = stream_of(&device);
        stream.begin_capture(THIS_THREAD).unwrap();
        assert_eq!(allocator.before_forward(1), Action::Leave);
        drop(stream.end_capture(CUgraphInstantiate_flags(0)).unwrap());
        assert_eq!(allocator.before_forward(1), Action::Enable);
        settle(allocator);
    });
}

#[test]
fn the_kill_switch_refuses_a_capture_with_its_reason() {
    let name = "capture::the_kill_switch_refuses_a_capture_with_its_reason";
    scenario(name, &[], Expect::Clean, || {
        let (device, allocator) = installed(killed());
        let step = Step::new(&device);
        let refused = capture(cuda(&device), &mut || step.run().map(drop));
        assert!(matches!(refused, Err(CaptureError::Refused(CaptureRefused::Killed))));
        settle(allocator);
    });
}

#[test]
fn a_capture_with_the_cache_off_is_refused() {
    scenario("capture::a_capture_with_the_cache_off_is_refused", &[], Expect::Clean, || {
        let (device, allocator) = installed(Config::default());
        let step = Step::new(&device);
        let refused = capture(cuda(&device), &mut || step.run().map(drop));
        assert!(matches!(refused, Err(CaptureError::Refused(CaptureRefused::CacheOff))));
        settle(allocator);
    });
}

#[test]
fn copies_to_and_from_the_host_stop_a_capture() {
    let name = "capture::copies_to_and_from_the_host_stop_a_capture";
    scenario(name, &[], UPLOADS, || {
        let (device, allocator) = cached(Config::default());
        let step = Step::new(&device);
        let expected = values(&step.run().unwrap());
        let result = capture(cuda(&device), &mut || {
            let logits = step.run()?;
            logits.flatten_all()?.to_vec1::<f32>().map(drop)
        });
        let Err(CaptureError::Step(error)) = result else { panic!("captured a read") };
        assert!(error.to_string().contains("during CUDA graph capture"), "{error}");
        let gauges = allocator.cache().gauges();
        assert_eq!((gauges.pinned_bytes, gauges.parked_bytes), (0, 0));
        assert_eq!(values(&step.run().unwrap()), expected);
    });
}
