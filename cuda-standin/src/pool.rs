//! The driver's functions for memory pools.

use std::ffi::{c_int, c_uint, c_void};

use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::memory::alloc_from_pool;
use crate::state::pool::Pool;
use crate::state::{State, code_of, default_pool_handle, enter};

/// The start of `CUmemPoolProps`; what follows is reserved.
#[repr(C)]
pub(crate) struct Props {
    alloc_type: c_uint,
    handle_types: c_uint,
    location_type: c_uint,
    location_id: c_int,
    security_attributes: *mut c_void,
    max_size: usize,
}

fn pool<'a>(state: &'a mut State, call: &str, handle: usize) -> Result<&'a mut Pool, Code> {
    if !state.pools.contains_key(&handle) {
        state.violate(format!("{call}: pool {handle:#x} does not exist (any more)"));
        return Err(code::INVALID_HANDLE);
    }
    state.pools.get_mut(&handle).ok_or(code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) -> Code {
    code_of(enter("cuDeviceGetDefaultMemPool").map(|mut state| {
        state.pools.entry(default_pool_handle(device)).or_default();
        // SAFETY: the caller passes a place for one handle.
        unsafe { pool.write(default_pool_handle(device)) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut usize, device: c_int) -> Code {
    code_of(enter("cuDeviceGetMemPool").map(|mut state| {
        let found = state.pool_of_device(device);
        // SAFETY: the caller passes a place for one handle.
        unsafe { pool.write(found) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceSetMemPool(device: c_int, handle: usize) -> Code {
    code_of(enter("cuDeviceSetMemPool").and_then(|mut state| {
        pool(&mut state, "cuDeviceSetMemPool", handle)?;
        state.device_pools.insert(device, handle);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemPoolCreate(handle: *mut usize, props: *const Props) -> Code {
    code_of(enter("cuMemPoolCreate").and_then(|mut state| {
        // SAFETY: the caller passes readable properties.
        let max_size = unsafe { (*props).max_size } as u64;
        if !state.settings.pools {
            return Err(code::NOT_SUPPORTED);
        }
        let new = state.new_handle();
        let max_bytes = (max_size > 0).then_some(max_size);
        state.pools.insert(new, Pool::new(max_bytes));
        COUNTERS.pool_create.add();
        // SAFETY: the caller passes a place for one handle.
        unsafe { handle.write(new) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemPoolDestroy(handle: usize) -> Code {
    code_of(enter("cuMemPoolDestroy").and_then(|mut state| {
        let found = pool(&mut state, "cuMemPoolDestroy", handle)?;
        found.release_all();
        state.pools.remove(&handle);
        state.destroyed_pools.insert(handle);
        state.device_pools.retain(|_, current| *current != handle);
        COUNTERS.pool_destroy.add();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemPoolTrimTo(handle: usize, bytes: usize) -> Code {
    code_of(enter("cuMemPoolTrimTo").and_then(|mut state| {
        pool(&mut state, "cuMemPoolTrimTo", handle)?.shrink_to(bytes as u64);
        COUNTERS.pool_trim.add();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemPoolSetAttribute(
    handle: usize,
    attribute: c_uint,
    value: *const c_void,
) -> Code {
    code_of(enter("cuMemPoolSetAttribute").and_then(|mut state| {
        let found = pool(&mut state, "cuMemPoolSetAttribute", handle)?;
        // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD; the others steer reuse, of which there is little here.
        if attribute == 4 {
            // SAFETY: this attribute's value is a `cuuint64_t`.
            found.set_threshold(unsafe { value.cast::<u64>().read() });
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemPoolGetAttribute(
    handle: usize,
    attribute: c_uint,
    value: *mut c_void,
) -> Code {
    code_of(enter("cuMemPoolGetAttribute").and_then(|mut state| {
        let found = pool(&mut state, "cuMemPoolGetAttribute", handle)?;
        let answer = match attribute {
            4 => found.threshold_bytes(),
            // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT counts what is in use as well.
            5 => found.used_bytes() + found.reserved_bytes(),
            7 => found.used_bytes(),
            _ => return Err(code::INVALID_VALUE),
        };
        // SAFETY: these attributes' values are `cuuint64_t`.
        unsafe { value.cast::<u64>().write(answer) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocFromPoolAsync(
    address: *mut u64,
    size: usize,
    handle: usize,
    stream: usize,
) -> Code {
    code_of(enter("cuMemAllocFromPoolAsync").and_then(|state| {
        let call = "cuMemAllocFromPoolAsync";
        let found = alloc_from_pool(call, state, size, Some(handle), stream)?;
        // SAFETY: the caller passes a place for one address.
        unsafe { address.write(found) };
        Ok(())
    }))
}
