//! The lock around the cache's bookkeeping.
//!
//! Sections under it are short and bounded: bookkeeping only, never a driver call, and never a
//! panic that could leave it half done. It is not poisoned: a free during unwinding must not panic.
//! Releasing is a plain store, so that an uncontended section costs one atomic exchange instead of
//! the two of a mutex that can sleep; a thread that waits spins briefly and then yields.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Mutual exclusion without data. Tests put their own in: one that explores interleavings, and one
/// that tells drivers whether it is held.
pub trait RawLock: Default + Send + Sync {
    /// Waits until the lock is held by the caller.
    fn lock(&self);

    /// Gives the lock back.
    ///
    /// # Safety
    /// The caller holds the lock.
    unsafe fn unlock(&self);

    /// Lets other threads run while the caller waits for something that is not the lock.
    fn relax() {
        std::thread::yield_now();
    }
}

/// How often a waiting thread looks before it yields its time slice.
const SPINS_BEFORE_YIELD: u32 = 128;

/// The lock in ordinary use.
#[derive(Debug, Default)]
pub struct SpinLock {
    held: AtomicBool,
}

impl SpinLock {
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        loop {
            for _ in 0..SPINS_BEFORE_YIELD {
                let free = !self.held.load(Ordering::Relaxed);
                if free && !self.held.swap(true, Ordering::Acquire) {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    }
}

impl RawLock for SpinLock {
    #[inline]
    fn lock(&self) {
        if self.held.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.held.store(false, Ordering::Release);
    }
}

/// Data behind a [`RawLock`].
#[derive(Debug, Default)]
pub(crate) struct Locked<T, L> {
    lock: L,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached through a guard only, and one guard exists at a time, so sharing the
// container moves at most `T` between threads.
unsafe impl<T: Send, L: RawLock> Sync for Locked<T, L> {}

impl<T, L: RawLock> Locked<T, L> {
    pub(crate) fn new(data: T) -> Self {
        Locked { lock: L::default(), data: UnsafeCell::new(data) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T, L> {
        self.lock.lock();
        Guard { locked: self }
    }
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a, T, L: RawLock> {
    locked: &'a Locked<T, L>,
}

impl<T, L: RawLock> Deref for Guard<'_, T, L> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so no other reference to the data exists.
        unsafe { &*self.locked.data.get() }
    }
}

impl<T, L: RawLock> DerefMut for Guard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, so no other reference to the data exists.
        unsafe { &mut *self.locked.data.get() }
    }
}

impl<T, L: RawLock> Drop for Guard<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard took the lock when it was made and nothing else gives it back.
        unsafe { self.locked.lock.unlock() };
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn increments_of_several_threads_are_all_kept() {
        let count = Locked::<u64, SpinLock>::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(*count.lock(), 40_000);
    }

    #[test]
    fn a_panic_gives_the_lock_back_and_does_not_poison_it() {
        let count = Locked::<u64, SpinLock>::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = count.lock();
            *guard += 1;
            panic!("inside the section");
        }));
        assert!(panicked.is_err());
        assert_eq!(*count.lock(), 1);
    }
}
