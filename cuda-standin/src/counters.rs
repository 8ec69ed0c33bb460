//! What is counted. Counters only ever rise; gauges are computed from the state when asked for.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One counter for each kind of call, and for each kind of violation.
        pub(crate) struct Counters { $($(#[$doc])* pub(crate) $name: Counter,)* }

        pub(crate) static COUNTERS: Counters = Counters { $($name: Counter(AtomicU64::new(0)),)* };

        impl Counters {
            /// The counters by name, in the order in which they are declared.
            pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

counters! {
    /// Successful `cuMemAllocAsync` and `cuMemAllocFromPoolAsync`.
    alloc_async,
    /// Successful `cuMemAlloc_v2`.
    alloc_sync,
    /// Allocations that were refused for want of memory.
    alloc_failed,
    /// Successful `cuMemFreeAsync`.
    free_async,
    /// Successful `cuMemFree_v2`.
    free_sync,
    /// Attempts to allocate on a stream that is captured.
    alloc_in_capture,
    /// Attempts to free on a stream that is captured.
    free_in_capture,
    /// Allocations and frees that a capture of the per-thread stream has recorded as nodes.
    alloc_node,
    free_node,
    /// Allocations that ended with their context instead of being freed.
    ended_with_context,
    memset,
    memcpy_htod,
    memcpy_dtoh,
    memcpy_dtod,
    launch,
    /// Launches of kernels that have no host version: they did nothing.
    launch_without_host_version,
    gemm,
    event_create,
    event_record,
    event_wait,
    event_destroy,
    stream_create,
    stream_destroy,
    stream_sync,
    context_create,
    context_destroy,
    context_sync,
    pool_create,
    pool_destroy,
    pool_trim,
    capture_begin,
    capture_end,
    graph_instantiate,
    graph_launch,
    graph_destroy,
    violation,
}
