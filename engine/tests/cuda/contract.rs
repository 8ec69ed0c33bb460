//! The contract that the cache keeps over every driver, over this one.

#[path = "../alloc_contract/suite.rs"]
mod suite;

use engine::cuda::{CudaDriver, open_device};

use crate::harness::{Expect, scenario};

#[test]
fn the_cuda_driver_keeps_the_contract() {
    scenario("contract::the_cuda_driver_keeps_the_contract", &[], Expect::Clean, || {
        let _device = open_device(0).unwrap();
        suite::run_up_to_align(256, || CudaDriver);
    });
}
