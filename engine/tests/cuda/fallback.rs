//! Hooks that are not reached, and what takes their place.

use std::ffi::{c_int, c_void};

use candle_core::{DType, Tensor};
use engine::alloc::Config;
use engine::alloc::policy::{Action, CapRequest};
use engine::alloc::steps::Monitored as _;
use engine::cuda::pool::DriverPool;
use engine::cuda::{InstallError, install_and_check, open_device};

use crate::harness::{Expect, driver, driver_calls, killed, scenario, symbol};
use crate::ops::Step;

/// Allocates and frees as a program does whose calls are bound to the driver itself.
fn past_the_hooks() -> candle_core::Result<()> {
    type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
    type Free = unsafe extern "C" fn(u64) -> c_int;
    let mut address = 0;
    // SAFETY: the driver's functions have these types; the place is valid, the block given up.
    unsafe {
        let alloc = std::mem::transmute::<*mut c_void, Alloc>(symbol(c"cuMemAlloc_v2"));
        let free = std::mem::transmute::<*mut c_void, Free>(symbol(c"cuMemFree_v2"));
        assert_eq!(alloc(&mut address, 4096), 0);
        assert_eq!(free(address), 0);
    }
    Ok(())
}

/// Functions that the program defines and that the stand-in libraries do not have.
#[allow(non_snake_case)]
mod missing {
    use std::ffi::c_int;

    unsafe extern "C" {
        pub(super) fn cublasDasum_v2() -> c_int;
        pub(super) fn cublasLtMatmul() -> c_int;
        pub(super) fn curandGenerateLongLong() -> c_int;
        pub(super) fn nvrtcGetPTX() -> c_int;
    }
}

/// A caller takes the number for a value of the library's enumeration: one that is none is undefined
/// behaviour there.
#[test]
fn a_function_that_is_missing_returns_an_error_of_its_own_library() {
    // SAFETY: nothing of these names is found, and what stands for it reads no argument.
    let codes = unsafe {
        [
            missing::cublasDasum_v2(),
            missing::cublasLtMatmul(),
            missing::curandGenerateLongLong(),
            missing::nvrtcGetPTX(),
        ]
    };
    // `CUBLAS_STATUS_NOT_INITIALIZED`, twice, `CURAND_STATUS_NOT_INITIALIZED`, and
    // `NVRTC_ERROR_INTERNAL_ERROR`, by the headers' numbers.
    assert_eq!(codes, [1, 1, 101, 11]);
}

#[test]
fn hooks_that_are_not_reached_are_found_out() {
    scenario("fallback::hooks_that_are_not_reached_are_found_out", &[], Expect::Clean, || {
        let device = open_device(0).unwrap();
        let error = install_and_check(Config::default(), &mut past_the_hooks).unwrap_err();
        assert!(matches!(error, InstallError::Shadowed), "{error}");
        assert!(error.to_string().contains("do not reach the hooks"), "{error}");
        // Nothing is served after that, and nothing is lost.
        let before = driver_calls();
        drop(Step::new(&device).run().unwrap());
        let after = driver_calls();
        assert_eq!(after.0 - before.0, after.1 - before.1);
        assert!(after.0 > before.0);
    });
}

#[test]
fn the_check_looks_with_the_kill_switch_too() {
    scenario("fallback::the_check_looks_with_the_kill_switch_too", &[], Expect::Clean, || {
        let _device = open_device(0).unwrap();
        let error = install_and_check(killed(), &mut past_the_hooks).unwrap_err();
        assert!(matches!(error, InstallError::Shadowed), "{error}");
    });
}

#[test]
fn a_check_that_fails_says_why() {
    scenario("fallback::a_check_that_fails_says_why", &[], Expect::Clean, || {
        let device = open_device(0).unwrap();
        crate::harness::set_capacity(1024);
        let error = engine::cuda::install(&device, Config::default()).unwrap_err();
        assert!(matches!(error, InstallError::Check(_)), "{error}");
        crate::harness::set_capacity(1 << 30);
        drop(Step::new(&device).run().unwrap());
    });
}

#[test]
fn the_drivers_pool_keeps_for_decode_and_is_trimmed_for_prefill() {
    let name = "fallback::the_drivers_pool_keeps_for_decode_and_is_trimmed_for_prefill";
    scenario(name, &[], Expect::Clean, || {
        let device = open_device(0).unwrap();
        let config = Config { cap: CapRequest::Bytes(4 << 20), ..Config::default() };
        let pool = DriverPool::install(config).unwrap();
        assert_eq!(driver("pool_create"), 1);
        let one_mib = || drop(Tensor::zeros(1 << 18, DType::F32, &device).unwrap());
        assert_eq!(pool.before_forward(1), Action::Enable);
        one_mib();
        device.synchronize().unwrap();
        assert_eq!(pool.snapshot().gauges.idle_bytes, 1 << 20, "kept over a synchronisation");
        for _ in 0..20 {
            drop((0..8).map(|_| Tensor::zeros(1 << 18, DType::F32, &device)).collect::<Vec<_>>());
        }
        device.synchronize().unwrap();
        assert!(pool.snapshot().gauges.idle_bytes <= 4 << 20, "the cap holds when it is asked");
        assert_eq!(pool.before_forward(512), Action::DrainAndDisable);
        assert_eq!(pool.snapshot().gauges.idle_bytes, 0);
        one_mib();
        device.synchronize().unwrap();
        assert_eq!(pool.snapshot().gauges.idle_bytes, 0, "nothing is kept while it is off");
        assert!(!pool.known().peaks);
    });
}

#[test]
fn without_pools_there_is_no_fallback() {
    let name = "fallback::without_pools_there_is_no_fallback";
    scenario(name, &[("ARC_STANDIN_POOLS", "0")], Expect::Clean, || {
        let _device = open_device(0).unwrap();
        let error = DriverPool::install(Config::default()).unwrap_err().to_string();
        assert!(error.contains("cuMemPoolCreate failed with CUDA_ERROR_NOT_SUPPORTED"), "{error}");
    });
}
