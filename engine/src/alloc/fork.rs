//! Knows whether this process is a forked child of the one that made a cache.
//!
//! A child shares neither the driver's context nor the threads that may have held a lock, so it must
//! leave both alone.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static REGISTER: Once = Once::new();

extern "C" fn child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The number of forks between this process and the one that asked first.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Makes forks count from now on.
pub(crate) fn watch() -> u32 {
    REGISTER.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is safe in a child after fork. A
        // failure to register leaves the count as it is, like a process that never forks.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
    generation()
}
