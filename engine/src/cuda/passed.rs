//! Calls that were handed on while no cache served them: counted, and with the kill switch timed.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::installed::{Unserved, unserved};

/// Calls that were handed on while no cache served them.
#[derive(Debug)]
pub(super) struct PassedThrough {
    not_installed: AtomicU64,
    killed: AtomicU64,
    frees: AtomicU64,
    driver_ns: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) not_installed: u64,
    pub(super) killed: u64,
    pub(super) frees: u64,
    pub(super) driver_ns: u64,
}

pub(super) static PASSED: PassedThrough = PassedThrough {
    not_installed: AtomicU64::new(0),
    killed: AtomicU64::new(0),
    frees: AtomicU64::new(0),
    driver_ns: AtomicU64::new(0),
};

impl PassedThrough {
    pub(super) fn read(&self) -> Passed {
        Passed {
            not_installed: self.not_installed.load(Ordering::Relaxed),
            killed: self.killed.load(Ordering::Relaxed),
            frees: self.frees.load(Ordering::Relaxed),
            driver_ns: self.driver_ns.load(Ordering::Relaxed),
        }
    }

    /// Hands an allocation on. With the kill switch its time is taken, because a comparison asks
    /// what the calls cost that the cache saves.
    pub(super) fn alloc(&self, call: impl FnOnce() -> Result<u64, c_int>) -> Result<u64, c_int> {
        let killed = unserved() == Unserved::Killed;
        let result = if killed { self.timed(call) } else { call() };
        if result.is_ok() {
            let count = if killed { &self.killed } else { &self.not_installed };
            count.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    pub(super) fn free(&self, call: impl FnOnce() -> c_int) -> c_int {
        self.frees.fetch_add(1, Ordering::Relaxed);
        if unserved() == Unserved::Killed { self.timed(call) } else { call() }
    }

    fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = call();
        let took_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.driver_ns.fetch_add(took_ns, Ordering::Relaxed);
        result
    }
}
