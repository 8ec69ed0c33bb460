//! Memory over windows of decode steps.

use formats::cell_report::MemoryWindow;

use super::device::Monitor;
use crate::decode::{Pass, StepObserver};

pub(super) const WINDOW_STEPS: u64 = 64;

/// Notes the resident set and the device's memory at the end of each window of decode steps, and
/// passes everything on.
pub(super) struct WindowObserver<'a> {
    inner: &'a mut dyn StepObserver,
    monitor: &'a Monitor,
    windows: Vec<MemoryWindow>,
    steps: u64,
}

impl<'a> WindowObserver<'a> {
    pub(super) fn new(inner: &'a mut dyn StepObserver, monitor: &'a Monitor) -> Self {
        Self { inner, monitor, windows: Vec::new(), steps: 0 }
    }

    /// The windows so far; the last one may be shorter.
    pub(super) fn finish(mut self) -> Vec<MemoryWindow> {
        self.close();
        self.windows
    }

    fn close(&mut self) {
        if self.steps > 0 {
            let first_step = self.windows.last().map_or(0, |last| last.first_step + last.steps);
            let mut window =
                MemoryWindow { first_step, steps: self.steps, ..MemoryWindow::default() };
            self.monitor.end_window(&mut window);
            self.windows.push(window);
        }
        self.steps = 0;
    }
}

impl StepObserver for WindowObserver<'_> {
    fn before_pass(&mut self, pass: Pass) {
        self.inner.before_pass(pass);
    }

    fn before_decode_step(&mut self) {
        self.inner.before_decode_step();
    }

    fn before_forward(&mut self, seq_len: usize) {
        self.inner.before_forward(seq_len);
    }

    fn after_decode_step(&mut self, step: usize) {
        self.inner.after_decode_step(step);
        self.steps += 1;
        if self.steps == WINDOW_STEPS {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::NoObserver;

    #[test]
    fn windows_cover_all_steps_without_gaps() {
        let mut inner = NoObserver;
        let monitor = Monitor::new(&candle_core::Device::Cpu);
        let mut observer = WindowObserver::new(&mut inner, &monitor);
        for step in 0..130 {
            observer.after_decode_step(step);
        }
        let windows: Vec<_> = observer.finish().iter().map(|w| (w.first_step, w.steps)).collect();
        assert_eq!(windows, [(0, 64), (64, 64), (128, 2)]);
    }
}
