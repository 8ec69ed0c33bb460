//! What the biased lock stands on, over the scheduler: every access is a point where another thread
//! may go on. The scheduler's memory is sequentially consistent, so that the barrier on all threads
//! has nothing to do here; the lock's own tests are there for it.

use std::cell::Cell;
use std::sync::atomic::AtomicU64 as Unscheduled;

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub(crate) const CLAIM_AFTER: u32 = 2;

static NEXT_NUMBER: Unscheduled = Unscheduled::new(1);

shuttle::thread_local! {
    static NUMBER: Cell<u64> = Cell::new(0);
}

pub(crate) fn this_thread() -> u64 {
    NUMBER.with(Cell::get)
}

pub(crate) fn number_this_thread() -> u64 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

pub(crate) fn pause(_turn: u32) {
    shuttle::thread::yield_now();
}

pub(crate) fn compiler_fence(_order: Ordering) {}

pub(crate) fn can_fence_every_thread() -> bool {
    true
}

pub(crate) fn fence_every_thread() {
    shuttle::thread::yield_now();
}
