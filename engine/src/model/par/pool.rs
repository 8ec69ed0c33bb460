//! The threads: they spin for a moment between regions, then sleep.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Turns of the loop that a thread waits in before it lets others have the processor: about a tenth
/// of a millisecond, longer than what lies between two regions of a decode step.
const SPINS: u32 = 1 << 12;

/// More than any region has items: what `done` is set to where items will never be done.
const ABANDONED: usize = 1 << 60;

/// The lowest bits of the state: threads that are within the region.
const INSIDE: u64 = (1 << 16) - 1;
/// Set while a region may be entered.
const OPEN: u64 = 1 << 16;
/// Added for each region.
const EPOCH: u64 = 1 << 17;

#[derive(Clone, Copy)]
struct Job {
    /// Borrowed by [`Pool::run`] for as long as a thread may be within the region.
    work: *const (dyn Fn(usize, usize) + Sync),
    phases: *const [usize],
}

struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    /// The next ticket, counted over all stages.
    next: AtomicUsize,
    /// Items that are done, over all phases.
    done: AtomicUsize,
    panicked: AtomicBool,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is written only while the region is closed and nobody is inside, and read only by
// threads that are inside; what it points to may be shared (`Sync`).
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing belongs to one thread.
unsafe impl Send for Shared {}

pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: usize,
}

impl Pool {
    /// Starts `threads - 1` threads, which last as long as the process.
    pub(super) fn start(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut started = 1;
        for index in 1..threads.min(INSIDE as usize) {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("arc-compute-{index}"));
            // With fewer threads than wanted the work is done all the same.
            if builder.spawn(move || shared.serve()).is_err() {
                break;
            }
            started += 1;
        }
        Self { shared, threads: started }
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs a region. Must not be called by two threads at once.
    pub(super) fn run(&self, phases: &[usize], work: &(dyn Fn(usize, usize) + Sync)) {
        let shared = &*self.shared;
        shared.next.store(0, Ordering::Relaxed);
        shared.done.store(0, Ordering::Relaxed);
        // SAFETY: only the lifetime changes, and this function returns only when nobody is inside
        // any more.
        let work = unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize, usize) + Sync + '_),
                *const (dyn Fn(usize, usize) + Sync + 'static),
            >(work)
        };
        // SAFETY: the region is closed and nobody is inside, so nobody reads.
        unsafe { *shared.job.get() = Some(Job { work, phases }) };
        shared.state.fetch_add(EPOCH | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = shared.sleep.lock();
            shared.wake.notify_all();
        }
        let closing = Closing(shared);
        shared.work();
        drop(closing);
        if shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a compute thread panicked");
        }
    }
}

/// Closes the region and waits until everybody has left, even where the caller's own work panics.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!OPEN, Ordering::SeqCst);
        wait_until(|| self.0.state.load(Ordering::Acquire) & INSIDE == 0);
    }
}

/// Spins, and after a while lets others have the processor between looks.
fn wait_until(ready: impl Fn() -> bool) {
    let mut spins = 0;
    while !ready() {
        if spins < SPINS {
            spins += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

impl Shared {
    /// A thread's life: waits for a region, enters, works, leaves.
    fn serve(&self) {
        let mut last = 0;
        loop {
            let state = self.wait_for_region(last);
            last = state & !(INSIDE | OPEN);
            let entered = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| {
                (now & OPEN != 0 && now & !(INSIDE | OPEN) == last).then_some(now + 1)
            });
            if entered.is_ok() {
                let work = std::panic::AssertUnwindSafe(|| self.work());
                if std::panic::catch_unwind(work).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                self.state.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// The state, once a region is open that is not of the epoch `last`.
    fn wait_for_region(&self, last: u64) -> u64 {
        let open = |state: u64| state & OPEN != 0 && state & !(INSIDE | OPEN) != last;
        loop {
            for _ in 0..SPINS {
                let state = self.state.load(Ordering::Acquire);
                if open(state) {
                    return state;
                }
                std::hint::spin_loop();
            }
            let Ok(guard) = self.sleep.lock() else { continue };
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            // The caller opens first and looks for sleepers then, so either it sees this one or
            // this one sees the region.
            if !open(self.state.load(Ordering::SeqCst)) {
                drop(self.wake.wait(guard));
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Takes items until none is left, and waits until all are done.
    fn work(&self) {
        // SAFETY: this thread is inside of the region (or is the caller), so the job is set and what
        // it borrows is alive.
        let (work, phases) = unsafe {
            let job = (*self.job.get()).expect("an open region has a job");
            (&*job.work, &*job.phases)
        };
        let mut stages = Stages::new(phases);
        let mut stage = stages.next();
        loop {
            let ticket = self.next.fetch_add(1, Ordering::Relaxed);
            while stage.as_ref().is_some_and(|stage| ticket >= stage.first_ticket + stage.items) {
                stage = stages.next();
            }
            // Everything of the stages before; at the end, everything.
            let before = stage.as_ref().map_or(stages.items, |stage| stage.first);
            if self.done.load(Ordering::Acquire) < before {
                wait_until(|| self.done.load(Ordering::Acquire) >= before);
            }
            let Some(stage) = &stage else { return };
            let abandon = Abandon(self);
            work(stage.phase, ticket - stage.first_ticket);
            // Whoever does the last item goes on with what is one item, and the others wait once.
            if self.done.fetch_add(1, Ordering::AcqRel) + 1 == stage.first + stage.items {
                for phase in stage.tails.clone().filter(|&phase| phases[phase] == 1) {
                    work(phase, 0);
                    self.done.fetch_add(1, Ordering::Release);
                }
            }
            std::mem::forget(abandon);
        }
    }
}

/// A phase whose items threads take, and those of a single item that follow: its tails.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stage {
    phase: usize,
    items: usize,
    /// Tickets of the stages before.
    first_ticket: usize,
    /// Items of all phases before.
    first: usize,
    /// Phases with one item, or none.
    tails: Range<usize>,
}

/// The stages of a region, in order.
struct Stages<'a> {
    phases: &'a [usize],
    phase: usize,
    tickets: usize,
    /// Items of the phases that were passed.
    items: usize,
}

impl<'a> Stages<'a> {
    fn new(phases: &'a [usize]) -> Self {
        Self { phases, phase: 0, tickets: 0, items: 0 }
    }
}

impl Iterator for Stages<'_> {
    type Item = Stage;

    fn next(&mut self) -> Option<Stage> {
        let rest = &self.phases[self.phase..];
        let phase = self.phase + rest.iter().position(|&items| items > 0)?;
        let items = self.phases[phase];
        let after = &self.phases[phase + 1..];
        let tails = after.iter().position(|&items| items > 1).unwrap_or(after.len());
        let tails = phase + 1..phase + 1 + tails;
        let (first_ticket, first) = (self.tickets, self.items);
        self.tickets += items;
        self.items += items + self.phases[tails.clone()].iter().sum::<usize>();
        self.phase = tails.end;
        Some(Stage { phase, items, first_ticket, first, tails })
    }
}

/// Borders at which threads wait for each other.
pub(super) fn borders(phases: &[usize]) -> usize {
    Stages::new(phases).count().saturating_sub(1)
}

/// Dropped where an item panics: nobody waits for what will not be done.
struct Abandon<'a>(&'a Shared);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.next.fetch_max(ABANDONED, Ordering::Relaxed);
        self.0.done.fetch_max(ABANDONED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_one_item_are_tails_of_those_before() {
        let stages = |phases| Stages::new(phases).collect::<Vec<_>>();
        let stage = |phase, items, first_ticket, first, tails| Stage {
            phase,
            items,
            first_ticket,
            first,
            tails,
        };
        assert_eq!(
            stages(&[0, 1, 1, 4, 0, 1, 1, 3]),
            [stage(1, 1, 0, 0, 2..3), stage(3, 4, 1, 2, 4..7), stage(7, 3, 5, 8, 8..8)]
        );
        assert_eq!(stages(&[0, 0]), []);
        assert_eq!(stages(&[1]), [stage(0, 1, 0, 0, 1..1)]);
        assert_eq!((borders(&[1, 1, 4, 1, 3, 1]), borders(&[2]), borders(&[])), (2, 0, 0));
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::start(3);
        for bad in 0..6 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pool.run(&[3, 1, 2], &|phase, item| {
                    assert!([0, 3, 4][phase] + item != bad, "item {bad}");
                });
            }));
            assert!(result.is_err(), "item {bad}");
            let count = AtomicUsize::new(0);
            pool.run(&[50], &|_, _| _ = count.fetch_add(1, Ordering::Relaxed));
            assert_eq!(count.into_inner(), 50);
        }
    }
}
