//! The calls of cuRAND that candle makes when it sets a device up. No random number is drawn here:
//! the decode path uses none.

use std::ffi::{c_int, c_ulonglong};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn curandCreateGenerator(
    generator: *mut usize,
    _kind: c_int,
) -> c_int {
    // SAFETY: the caller passes a place for one handle.
    unsafe { generator.write(0x7000) };
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn curandDestroyGenerator(_generator: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn curandSetPseudoRandomGeneratorSeed(
    _generator: usize,
    _seed: c_ulonglong,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn curandSetStream(_generator: usize, _stream: usize) -> c_int {
    0
}
