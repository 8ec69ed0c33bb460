//! The one way from a planned cell to a classified one.
//!
//! A session holds the guard and the executor. For each cell it asks the guard, notes the launch
//! before it happens, watches the machine, classifies what came of it, notes the end, and remembers
//! a true OOM in the guard and in the record, in this order: a kill at any moment loses nothing that
//! was measured, and no cell is launched past the guard. What a note looks like is the command's
//! business ([`Ledger`]).

use std::collections::BTreeMap;
use std::time::Duration;

use super::child::{ChildEnd, ChildSpec};
use super::classify::Classification;
use super::executor::Executor;
use super::grid::Cell;
use super::guard::{Admission, Guard};
use super::outcome::CellOutcome;
use super::quiet::{QuietLimits, Stretch, check_quiet};
use super::result::{CellNumbers, Leavings, parse_result};
use super::runner::ResultFormat;
use super::serving::figures::numbers_of;
use super::spec::CellSpec;
use crate::oom_record::OomEntry;
use crate::sys::boot::is_another_boot;

mod health;

use health::{Fit, HealthWatch};

/// A report beyond this size is not read.
const REPORT_LIMIT_BYTES: u64 = 64 << 20;

/// Where a command keeps what happens to its cells. Each call returns when it is on disk.
pub(crate) trait Ledger {
    /// A process is about to be started.
    ///
    /// # Errors
    /// When it cannot be kept; the cell is then not launched.
    fn note_launch(&mut self, note: LaunchNote) -> anyhow::Result<()>;

    /// A cell has ended, one way or another.
    fn note_end(&mut self, end: &End) -> anyhow::Result<()>;
}

/// A launch as it is noted before it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaunchNote {
    pub(crate) time: String,
    pub(crate) boot: String,
    pub(crate) command: Vec<String>,
    pub(crate) environment: BTreeMap<String, Option<String>>,
}

#[derive(Debug)]
pub(crate) enum End {
    /// The guard forbids it.
    Refused { class: Classification, reason: String },
    /// It was not launched and counts as if it had been.
    Faked(Classification),
    /// Its process could not be started.
    NotStarted(String),
    /// Its process ended; [`CellOutcome::was_interrupted`] where the run was ended with it.
    Ran(Box<CellOutcome>),
    /// The run was interrupted before the process was started.
    Interrupted,
}

impl End {
    /// The class of its row: `None` where it was measured or interrupted.
    pub(crate) fn classification(&self) -> Option<Classification> {
        match self {
            End::Refused { class, .. } | End::Faked(class) => Some(*class),
            End::NotStarted(_) => Some(Classification::FailBench),
            End::Ran(outcome) if outcome.was_interrupted() => None,
            End::Ran(outcome) => outcome.classification,
            End::Interrupted => None,
        }
    }

    /// Whether the run was interrupted, so that the cell says nothing.
    pub(crate) fn was_interrupted(&self) -> bool {
        match self {
            End::Interrupted => true,
            End::Ran(outcome) => outcome.was_interrupted(),
            End::Refused { .. } | End::Faked(_) | End::NotStarted(_) => false,
        }
    }

    /// What disturbed a cell that was measured, in words.
    pub(crate) fn disturbance(&self) -> Option<String> {
        match self {
            End::Ran(outcome) if self.classification().is_none() && !self.was_interrupted() => {
                outcome.disturbance()
            }
            _ => None,
        }
    }

    fn peak_bytes(&self) -> Option<u64> {
        match self {
            End::Ran(outcome) => outcome.end.rss_peak_bytes,
            _ => None,
        }
    }
}

/// How the machine is watched around a launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Watch {
    /// How long before the launch; the pause between two cells serves.
    pub(crate) pause: Duration,
    /// Load is judged over runs of at least this length: the system counts it in hundredths of a second.
    pub(crate) shortest: Duration,
    pub(crate) limits: QuietLimits,
}

/// Whom a true OOM is attributed to in the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finder {
    /// The commit that is measured.
    pub(crate) commit: String,
    /// The file that holds the cell's row or its samples, relative to the workspace.
    pub(crate) source: String,
    /// The command, where it is not a sweep.
    pub(crate) command: Option<&'static str>,
}

/// Runs cells, one at a time, past the guard.
pub(crate) struct Session<E> {
    executor: E,
    guard: Guard,
    finder: Finder,
    health: Option<HealthWatch>,
}

impl<E: Executor> Session<E> {
    pub(crate) fn new(executor: E, guard: Guard, finder: Finder) -> Session<E> {
        Session { executor, guard, finder, health: None }
    }

    /// Launches nothing more once a cell has left the driver of a GPU ill: [`Session::run`] is then an
    /// error. Sweeps look themselves, since they have pauses and a journal of their own for it.
    pub(crate) fn watching_health(self) -> Session<E> {
        Session { health: Some(HealthWatch::default()), ..self }
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn executor(&mut self) -> &mut E {
        &mut self.executor
    }

    /// Where true OOMs are said to come from, once it is known.
    pub(crate) fn set_source(&mut self, source: String) {
        self.finder.source = source;
    }

    /// Runs a cell whose result is read as its runner writes it.
    pub(crate) fn run(
        &mut self,
        cell: Cell<'_>,
        spec: &CellSpec<'_>,
        watch: Option<Watch>,
        ledger: &mut impl Ledger,
    ) -> anyhow::Result<End> {
        self.run_with(cell, spec, watch, ledger, |executor, end| read_numbers(executor, spec, end))
    }

    /// Runs a cell whose result `read` knows how to read: the numbers, or why there are none.
    pub(crate) fn run_with(
        &mut self,
        cell: Cell<'_>,
        spec: &CellSpec<'_>,
        watch: Option<Watch>,
        ledger: &mut impl Ledger,
        read: impl FnOnce(&mut E, &ChildEnd) -> Result<CellNumbers, String>,
    ) -> anyhow::Result<End> {
        let end = match self.guard.admit(cell) {
            Admission::Refuse { class, reason } => End::Refused { class, reason },
            Admission::Fake(class) => End::Faked(class),
            Admission::Launch => self.launch(spec, watch, ledger, read)?,
        };
        ledger.note_end(&end)?;
        if end.classification().is_some_and(Classification::is_true_oom) {
            self.guard.note_true_oom(&cell.name(), cell.len);
            self.append_record(&cell.name(), cell.len, end.peak_bytes())?;
        }
        Ok(end)
    }

    fn launch(
        &mut self,
        spec: &CellSpec<'_>,
        watch: Option<Watch>,
        ledger: &mut impl Ledger,
        read: impl FnOnce(&mut E, &ChildEnd) -> Result<CellNumbers, String>,
    ) -> anyhow::Result<End> {
        if let Some(health) = &mut self.health
            && health.check(&mut self.executor)? == Fit::Interrupted
        {
            return Ok(End::Interrupted);
        }
        let before = match watch {
            None => None,
            Some(watch) => match self.watch_pause(watch.pause) {
                Some(stretch) => Some(stretch),
                None => return Ok(End::Interrupted),
            },
        };
        let with_port = match spec.runner.server {
            None => None,
            Some(_) => match self.executor.find_free_port() {
                Ok(port) => Some(spec.with_port(port)),
                Err(error) => return Ok(End::NotStarted(format!("{error:#}"))),
            },
        };
        let spec = with_port.as_ref().unwrap_or(spec);
        ledger.note_launch(LaunchNote {
            time: self.executor.now(),
            boot: self.executor.boot_id().to_owned(),
            command: spec.command(),
            environment: spec.environment(),
        })?;
        let child = match self.executor.run_child(&spec.child()) {
            Ok(child) => child,
            Err(error) => return Ok(End::NotStarted(format!("{error:#}"))),
        };
        let quiet = before.zip(watch).map(|(before, watch)| {
            let mut end = self.executor.sample_host();
            if child.wall < watch.shortest {
                end.busy = None;
            }
            let during = Stretch { start: before.end, end, wall: child.wall, own: child.cpu };
            check_quiet(&before, &during, child.lost, watch.limits)
        });
        let numbers = read(&mut self.executor, &child);
        let outcome = CellOutcome { quiet, ..CellOutcome::new(child, numbers, spec.asked()) };
        if let Some(health) = &mut self.health {
            health.note(&outcome);
        }
        Ok(End::Ran(Box::new(outcome)))
    }

    /// The pause before a run, watched: load within it is load before the run. `None` where an
    /// interrupt ended it.
    fn watch_pause(&mut self, pause: Duration) -> Option<Stretch> {
        let start = self.executor.sample_host();
        if pause.is_zero() {
            return Some(Stretch { start, end: start, wall: pause, own: Duration::ZERO });
        }
        let wall = self.executor.pause(pause)?;
        let end = self.executor.sample_host();
        Some(Stretch { start, end, wall, own: Duration::ZERO })
    }

    /// Starts a process that is not a cell: it measures nothing, so no guard stands before it.
    pub(crate) fn run_check(&mut self, spec: &ChildSpec) -> anyhow::Result<ChildEnd> {
        self.executor.run_child(spec)
    }

    /// Knows again a true OOM of this run that an earlier process of it saw.
    pub(crate) fn take_up_oom(&mut self, model: &str, len: u64) {
        self.guard.note_true_oom(model, len);
    }

    /// Appends a true OOM of an earlier process of this run whose line a kill kept from the record.
    pub(crate) fn repair_record(
        &mut self,
        model: &str,
        len: u64,
        peak_bytes: Option<u64>,
    ) -> anyhow::Result<()> {
        if self.guard.record().holds(model, len, &self.finder.source) {
            return Ok(());
        }
        self.append_record(model, len, peak_bytes)
    }

    fn append_record(
        &mut self,
        model: &str,
        len: u64,
        peak_bytes: Option<u64>,
    ) -> anyhow::Result<()> {
        let entry = OomEntry {
            model: model.to_owned(),
            prompt_target_len: len,
            date: self.executor.today(),
            commit: self.finder.commit.clone(),
            peak_bytes,
            source_csv: self.finder.source.clone(),
            found_by: self.finder.command.map(str::to_owned),
        };
        self.executor.record_oom(&entry)
    }
}

/// The result of a cell as its runner writes it.
fn read_numbers(
    executor: &mut impl Executor,
    spec: &CellSpec<'_>,
    end: &ChildEnd,
) -> Result<CellNumbers, String> {
    let format = spec.runner.result;
    if let Some(served) = &end.served {
        return match served {
            Ok(served) => numbers_of(served, spec.vars.prompt_tokens, spec.vars.max_tokens),
            Err(failure) => Err(failure.reason.clone()),
        };
    }
    let leavings = Leavings {
        stdout: end.stdout.text(),
        stdout_omitted_bytes: end.stdout.omitted_bytes(),
        stderr: end.stderr.text(),
        report: match format {
            ResultFormat::Report => executor.read_text(&spec.report_path(), REPORT_LIMIT_BYTES),
            ResultFormat::ProfileText
            | ResultFormat::LlamaBenchJson
            | ResultFormat::OpenaiStream
            | ResultFormat::Log => None,
        },
    };
    parse_result(format, spec.vars.prompt_tokens, &leavings)
}

/// What became of a launch that has no end in a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unended {
    /// The machine still runs as it did: the harness was killed, and the cell with it.
    HarnessKilled,
    /// The machine was started anew since, or it is not known.
    HostLost,
}

/// What became of a launch without an end, by the boot that it was noted with and the present one.
/// Where either is not known it may have taken the host down, and is not launched again unasked.
pub(crate) fn judge_unended(launch_boot: Option<&str>, boot: &str) -> Unended {
    match launch_boot {
        Some(then) if !then.is_empty() && !boot.is_empty() && !is_another_boot(then, boot) => {
            Unended::HarnessKilled
        }
        _ => Unended::HostLost,
    }
}

#[cfg(test)]
mod tests;
