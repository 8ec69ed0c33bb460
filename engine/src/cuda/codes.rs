//! The driver's result codes, by their names in `cuda.h`.

use std::ffi::c_int;

pub(super) const SUCCESS: c_int = 0;
/// Also what the driver says to a double free.
pub(super) const INVALID_VALUE: c_int = 1;
pub(super) const OUT_OF_MEMORY: c_int = 2;
pub(super) const DEINITIALIZED: c_int = 4;
pub(super) const INVALID_CONTEXT: c_int = 201;
pub(super) const SHARED_OBJECT_SYMBOL_NOT_FOUND: c_int = 302;
pub(super) const INVALID_HANDLE: c_int = 400;
pub(super) const ILLEGAL_STATE: c_int = 401;
pub(super) const NOT_SUPPORTED: c_int = 801;
pub(super) const STREAM_CAPTURE_INVALIDATED: c_int = 901;

const ECC_UNCORRECTABLE: c_int = 214;
const ILLEGAL_ADDRESS: c_int = 700;
const LAUNCH_FAILED: c_int = 719;

/// Whether a code says that the context, or the driver, is gone or can do nothing more: what was
/// launched there neither runs nor will. The errors of kernels, 700 to 719, stay with their context.
pub(super) fn is_lost(code: c_int) -> bool {
    let gone = [DEINITIALIZED, INVALID_CONTEXT, INVALID_HANDLE, ECC_UNCORRECTABLE];
    gone.contains(&code) || (ILLEGAL_ADDRESS..=LAUNCH_FAILED).contains(&code)
}
