//! Questions about the driver and its devices, and the texts of its errors.

use std::ffi::{c_char, c_int, c_uint};

use crate::code::{self, Code};
use crate::state::{code_of, enter, enter_context};

/// `CUdevice_attribute` numbers that candle and Arc ask for, with the answers of an H100-class card.
fn attribute(number: c_uint, pools: bool) -> c_int {
    match number {
        // CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        1 => 1024,
        // CU_DEVICE_ATTRIBUTE_WARP_SIZE
        10 => 32,
        // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        16 => 132,
        // CU_DEVICE_ATTRIBUTE_INTEGRATED: not a unified-memory machine
        18 => 0,
        // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        75 => 9,
        76 => 0,
        // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        97 => 232_448,
        // CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        115 => c_int::from(pools),
        _ => 0,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    number: c_uint,
    _device: c_int,
) -> Code {
    code_of(enter("cuDeviceGetAttribute").map(|state| {
        // SAFETY: the caller passes a place for one int.
        unsafe { value.write(attribute(number, state.settings.pools)) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetName(
    name: *mut c_char,
    len: c_int,
    _device: c_int,
) -> Code {
    code_of(enter("cuDeviceGetName").and_then(|_| {
        let text = c"Arc stand-in driver";
        let bytes = text.to_bytes_with_nul();
        if (len as usize) < bytes.len() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the caller passes a place for `len` characters, which is enough.
        unsafe { name.copy_from(bytes.as_ptr().cast(), bytes.len()) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> Code {
    code_of(enter("cuDeviceTotalMem").map(|state| {
        // SAFETY: the caller passes a place for one size.
        unsafe { bytes.write(state.settings.capacity_bytes as usize) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    // SAFETY: the caller passes a place for one int.
    unsafe { version.write(13000) };
    code::SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    code_of(enter_context("cuMemGetInfo").map(|(state, _)| {
        let capacity = state.settings.capacity_bytes;
        let held = state.live_bytes + state.reserved_bytes();
        // SAFETY: the caller passes places for two sizes.
        unsafe {
            free.write(capacity.saturating_sub(held) as usize);
            total.write(capacity as usize);
        }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorName(code: Code, text: *mut *const c_char) -> Code {
    let described = code::describe(code);
    // SAFETY: the caller passes a place for one pointer; the text is static.
    unsafe { text.write(described.map_or(std::ptr::null(), |(name, _)| name.as_ptr())) };
    if described.is_some() { code::SUCCESS } else { code::INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorString(code: Code, text: *mut *const c_char) -> Code {
    let described = code::describe(code);
    // SAFETY: the caller passes a place for one pointer; the text is static.
    unsafe { text.write(described.map_or(std::ptr::null(), |(_, text)| text.as_ptr())) };
    if described.is_some() { code::SUCCESS } else { code::INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetPCIBusId(
    text: *mut c_char,
    len: c_int,
    device: c_int,
) -> Code {
    code_of(enter("cuDeviceGetPCIBusId").and_then(|_| {
        let id = format!("0000:0{device}:00.0\0");
        if (len as usize) < id.len() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the caller passes a place for `len` characters, which is enough.
        unsafe { text.copy_from(id.as_ptr().cast(), id.len()) };
        Ok(())
    }))
}
