//! From the driver's stream handles to the cache's keys.
//!
//! A thread remembers the last stream that it used, so that a hook in steady state neither asks the
//! driver nor takes a lock to know its stream. What is remembered ends with any stream or context.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::contexts;
use super::driver::{CudaDriver, NO_STREAM};
use super::outside::{self, is_special};
use crate::alloc::driver::DriverStream;
use crate::alloc::{Cache, StreamKey};

/// Rises when a stream or a context ends: handles may mean something else from then on.
static EPOCH: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Handle, epoch and key of the stream that this thread used last; epoch 0 is none.
    static LAST: Cell<(usize, u64, StreamKey)> = const { Cell::new((0, 0, StreamKey::HOST)) };
}

/// The key of a stream that the cache may keep blocks for; `None` for a special handle, for a stream
/// that is captured without the cache, and for what the driver does not know.
#[inline]
pub(super) fn cacheable(cache: &Cache<CudaDriver>, raw: usize) -> Option<StreamKey> {
    if is_special(raw) || outside::is_of(raw) { None } else { any(cache, raw) }
}

/// The key of any stream, of a special one too: a free may be ordered on it.
#[inline]
pub(super) fn any(cache: &Cache<CudaDriver>, raw: usize) -> Option<StreamKey> {
    let (last, epoch, key) = LAST.get();
    if last == raw && epoch == EPOCH.load(Ordering::Acquire) {
        return Some(key);
    }
    look_up(cache, raw)
}

#[cold]
fn look_up(cache: &Cache<CudaDriver>, raw: usize) -> Option<StreamKey> {
    if is_special(raw) {
        // What it names depends on the caller's context, so it is looked up each time.
        return contexts::current().map(|context| key_of(cache, context, raw as u64));
    }
    let epoch = EPOCH.load(Ordering::Acquire);
    let key = key_of(cache, contexts::of_stream(raw)?, raw as u64);
    LAST.set((raw, epoch, key));
    Some(key)
}

pub(super) fn key_of(cache: &Cache<CudaDriver>, context: u32, raw: u64) -> StreamKey {
    cache.register_stream(DriverStream { device: context, raw })
}

/// The keys of the memory that work on a stream is done with: the stream's own, and that of its context
/// which was allocated without one.
pub(super) fn of_work(cache: &Cache<CudaDriver>, raw: usize) -> Vec<StreamKey> {
    let Some(device) = contexts::of_stream(raw) else { return Vec::new() };
    let keys = [raw as u64, NO_STREAM];
    keys.into_iter().filter_map(|raw| cache.find_stream(DriverStream { device, raw })).collect()
}

/// The stream is about to be destroyed: what is idle on it is given back.
pub(super) fn end(cache: &Cache<CudaDriver>, raw: usize) {
    let context = if is_special(raw) { None } else { contexts::of_stream(raw) };
    let known =
        context.and_then(|device| cache.find_stream(DriverStream { device, raw: raw as u64 }));
    if let Some(key) = known {
        cache.destroy_stream(key);
        forget_all();
    }
}

/// Handles may mean something else from now on.
pub(super) fn forget_all() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}
