//! Data-parallel loops on the processor: one pool of threads, which the caller is one of.
//!
//! A region is a list of phases, each a number of items; threads take items in order, and an item
//! begins only when all of the phases before it are done. So a whole layer is one region: its
//! threads are woken once, and wait for each other at the borders of phases alone. A phase of one item
//! is done by the thread that ends the one before it, which costs no border. Which thread takes which
//! item never changes a result.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use pool::Pool;

mod pool;
mod share;

pub(super) use share::Share;

/// Threads that the pool is to have; 0 until somebody says so.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static POOL: OnceLock<Pool> = OnceLock::new();
/// Held by who has the pool.
static CALLER: Mutex<()> = Mutex::new(());
static REGIONS: AtomicU64 = AtomicU64::new(0);
static BORDERS: AtomicU64 = AtomicU64::new(0);

/// Fixes the number of compute threads, the caller's included, and starts them. Without this the
/// pool has one for each processor. Only the first call counts.
pub fn start_threads(count: NonZeroUsize) {
    WANTED.store(count.get(), Ordering::Relaxed);
    pool();
}

fn pool() -> &'static Pool {
    POOL.get_or_init(|| {
        let wanted = NonZeroUsize::new(WANTED.load(Ordering::Relaxed));
        let count = wanted.or_else(|| std::thread::available_parallelism().ok());
        Pool::start(count.map_or(1, NonZeroUsize::get))
    })
}

/// Compute threads, the caller's included.
pub(super) fn threads() -> usize {
    pool().threads()
}

/// How often threads were brought together since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joins {
    /// Regions: the threads were woken at the start and waited for at the end.
    pub regions: u64,
    /// Borders between phases within regions, at which threads waited for each other.
    pub borders: u64,
}

/// Counts of this process, for tests and benchmarks.
pub fn joins() -> Joins {
    Joins { regions: REGIONS.load(Ordering::Relaxed), borders: BORDERS.load(Ordering::Relaxed) }
}

/// Calls `work` with the number of a phase and of an item within it, for `phases[i]` items of each
/// phase `i`, each once, on some thread.
pub(super) fn run(phases: &[usize], work: &(dyn Fn(usize, usize) + Sync)) {
    let pool = pool();
    // Who finds the pool taken, by another caller or because it is within a region itself, works
    // alone.
    let taken = (pool.threads() > 1).then(|| CALLER.try_lock().ok()).flatten();
    if taken.is_none() {
        for (phase, &items) in phases.iter().enumerate() {
            (0..items).for_each(|item| work(phase, item));
        }
        return;
    }
    REGIONS.fetch_add(1, Ordering::Relaxed);
    BORDERS.fetch_add(pool::borders(phases) as u64, Ordering::Relaxed);
    pool.run(phases, work);
}

/// Calls `work` for items 0 to `items`, each on some thread.
pub(super) fn for_each(items: usize, work: impl Fn(usize) + Sync) {
    run(&[items], &|_, item| work(item));
}

/// Part number `item` of `items` nearly equal parts of `0..all`.
pub(super) fn part(all: usize, item: usize, items: usize) -> std::ops::Range<usize> {
    item * all / items..(item + 1) * all / items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_after_all_of_the_phases_before() {
        let phases = [1, 3, 0, 100, 1, 1, 0, 1, 7, 1];
        for _ in 0..200 {
            let done: Vec<AtomicUsize> = phases.iter().map(|_| AtomicUsize::new(0)).collect();
            run(&phases, &|phase, item| {
                assert!(item < phases[phase]);
                for earlier in 0..phase {
                    assert_eq!(done[earlier].load(Ordering::SeqCst), phases[earlier]);
                }
                done[phase].fetch_add(1, Ordering::SeqCst);
            });
            for (done, &items) in done.iter().zip(&phases) {
                assert_eq!(done.load(Ordering::SeqCst), items);
            }
        }
    }

    #[test]
    fn a_region_within_a_region_is_worked_on_alone() {
        let count = AtomicUsize::new(0);
        for_each(8, |_| for_each(8, |_| _ = count.fetch_add(1, Ordering::SeqCst)));
        assert_eq!(count.into_inner(), 64);
    }

    #[test]
    fn parts_cover_everything() {
        for (all, items) in [(10, 3), (2, 5), (0, 2), (7, 7)] {
            let covered: Vec<usize> = (0..items).flat_map(|item| part(all, item, items)).collect();
            assert_eq!(covered, (0..all).collect::<Vec<_>>());
        }
    }
}
