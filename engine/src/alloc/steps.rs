//! What the allocator did in each decode step, for the cell report.
//!
//! Nothing here allocates during the decode loop: room for the steps is made beforehand.

use formats::cell_report::{AllocatorReport, Memory, MemoryWindow};

use crate::alloc::cache::Cache;
use crate::alloc::driver::Driver;
use crate::alloc::lock::RawLock;
use crate::alloc::peaks::{PeakWindow, Peaks};
use crate::alloc::policy::Action;
use crate::alloc::stats::{Counters, Known, Line, Snapshot};

/// An allocator that decode steps can be watched through.
pub trait Monitored {
    /// Applies the policy before a forward over `seq_len` tokens.
    fn before_forward(&self, seq_len: usize) -> Action;
    /// Everything that can be read, at one moment.
    fn snapshot(&self) -> Snapshot;
    /// Opens a window over the peaks that the caller alone reads.
    fn open_window(&self) -> PeakWindow;
    /// Reads the window and starts it anew at the current values.
    fn restart_window(&self, window: &PeakWindow) -> Peaks;
    /// What this allocator can tell.
    fn known(&self) -> Known;
}

impl<D: Driver, L: RawLock> Monitored for Cache<D, L> {
    fn before_forward(&self, seq_len: usize) -> Action {
        Cache::before_forward(self, seq_len)
    }
    fn snapshot(&self) -> Snapshot {
        Cache::snapshot(self)
    }
    fn open_window(&self) -> PeakWindow {
        Cache::open_window(self)
    }
    fn restart_window(&self, window: &PeakWindow) -> Peaks {
        Cache::restart_window(self, window)
    }
    fn known(&self) -> Known {
        Known::ALL
    }
}

/// How decode steps are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLogConfig {
    /// Decode steps that room is made for; later ones are not recorded one by one.
    pub steps: usize,
    /// Decode steps in one memory window.
    pub window_steps: u64,
    /// Every that many steps a line for people; `None` is never.
    pub stats_steps: Option<u64>,
}

/// Records the decode steps of one measured pass.
#[derive(Debug)]
pub struct StepLog<'a, M> {
    monitored: &'a M,
    config: StepLogConfig,
    window: PeakWindow,
    line_window: PeakWindow,
    window_first_step: u64,
    step: u64,
    before_step: Counters,
    before_line: Counters,
    line_first_step: u64,
    deltas: Vec<Counters>,
    windows: Vec<MemoryWindow>,
}

impl<'a, M: Monitored> StepLog<'a, M> {
    /// Starts to record: the first step begins now.
    pub fn start(monitored: &'a M, config: StepLogConfig) -> Self {
        let window_steps = config.window_steps.max(1);
        let deltas = Vec::with_capacity(config.steps);
        let windows = Vec::with_capacity(config.steps / window_steps as usize + 1);
        let counters = monitored.snapshot().counters;
        StepLog {
            monitored,
            config: StepLogConfig { window_steps, ..config },
            window: monitored.open_window(),
            line_window: monitored.open_window(),
            window_first_step: 0,
            step: 0,
            before_step: counters,
            before_line: counters,
            line_first_step: 0,
            deltas,
            windows,
        }
    }

    /// Begins a decode step: what came before it is not counted to it.
    pub fn begin_decode_step(&mut self) {
        self.before_step = self.monitored.snapshot().counters;
        if self.step == self.line_first_step {
            self.before_line = self.before_step;
        }
    }

    /// Ends a decode step. Returns the line for people where one is due.
    pub fn after_decode_step(&mut self) -> Option<String> {
        let now = self.monitored.snapshot();
        if self.deltas.len() < self.deltas.capacity() {
            self.deltas.push(now.counters.since(&self.before_step));
        }
        self.before_step = now.counters;
        self.step += 1;
        if self.step - self.window_first_step == self.config.window_steps {
            self.end_window(&now);
        }
        let line_steps = self.step - self.line_first_step;
        if self.config.stats_steps != Some(line_steps) {
            return None;
        }
        let delta = now.counters.since(&self.before_line);
        let peaks = self.monitored.restart_window(&self.line_window);
        self.before_line = now.counters;
        self.line_first_step = self.step;
        let line = Line { step: self.step, steps: line_steps, delta: &delta, peaks, now: &now };
        Some(line.render(self.monitored.known()))
    }

    fn end_window(&mut self, now: &Snapshot) {
        let peaks = self.monitored.restart_window(&self.window);
        let known = self.monitored.known().peaks.then_some(peaks);
        let held = self.monitored.known().held_bytes.then_some(now.gauges.held_bytes);
        if self.windows.len() < self.windows.capacity() {
            self.windows.push(MemoryWindow {
                first_step: self.window_first_step,
                steps: self.step - self.window_first_step,
                live_peak_bytes: known.map(|peaks| peaks.live_bytes),
                idle_peak_bytes: known.map(|peaks| peaks.idle_bytes),
                total_peak_bytes: known.map(|peaks| peaks.total_bytes),
                held_end_bytes: held,
                ..MemoryWindow::default()
            });
        }
        self.window_first_step = self.step;
    }

    /// The records: the counters for the report, and the windows in order.
    pub fn finish(mut self) -> (AllocatorReport, Vec<MemoryWindow>) {
        let now = self.monitored.snapshot();
        if self.step > self.window_first_step {
            self.end_window(&now);
        }
        let to_report = |counters: &Counters| {
            let mut report = counters.to_report();
            report.host_ns = report.host_ns.filter(|_| self.monitored.known().driver_time);
            report
        };
        let report = AllocatorReport {
            totals: to_report(&now.counters),
            decode_steps: self.deltas.iter().map(to_report).collect(),
        };
        (report, self.windows)
    }
}

/// Fills the gauges and lifetime peaks of a report's memory section.
pub fn fill_memory(memory: &mut Memory, monitored: &impl Monitored) {
    let snapshot = monitored.snapshot();
    let known = monitored.known();
    memory.live_bytes = known.held_bytes.then_some(snapshot.gauges.live_bytes);
    memory.idle_bytes = known.held_bytes.then_some(snapshot.gauges.idle_bytes);
    let peaks = known.peaks.then_some(snapshot.peaks);
    memory.live_peak_bytes = peaks.map(|peaks| peaks.live_bytes);
    memory.idle_peak_bytes = peaks.map(|peaks| peaks.idle_bytes);
    memory.total_peak_bytes = peaks.map(|peaks| peaks.total_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::cache::{Config, FreeRequest, Request};
    use crate::alloc::driver::sim::SimDriver;

    fn step(cache: &Cache<SimDriver>, bytes: u64) {
        cache.before_forward(1);
        let address = cache.alloc(Request::of_bytes(bytes)).unwrap().address;
        // SAFETY: the simulated driver has no memory behind its addresses.
        unsafe { cache.free(FreeRequest::of(address)) };
    }

    #[test]
    fn each_step_has_its_own_counts_and_each_window_its_own_peaks() {
        let cache: Cache<SimDriver> = Cache::new(SimDriver::new(), Config::default());
        step(&cache, 1 << 20);
        cache.before_forward(8);
        let config = StepLogConfig { steps: 10, window_steps: 4, stats_steps: Some(5) };
        let mut log = StepLog::start(&cache, config);
        let lines = (0..10).filter_map(|i| {
            log.begin_decode_step();
            step(&cache, 1000 + 600 * (i / 4));
            log.after_decode_step()
        });
        assert_eq!(lines.count(), 2);
        let (report, windows) = log.finish();
        let driver_allocs: Vec<u64> =
            report.decode_steps.iter().map(|step| step.driver_allocs).collect();
        assert_eq!(driver_allocs, [1, 0, 0, 0, 1, 0, 0, 0, 1, 0]);
        let spans: Vec<_> = windows.iter().map(|w| (w.first_step, w.steps)).collect();
        assert_eq!(spans, [(0, 4), (4, 4), (8, 2)]);
        let totals: Vec<_> = windows.iter().map(|w| w.total_peak_bytes.unwrap()).collect();
        assert_eq!(totals, [1024, 1024 + 2048, 1024 + 2048 + 2560], "not the megabyte from before");
        assert_eq!(report.totals.requests, 11);
    }

    #[test]
    fn steps_beyond_those_announced_are_not_lost_from_the_totals() {
        let cache: Cache<SimDriver> = Cache::new(SimDriver::new(), Config::default());
        let config = StepLogConfig { steps: 2, window_steps: 1, stats_steps: None };
        let mut log = StepLog::start(&cache, config);
        for _ in 0..5 {
            step(&cache, 100);
            assert_eq!(log.after_decode_step(), None);
        }
        let (report, _) = log.finish();
        assert_eq!((report.decode_steps.len(), report.totals.requests), (2, 5));
    }
}
