//! Counts of requests that do not reach the cache.
//!
//! They are spread over shards, so that threads do not wait for each other's cache lines. Counting
//! never allocates.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::alloc::stats::Bypass;

const SHARDS: usize = 16;

pub(super) static COUNTS: Counts = Counts { shards: [const { Shard::new() }; SHARDS] };

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// One or a few threads' counts, on cache lines of their own.
#[repr(align(128))]
struct Shard {
    small: AtomicU64,
    not_installed: AtomicU64,
    killed: AtomicU64,
    closed: AtomicU64,
    frees: AtomicU64,
    /// A block may be freed by another thread than allocated it: only the sum over the shards,
    /// which wraps, means anything.
    live_bytes: AtomicU64,
}

impl Shard {
    const fn new() -> Self {
        Shard {
            small: AtomicU64::new(0),
            not_installed: AtomicU64::new(0),
            killed: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
        }
    }
}

pub(super) struct Counts {
    shards: [Shard; SHARDS],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) small: u64,
    pub(super) not_installed: u64,
    pub(super) killed: u64,
    pub(super) closed: u64,
    pub(super) frees: u64,
    /// Bytes of the large blocks that were allocated and freed outside the cache.
    pub(super) live_bytes: u64,
}

impl Counts {
    #[inline]
    fn shard(&self) -> &Shard {
        let mut index = SHARD.get();
        if index == usize::MAX {
            index = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
            SHARD.set(index);
        }
        &self.shards[index]
    }

    #[inline]
    pub(super) fn note_small(&self) {
        self.shard().small.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_alloc(&self, reason: Bypass, bytes: usize) {
        let shard = self.shard();
        let counter = match reason {
            Bypass::Killed => &shard.killed,
            Bypass::Closed => &shard.closed,
            _ => &shard.not_installed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        shard.live_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn note_free(&self, bytes: usize) {
        let shard = self.shard();
        shard.frees.fetch_add(1, Ordering::Relaxed);
        shard.live_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counted {
        self.shards.iter().fold(Counted::default(), |sum, shard| Counted {
            small: sum.small + shard.small.load(Ordering::Relaxed),
            not_installed: sum.not_installed + shard.not_installed.load(Ordering::Relaxed),
            killed: sum.killed + shard.killed.load(Ordering::Relaxed),
            closed: sum.closed + shard.closed.load(Ordering::Relaxed),
            frees: sum.frees + shard.frees.load(Ordering::Relaxed),
            live_bytes: sum.live_bytes.wrapping_add(shard.live_bytes.load(Ordering::Relaxed)),
        })
    }
}
