//! Memory pools: what is freed stays reserved until a synchronisation or a trim, up to the pool's
//! release threshold. A trim releases only what the host has seen to be free by a synchronisation. Reserved memory serves requests of exactly its size and nothing else, and the
//! stand-in never trims by itself: a caller that runs out must do it.

use std::ffi::{c_int, c_uint, c_void};

use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::memory::{alloc_from_pool, return_host_memory};
use crate::state::{State, code_of, enter};

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

/// One pool.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    max_bytes: Option<u64>,
    threshold_bytes: u64,
    used_bytes: u64,
    reserved: Vec<(u64, u64)>,
    /// How many of the reserved blocks, from the first on, the host has seen to be free.
    seen_free: usize,
}

impl Pool {
    /// Bytes held without an allocation in them.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved.iter().map(|(_, size)| size).sum()
    }

    /// Whether the pool's own limit admits `size` more bytes.
    pub(crate) fn has_room(&self, size: u64) -> bool {
        self.max_bytes.is_none_or(|max| self.used_bytes + self.reserved_bytes() + size <= max)
    }

    /// Whether a reserved block has exactly this size.
    pub(crate) fn has_reserved(&self, size: u64) -> bool {
        self.reserved.iter().any(|&(_, held)| held == size)
    }

    /// Takes a reserved block of exactly this size.
    pub(crate) fn reuse(&mut self, size: u64) -> Option<u64> {
        let found = self.reserved.iter().rposition(|&(_, held)| held == size)?;
        self.seen_free -= usize::from(found < self.seen_free);
        Some(self.reserved.remove(found).0)
    }

    /// Counts an allocation.
    pub(crate) fn add_used(&mut self, size: u64) {
        self.used_bytes += size;
    }

    /// Reserves the memory of a freed block.
    pub(crate) fn keep(&mut self, address: u64, size: u64) {
        self.used_bytes -= size;
        self.reserved.push((address, size));
    }

    /// Gives reserved memory that was seen to be free back to the host until at most `bytes` are left.
    fn shrink_to(&mut self, bytes: u64) {
        while self.reserved_bytes() > bytes && self.seen_free > 0 {
            let (address, _) = self.reserved.remove(0);
            self.seen_free -= 1;
            return_host_memory(address);
        }
    }

    /// What a synchronisation does.
    pub(crate) fn shrink_to_threshold(&mut self) {
        self.seen_free = self.reserved.len();
        self.shrink_to(self.threshold_bytes);
    }
}

/// The handle of a device's default pool.
fn default_handle(device: i32) -> usize {
    0x8000 + (device as usize) * 16
}

/// The handle under which a device's current pool is kept, if it is not the default one.
pub(crate) fn current_pool(state: &mut State, context: usize) -> Result<usize, Code> {
    let Some(context) = state.contexts.get(&context) else {
        return Err(code::INVALID_CONTEXT);
    };
    let device = context.device;
    if !state.settings.pools {
        return Err(code::NOT_SUPPORTED);
    }
    Ok(pool_of_device(state, device))
}

fn pool_of_device(state: &mut State, device: i32) -> usize {
    let default = default_handle(device);
    state.pools.entry(default).or_default();
    state.device_pools.get(&device).copied().unwrap_or(default)
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
        state.pools.entry(default_handle(device)).or_default();
        // SAFETY: the caller passes a place for one handle.
        unsafe { pool.write(default_handle(device)) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut usize, device: c_int) -> Code {
    code_of(enter("cuDeviceGetMemPool").map(|mut state| {
        let found = pool_of_device(&mut state, device);
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
        state.pools.insert(new, Pool { max_bytes, ..Pool::default() });
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
        found.seen_free = found.reserved.len();
        found.shrink_to(0);
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
            found.threshold_bytes = unsafe { value.cast::<u64>().read() };
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
            4 => found.threshold_bytes,
            // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT counts what is in use as well.
            5 => found.used_bytes + found.reserved_bytes(),
            7 => found.used_bytes,
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
