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
