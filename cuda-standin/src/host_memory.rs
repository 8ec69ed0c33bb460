//! Device memory is memory of the host.

use std::ffi::c_void;

/// What the driver promises for addresses, in bytes; the real one gives at least 256.
const ALIGNMENT: usize = 512;
/// New memory holds this, so that a program that reads it before writing does so visibly.
pub(crate) const NEW: u8 = 0xa5;
pub(crate) const FREED: u8 = 0xdd;

pub(crate) fn take_host_memory(size: u64) -> u64 {
    let size = (size as usize).next_multiple_of(ALIGNMENT);
    // SAFETY: the alignment is a power of two and divides the size.
    let pointer = unsafe { libc::aligned_alloc(ALIGNMENT, size) };
    assert!(!pointer.is_null(), "the host has no {size} bytes for the stand-in's device memory");
    pointer as u64
}

/// Gives back host memory from [`take_host_memory`].
pub(crate) fn return_host_memory(address: u64) {
    // SAFETY: the address came from `aligned_alloc`, and the caller forgets it.
    unsafe { libc::free(address as *mut c_void) };
}

/// Fills memory that the stand-in owns.
pub(crate) fn fill(address: u64, size: u64, byte: u8) {
    // SAFETY: the block is owned by the stand-in and at least `size` bytes long.
    unsafe { (address as *mut u8).write_bytes(byte, size as usize) };
}
