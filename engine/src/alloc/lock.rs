//! The lock around the cache's bookkeeping.
//!
//! Sections under it are short and bounded: bookkeeping only, never a driver call, and never a
//! panic that could leave it half done. It is not poisoned: a free during unwinding must not panic.
//! Giving it back is a plain store, and for a thread that alone uses the cache taking it is one too;
//! a thread that waits spins briefly and then yields.

mod biased;
mod ground;

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

/// The lock in ordinary use: a spin lock that its first steady user enters without an atomic
/// exchange, for as long as no other thread comes.
#[derive(Debug, Default)]
pub struct BiasedLock(biased::Biased);

impl RawLock for BiasedLock {
    #[inline]
    fn lock(&self) {
        self.0.lock();
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
    }
}

/// A plain spin lock: every section costs one atomic exchange.
#[derive(Debug, Default)]
pub struct SpinLock {
    held: AtomicBool,
}

impl SpinLock {
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut turn = 0_u32;
        while self.held.load(Ordering::Relaxed) || self.held.swap(true, Ordering::Acquire) {
            ground::pause(turn);
            turn = turn.wrapping_add(1);
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
    use std::sync::{Arc, Barrier, mpsc};
    use std::time::Duration;

    use super::*;

    fn increments_of_several_threads_are_all_kept<L: RawLock>() {
        let count = Locked::<u64, L>::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(*count.lock(), 40_000);
    }

    #[test]
    fn the_biased_lock_keeps_the_increments_of_several_threads() {
        increments_of_several_threads_are_all_kept::<BiasedLock>();
    }

    #[test]
    fn the_spin_lock_keeps_the_increments_of_several_threads() {
        increments_of_several_threads_are_all_kept::<SpinLock>();
    }

    /// A section that is long enough for another to fall into.
    fn count_one(count: &Locked<u64, BiasedLock>) {
        let mut guard = count.lock();
        let before = *guard;
        (0..8).for_each(|_| std::hint::spin_loop());
        *guard = before + 1;
    }

    /// The owner is in the middle of its work when a second thread comes, many times over. The
    /// owner's stores are held up behind lines that the other thread writes too: a lock without the
    /// barrier on all threads loses counts here.
    #[test]
    fn a_revocation_never_lets_two_threads_in() {
        const OWNER_COUNTS: u64 = 400;
        const OTHERS_COUNT: u64 = 20;
        #[repr(align(128))]
        struct Line(AtomicBool);
        let lines: Vec<Line> = (0..32).map(|_| Line(AtomicBool::new(false))).collect();
        let write_lines = || lines.iter().for_each(|line| line.0.store(true, Ordering::Relaxed));
        for round in 0..3000_u64 {
            let count = Locked::<u64, BiasedLock>::new(0);
            let owned = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..ground::CLAIM_AFTER).for_each(|_| *count.lock() += 1);
                    owned.wait();
                    for _ in 0..OWNER_COUNTS {
                        write_lines();
                        count_one(&count);
                    }
                });
                scope.spawn(|| {
                    owned.wait();
                    (0..round % 64).for_each(|_| write_lines());
                    (0..OTHERS_COUNT).for_each(|_| count_one(&count));
                });
            });
            let expected = u64::from(ground::CLAIM_AFTER) + OWNER_COUNTS + OTHERS_COUNT;
            assert_eq!(*count.lock(), expected, "round {round}");
        }
    }

    #[test]
    fn an_owner_that_has_ended_does_not_keep_the_lock() {
        let count = Locked::<u64, BiasedLock>::new(0);
        for _ in 0..3 {
            std::thread::scope(|scope| {
                scope.spawn(|| (0..1000).for_each(|_| *count.lock() += 1));
            });
        }
        assert_eq!(*count.lock(), 3000);
    }

    #[test]
    fn a_forked_child_can_take_a_lock_that_another_thread_of_its_parent_owns() {
        let count = Locked::<u64, BiasedLock>::new(0);
        let (owned, done) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..2 * ground::CLAIM_AFTER).for_each(|_| *count.lock() += 1);
                owned.wait();
                done.wait();
            });
            owned.wait();
            // SAFETY: the child takes the lock, which needs no other thread and no memory, and ends
            // without running exit handlers.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let kept = *count.lock() == u64::from(2 * ground::CLAIM_AFTER);
                // SAFETY: ends the child without touching what it shares with the parent.
                unsafe { libc::_exit(i32::from(!kept)) };
            }
            let mut status = -1;
            // SAFETY: waits for the child that was just made; `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            done.wait();
            assert_eq!(status, 0);
        });
        assert_eq!(*count.lock(), u64::from(2 * ground::CLAIM_AFTER));
    }

    #[test]
    fn a_panic_gives_the_lock_back_and_does_not_poison_it() {
        let count = Arc::new(Locked::<u64, BiasedLock>::new(0));
        let (done, waits) = mpsc::channel();
        let shared = count.clone();
        std::thread::spawn(move || {
            // Through the gate first, then as the owner.
            for round in 0..200 {
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    let mut guard = shared.lock();
                    *guard += 1;
                    std::panic::resume_unwind(Box::new("inside the section"));
                }));
                assert!(panicked.is_err());
                assert_eq!(*shared.lock(), round + 1);
            }
            done.send(()).unwrap();
        });
        waits.recv_timeout(Duration::from_secs(20)).expect("somebody has kept the lock");
        assert_eq!(*count.lock(), 200);
    }
}
