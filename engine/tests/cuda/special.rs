//! Streams with a special handle, and captures that get in the way of a question.

use std::ptr;

use candle_core::Device;
use cudarc::driver::result;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use engine::alloc::Config;
use engine::alloc::stats::{Bypass, Counter};
use engine::alloc::steps::Monitored as _;
use engine::cuda::{InstallError, install};

use crate::harness::{Expect, answer_event_queries, driver, driver_calls, scenario, settle};
use crate::ops::Step;
use crate::streams::{alloc_on, free_on, plain};

#[test]
fn a_device_on_the_per_thread_stream_is_not_said_to_be_served() {
    let name = "special::a_device_on_the_per_thread_stream_is_not_said_to_be_served";
    scenario(name, &[], Expect::Clean, || {
        let device = Device::new_cuda(0).unwrap();
        let error = install(&device, Config::default()).unwrap_err();
        assert!(matches!(error, InstallError::SpecialStream), "{error}");
        let before = driver_calls();
        drop(Step::new(&device).run().unwrap());
        let after = driver_calls();
        assert_eq!(after.0 - before.0, after.1 - before.1, "nothing is kept");
    });
}

/// On a special handle an allocation becomes a node of the graph, and so must its free: else the graph
/// leaves memory allocated, and cannot be launched again.
#[test]
fn a_capture_of_the_per_thread_stream_is_left_to_the_driver() {
    let name = "special::a_capture_of_the_per_thread_stream_is_left_to_the_driver";
    scenario(name, &[], Expect::Clean, || {
        let (_context, stream, allocator) = plain();
        let stream = stream.cu_stream();
        free_on(stream, alloc_on(stream, 4096));
        let own = ptr::without_provenance_mut(2);
        let this_thread = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the block is freed once, behind the work on it; each handle is destroyed once.
        unsafe {
            result::stream::begin_capture(own, this_thread).unwrap();
            let block = alloc_on(own, 4096);
            result::memset_d8_async(block, 7, 4096, own).unwrap();
            free_on(own, block);
            let calls = driver_calls();
            free_on(stream, alloc_on(stream, 4096));
            assert_eq!(driver_calls(), calls, "other streams are served meanwhile");
            assert!(!allocator.cache().synchronize(), "nothing waits meanwhile");
            let graph = result::stream::end_capture(own).unwrap();
            let executable =
                result::graph::instantiate(graph, CUgraphInstantiate_flags(0)).unwrap();
            for _ in 0..3 {
                result::graph::launch(executable, own).unwrap();
            }
            result::graph::exec_destroy(executable).unwrap();
            result::graph::destroy(graph).unwrap();
        }
        assert_eq!((driver("alloc_node"), driver("free_node")), (1, 1));
        let counters = allocator.snapshot().counters;
        assert_eq!((counters[Bypass::Stream], counters[Counter::CapturesCommitted]), (1, 0));
        assert!(allocator.cache().synchronize());
        settle(allocator);
    });
}

/// An event that cannot be asked, because a capture is in the way, says nothing of the work before it.
#[test]
fn only_an_event_that_is_done_gives_a_block_free() {
    let name = "special::only_an_event_that_is_done_gives_a_block_free";
    scenario(name, &[], Expect::Clean, || {
        let (context, stream, allocator) = plain();
        let other = context.new_stream().unwrap();
        let stream = stream.cu_stream();
        let address = alloc_on(stream, 4096);
        answer_event_queries(600);
        free_on(other.cu_stream(), address);
        // Not ready; captures that forbid the question, one for each reason; and anything unknown.
        for code in [600, 900, 901, 902, 903, 904, 905, 906, 907, 999] {
            answer_event_queries(code);
            allocator.before_forward(1);
            let meanwhile = alloc_on(stream, 4096);
            assert_ne!(meanwhile, address, "code {code} was taken for done");
            free_on(stream, meanwhile);
        }
        answer_event_queries(0);
        allocator.before_forward(1);
        assert_eq!(alloc_on(stream, 4096), address);
        // A context that is lost runs nothing any more.
        free_on(other.cu_stream(), address);
        answer_event_queries(700);
        allocator.before_forward(1);
        assert_eq!(allocator.cache().gauges().parked_bytes, 0);
        answer_event_queries(0);
        settle(allocator);
    });
}
