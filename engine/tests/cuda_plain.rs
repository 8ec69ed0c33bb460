//! Candle and cudarc alone, without the engine's hooks: what unmodified candle asks the driver for.
//!
//! This program must not name the `engine` crate, whose hooks would be linked with it.

#[path = "cuda/ops.rs"]
#[allow(dead_code)]
mod ops;

use std::ffi::{CStr, c_char, c_void};

use candle_core::Device;
use ops::Step;

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the names are C strings.
    let found = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "no stand-in driver: run `cargo xtask cuda-check`");
        libc::dlsym(library, name.as_ptr())
    };
    assert!(!found.is_null(), "{name:?} is not in libcuda.so.1: this test is for the stand-in");
    found
}

fn driver_calls() -> (i64, i64) {
    type Counter = unsafe extern "C" fn(*const c_char) -> i64;
    // SAFETY: the stand-in has this function with this type.
    let counter =
        unsafe { std::mem::transmute::<*mut c_void, Counter>(symbol(c"standin_counter")) };
    // SAFETY: the names are C strings.
    let count = |name: &CStr| unsafe { counter(name.as_ptr()) };
    (count(c"alloc_async") + count(c"alloc_sync"), count(c"free_async") + count(c"free_sync"))
}

/// The figure that the hooks are held to with the kill switch.
#[test]
fn ten_steps_of_unmodified_candle() {
    let device = Device::new_cuda_with_stream(0).unwrap();
    // SAFETY: everything is on the device's one stream.
    unsafe { device.as_cuda_device().unwrap().disable_event_tracking() };
    let step = Step::new(&device);
    drop(step.run().unwrap());
    let before = driver_calls();
    for _ in 0..10 {
        drop(step.run().unwrap());
    }
    let after = driver_calls();
    assert_eq!((after.0 - before.0, after.1 - before.1), (90, 90));
}
