//! Captures that the cache stays out of: of a stream while it is off, and of a stream that the program
//! names by a special handle. The driver deals with their memory alone.
//!
//! While one is open nothing is asked of an event and nothing is waited for: in the strictest of the
//! capture modes either ends the capture, whoever does it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The handle of a stream that is captured without the cache; 0 for none.
static OUTSIDE: AtomicUsize = AtomicUsize::new(0);

/// Whether a handle is that of the null stream, the legacy stream or the per-thread stream. Which
/// stream they name depends on the caller, so nothing is kept for them.
pub(super) fn is_special(raw: usize) -> bool {
    raw <= 2
}

/// Whether the stream is captured while the cache stays out of it.
#[inline]
pub(super) fn is_of(stream: usize) -> bool {
    stream != 0 && OUTSIDE.load(Ordering::Acquire) == stream
}

/// Whether any stream is: the cache must not be switched on under it, and nothing may wait.
pub(super) fn is_open() -> bool {
    OUTSIDE.load(Ordering::Acquire) != 0
}

/// The stream's capture begins without the cache, or has ended.
pub(super) fn note(stream: usize, captured: bool) {
    if captured {
        OUTSIDE.store(stream, Ordering::Release);
    } else {
        let _ = OUTSIDE.compare_exchange(stream, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
