//! What a graph keeps in place though its window neither asked for it nor freed it.

use candle_core::{DType, Tensor};
use engine::alloc::Config;
use engine::cuda::capture::capture;

use crate::harness::{Expect, cached, scenario, settle};
use crate::ops::values;

const VALUES: usize = 4096;

#[test]
fn a_weight_that_is_dropped_after_a_capture_stays_for_the_replay() {
    let name = "pins::a_weight_that_is_dropped_after_a_capture_stays_for_the_replay";
    scenario(name, &[], Expect::Clean, || {
        let (device, allocator) = cached(Config::default());
        let ones = || Tensor::ones(VALUES, DType::F32, &device).unwrap();
        let weight = ones().affine(0.0, 4.0).unwrap();
        let cuda = device.as_cuda_device().unwrap();
        let (graph, output) = capture(cuda, &mut || weight.affine(2.0, 1.0)).unwrap();
        drop(weight);
        // Whoever gets the weight's block writes ones there.
        let others: Vec<Tensor> = (0..4).map(|_| ones()).collect();
        graph.launch().unwrap();
        assert_eq!(values(&output), [9.0; VALUES], "the replay reads what somebody else wrote");
        drop(others);
        drop(graph);
        let gauges = allocator.cache().gauges();
        assert_eq!((gauges.pinned_bytes, gauges.pinned_live_bytes), (0, 0));
        settle(allocator);
    });
}
