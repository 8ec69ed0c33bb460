//! Progress on stderr: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows how far a run is. Lines that are logged meanwhile go through it, so that they do not
/// break the bar.
#[derive(Debug)]
pub(crate) struct Progress {
    /// `None` where stderr is not a terminal.
    bar: Option<ProgressBar>,
    is_quiet: bool,
}

impl Progress {
    pub(crate) fn start(steps: usize) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress { bar: None, is_quiet: false };
        }
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress { bar: Some(bar), is_quiet: false }
    }

    /// The same, or one that says nothing at all.
    pub(crate) fn start_unless(is_quiet: bool, steps: usize) -> Progress {
        if is_quiet { Progress { bar: None, is_quiet } } else { Progress::start(steps) }
    }

    /// Says what is being done, and how it stands.
    pub(crate) fn set_status(&self, done: usize, status: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
            bar.set_message(status.to_owned());
        }
    }

    pub(crate) fn log(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| super::terminal::log(line)),
            None if self.is_quiet => {}
            None => super::terminal::log(line),
        }
    }

    /// Whether lines are all there is to see.
    pub(crate) fn is_plain(&self) -> bool {
        self.bar.is_none()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
