//! What the biased lock stands on: atomics, thread numbers, and a barrier on all threads at once.

use std::cell::Cell;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

/// How often in a row a thread takes the lock before it becomes its owner.
pub(crate) const CLAIM_AFTER: u32 = 64;

/// How often a waiting thread looks before it yields its time slice.
const SPINS_BEFORE_YIELD: u32 = 128;

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The number of this thread; 0 before it has one.
#[inline]
pub(crate) fn this_thread() -> u64 {
    NUMBER.get()
}

/// The number of this thread, which it gets where it has none. Numbers are never used again.
pub(crate) fn number_this_thread() -> u64 {
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// Lets others run; `turn` counts how often the caller has waited.
pub(crate) fn pause(turn: u32) {
    if turn % SPINS_BEFORE_YIELD == SPINS_BEFORE_YIELD - 1 {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Whether [`fence_every_thread`] works in this process.
#[cfg(target_os = "linux")]
pub(crate) fn can_fence_every_thread() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Runs a full memory barrier on every thread of this process before it returns.
#[cfg(target_os = "linux")]
pub(crate) fn fence_every_thread() {
    // Once a process is registered the kernel documents no failure. Should a sandbox forbid the call
    // later, nothing can be done that is right: going on would let two threads in.
    if !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        std::process::abort();
    }
}

#[cfg(target_os = "linux")]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers only and changes no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether [`fence_every_thread`] works in this process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn can_fence_every_thread() -> bool {
    false
}

/// Is never called where [`can_fence_every_thread`] says no.
#[cfg(not(target_os = "linux"))]
pub(crate) fn fence_every_thread() {
    std::process::abort();
}
