//! The cache that serves the hooks, and what they do while there is none.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use super::driver::CudaDriver;
use crate::alloc::Cache;

/// The cache under candle's CUDA backend.
pub type CudaCache = Cache<CudaDriver>;

/// The cache that serves the hooks; null for pass-through.
static CACHE: AtomicPtr<CudaCache> = AtomicPtr::new(ptr::null_mut());
/// What the hooks do while there is none: one of [`Unserved`].
static UNSERVED: AtomicU8 = AtomicU8::new(Unserved::NotInstalled as u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Unserved {
    NotInstalled = 0,
    Killed = 1,
}

/// Whether the driver must not be called any more: the cache was shut down at the end of the process,
/// or this is a forked child, which shares neither the context nor the threads that may hold a lock.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// What a hook does with a call.
pub(super) enum Route {
    Serve(&'static CudaCache),
    PassThrough,
    /// Nothing: see [`CLOSED`].
    Closed,
}

#[inline]
pub(super) fn route() -> Route {
    match cache() {
        Some(cache) if CLOSED.load(Ordering::Relaxed) || cache.is_forked_child() => Route::Closed,
        Some(cache) => Route::Serve(cache),
        None => Route::PassThrough,
    }
}

/// Closes the cache: the hooks call the driver no more.
pub(super) fn close(cache: &CudaCache) {
    cache.shutdown();
    CLOSED.store(true, Ordering::Release);
}

/// The cache that serves the hooks.
#[inline]
pub(super) fn cache() -> Option<&'static CudaCache> {
    // SAFETY: the pointer is null or was published from a leaked box.
    unsafe { CACHE.load(Ordering::Acquire).as_ref() }
}

/// Makes a cache serve the hooks from now on.
pub(super) fn publish(cache: &'static CudaCache) {
    CACHE.store(ptr::from_ref(cache).cast_mut(), Ordering::Release);
}

/// Back to pass-through. The caller sees to it that the cache holds nothing.
pub(super) fn withdraw() {
    CACHE.store(ptr::null_mut(), Ordering::Release);
}

pub(super) fn unserved() -> Unserved {
    match UNSERVED.load(Ordering::Relaxed) {
        killed if killed == Unserved::Killed as u8 => Unserved::Killed,
        _ => Unserved::NotInstalled,
    }
}

pub(super) fn set_unserved(why: Unserved) {
    UNSERVED.store(why as u8, Ordering::Release);
}
