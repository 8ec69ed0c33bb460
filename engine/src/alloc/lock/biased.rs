//! A lock that costs its first steady user no atomic exchange.
//!
//! A thread that has taken the lock [`CLAIM_AFTER`] times in a row becomes its owner. From then on it
//! enters by two plain stores and two loads on a cache line of its own. The first other thread that
//! comes revokes the ownership for good, and the lock is an ordinary spin lock from there on.
//!
//! # Why at most one thread is inside
//!
//! `gate` is a spin lock's word: whoever takes it from `FREE` has the gate. The owner enters without
//! the gate, by `inside`.
//!
//! 1. *Owner against revoker.* The owner writes `inside`, then reads `owner`. The revoker, with the
//!    gate, writes `owner`, calls [`fence_every_thread`], then reads `inside` until it is false. The
//!    fence runs a full barrier at some point of the owner's program. If the owner's read of `owner`
//!    comes before that point, so does its write of `inside`, and the revoker sees it and waits. If
//!    the read comes after that point, it sees that the ownership is gone, and the owner withdraws
//!    and waits for the gate like everybody else. Only the compiler must keep the owner's write and
//!    read in order; [`compiler_fence`] does.
//! 2. *Two owners.* `owner` leaves `UNCLAIMED` once, under the gate, and after a revocation it is
//!    `NOBODY` for ever. Thread numbers are never given twice, so that no later thread is taken for
//!    an owner that has ended.
//! 3. *Which way in, which way out.* `gate` is `HELD` exactly while somebody is inside through the
//!    gate: it becomes so only after `inside` was seen false under a `NOBODY` or `UNCLAIMED` owner.
//!    So `unlock` tells the two ways apart by `gate` alone. An owner that withdraws makes `inside`
//!    true for a moment, which nobody reads any more except one revoker that then waits a little.
//! 4. *What the sections have written.* The owner leaves by a release store of `inside`, which the
//!    revoker acquires; all others hand over by `gate`. The claim is made under the gate, so that an
//!    owner has seen everything from before.
//!
//! The tests compile this file a second time over a scheduler that explores interleavings.

use super::ground::{
    AtomicBool, AtomicU32, AtomicU64, CLAIM_AFTER, Ordering, can_fence_every_thread,
    compiler_fence, fence_every_thread, number_this_thread, pause, this_thread,
};

/// Nobody has the gate.
const FREE: u32 = 0;
/// Somebody is inside through the gate.
const HELD: u32 = 1;
/// Somebody has the gate and makes sure that no owner is inside.
const ENTERING: u32 = 2;

/// No thread has become the owner yet.
const UNCLAIMED: u64 = u64::MAX;
/// No thread will be the owner any more.
const NOBODY: u64 = u64::MAX - 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Biased {
    owner: AtomicU64,
    inside: AtomicBool,
    gate: AtomicU32,
    /// The thread that came through the gate last, and how often in a row; both are read and written
    /// with the gate held.
    last: AtomicU64,
    in_a_row: AtomicU32,
}

impl Default for Biased {
    fn default() -> Self {
        Biased {
            owner: AtomicU64::new(UNCLAIMED),
            inside: AtomicBool::new(false),
            gate: AtomicU32::new(FREE),
            last: AtomicU64::new(UNCLAIMED),
            in_a_row: AtomicU32::new(0),
        }
    }
}

impl Biased {
    #[inline]
    pub(crate) fn lock(&self) {
        // A thread without a number yet reads 0, which is no owner.
        let me = this_thread();
        if self.owner.load(Ordering::Relaxed) == me {
            debug_assert!(!self.inside.load(Ordering::Relaxed), "the lock is taken twice");
            self.inside.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.owner.load(Ordering::Acquire) == me {
                return;
            }
            self.inside.store(false, Ordering::Release);
        }
        self.lock_gate();
    }

    /// # Safety
    /// The caller is inside.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        if self.gate.load(Ordering::Relaxed) == HELD {
            self.gate.store(FREE, Ordering::Release);
        } else {
            self.inside.store(false, Ordering::Release);
        }
    }

    #[inline]
    fn lock_gate(&self) {
        // `NOBODY` is final, so that it may be read before the gate is taken.
        if self.owner.load(Ordering::Relaxed) == NOBODY {
            if !self.take_gate(HELD) {
                self.wait_for_gate(HELD);
            }
            return;
        }
        self.enter_before_revocation();
    }

    #[inline]
    fn take_gate(&self, target: u32) -> bool {
        self.gate.compare_exchange(FREE, target, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn wait_for_gate(&self, target: u32) {
        let mut turn = 0_u32;
        while self.gate.load(Ordering::Relaxed) != FREE || !self.take_gate(target) {
            pause(turn);
            turn = turn.wrapping_add(1);
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_before_revocation(&self) {
        let me = number_this_thread();
        if !self.take_gate(ENTERING) {
            self.wait_for_gate(ENTERING);
        }
        match self.owner.load(Ordering::Relaxed) {
            NOBODY => {}
            UNCLAIMED => self.note_entry(me),
            _ => self.revoke(),
        }
        self.gate.store(HELD, Ordering::Relaxed);
    }

    /// Counts how often the thread came in a row, and makes it the owner where that is often enough.
    /// It stays inside through the gate this once.
    fn note_entry(&self, me: u64) {
        let before = self.in_a_row.load(Ordering::Relaxed);
        // Not more than `CLAIM_AFTER`: then the owner is settled one way or the other.
        let in_a_row = if self.last.load(Ordering::Relaxed) == me { before + 1 } else { 1 };
        self.last.store(me, Ordering::Relaxed);
        self.in_a_row.store(in_a_row, Ordering::Relaxed);
        if in_a_row >= CLAIM_AFTER {
            let owner = if can_fence_every_thread() { me } else { NOBODY };
            self.owner.store(owner, Ordering::Relaxed);
        }
    }

    fn revoke(&self) {
        self.owner.store(NOBODY, Ordering::Relaxed);
        fence_every_thread();
        let mut turn = 0_u32;
        while self.inside.load(Ordering::Acquire) {
            pause(turn);
            turn = turn.wrapping_add(1);
        }
    }
}
