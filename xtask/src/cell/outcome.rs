//! What came of a cell that was launched: its class, its numbers, and what was seen of its process.

use super::child::ChildEnd;
use super::classify::{
    Classification, DecidedBy, Ending, ExitKind, ResultState, StopReason, classify,
};
use super::journal::{Evidence, ProcessNote};
use super::quiet::QuietNote;
use super::result::CellNumbers;

/// Lines of stderr that a failed cell's evidence keeps.
const STDERR_TAIL_LINES: usize = 5;

/// What came of a cell that was launched.
#[derive(Debug)]
pub(crate) struct CellOutcome {
    /// Why there are no numbers; `None` where it was measured.
    pub(crate) classification: Option<Classification>,
    pub(crate) decided_by: DecidedBy,
    /// The numbers, or why there are none, in words. A failed cell may have some.
    pub(crate) numbers: Result<CellNumbers, String>,
    pub(crate) end: ChildEnd,
    /// What was seen around it; `None` where nobody watched.
    pub(crate) quiet: Option<QuietNote>,
}

impl CellOutcome {
    /// Judges a process that ended, by its end and by what its result holds.
    pub(crate) fn new(end: ChildEnd, numbers: Result<CellNumbers, String>) -> CellOutcome {
        let (classification, decided_by) = classify(&Ending {
            exit: end.exit,
            stopped: end.stopped,
            pattern: end.pattern.clone(),
            result: if numbers.is_ok() { ResultState::Numbers } else { ResultState::Missing },
        });
        CellOutcome { classification, decided_by, numbers, end, quiet: None }
    }

    /// Whether it ended because the whole run was interrupted, so that it says nothing.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.end.stopped == Some(StopReason::Interrupt)
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let end = &self.end;
        Evidence {
            decided_by: Some(self.decided_by),
            pattern: end.pattern.as_ref().map(|found| found.pattern.to_owned()),
            line: end.pattern.as_ref().map(|found| found.line.clone()),
            result_problem: self.numbers.as_ref().err().cloned(),
            cgroup_oom_kills: end.cgroup_oom_kills,
            available_low_bytes: end.available_low_bytes,
            stderr_tail: match self.classification {
                Some(_) => end.stderr.last_lines(STDERR_TAIL_LINES),
                None => Vec::new(),
            },
        }
    }

    pub(crate) fn process_note(&self) -> ProcessNote {
        let end = &self.end;
        let (exit_code, signal) = match end.exit {
            ExitKind::Code(code) => (Some(code), None),
            ExitKind::Signal(signal) => (None, Some(signal)),
        };
        ProcessNote {
            exit_code,
            signal,
            stopped: end.stopped,
            wall_ms: end.wall.as_secs_f64() * 1e3,
            cpu_ms: end.cpu.as_secs_f64() * 1e3,
            rss_peak_bytes: end.rss_peak_bytes,
            output_bytes: end.stdout.total_bytes() + end.stderr.total_bytes(),
            omitted_output_bytes: end.stdout.omitted_bytes() + end.stderr.omitted_bytes(),
        }
    }

    /// What decided, in words for a status line.
    pub(crate) fn describe(&self) -> String {
        let end = &self.end;
        let exit = end.exit;
        match self.decided_by {
            DecidedBy::Pattern => {
                let line = end.pattern.as_ref().map(|found| found.line.as_str());
                format!("{exit}, and the output says `{}`", line.unwrap_or_default())
            }
            DecidedBy::Sigkill => {
                let kills = end.cgroup_oom_kills.filter(|&kills| kills > 0);
                let kernel = kills.map(|n| format!(", kernel OOM kills in this cgroup: {n}"));
                format!("{exit}, not sent by the harness{}", kernel.unwrap_or_default())
            }
            DecidedBy::Timeout => format!("{exit}, over its time limit"),
            DecidedBy::NoResult | DecidedBy::Result => {
                self.numbers.as_ref().err().cloned().unwrap_or_default()
            }
            DecidedBy::Failure => match end.stderr.last_lines(1).pop() {
                Some(line) => format!("{exit}: {line}"),
                None => exit.to_string(),
            },
        }
    }
}
