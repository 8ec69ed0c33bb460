//! One cell: a runner's command, started for one model at one length, and what came of it.
//!
//! It owns the way from a runner's definition to a classified result, for every command that
//! measures. What follows from the class is the command's business.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::child::run::{ChildEnd, ChildSpec, run_child};
use crate::cell::classify::{
    Classification, DecidedBy, Ending, ExitKind, ResultState, StopReason, classify,
};
use crate::cell::journal::{Evidence, ProcessNote};
use crate::cell::result::{CellNumbers, Leavings, parse_result};
use crate::cell::runner::{CellVars, ResultFormat, Runner, render_command, render_env};
use crate::sys::interrupt::Interrupt;

/// A report beyond this size is none.
const REPORT_LIMIT_BYTES: u64 = 64 << 20;
/// Lines of stderr that a failed cell's evidence keeps.
const STDERR_TAIL_LINES: usize = 5;

/// What to launch.
#[derive(Debug, Clone)]
pub(crate) struct CellLaunch<'a> {
    /// The workspace, where the runner is started.
    pub(crate) root: &'a Path,
    /// How to measure.
    pub(crate) runner: &'a Runner,
    /// What the command line speaks of; its report's path is made by [`report_path`].
    pub(crate) vars: CellVars,
    /// Changes to the environment beyond the runner's own; `None` removes a variable.
    pub(crate) env: Vec<(String, Option<String>)>,
    /// When the cell is ended.
    pub(crate) timeout: Duration,
    /// A limit on its address space.
    pub(crate) memory_limit_bytes: Option<u64>,
}

/// What came of a cell that was launched.
#[derive(Debug)]
pub(crate) struct CellOutcome {
    /// Why there are no numbers; `None` where it was measured.
    pub(crate) classification: Option<Classification>,
    /// The rule that decided.
    pub(crate) decided_by: DecidedBy,
    /// The numbers, or why there are none, in words. A failed cell may have some.
    pub(crate) numbers: Result<CellNumbers, String>,
    /// The process.
    pub(crate) end: ChildEnd,
}

impl CellOutcome {
    /// Whether it ended because the whole run was interrupted, so that it says nothing.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.end.stopped == Some(StopReason::Interrupt)
    }

    /// What decided the classification, as journals have it.
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

    /// The numbers of the process, as journals have them.
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
}

/// A path for the report of one launch, below `scratch`, that no launch had before: the report of
/// an earlier cell can never be taken for this one's.
pub(crate) fn report_path(root: &Path, scratch: &Path) -> String {
    static LAUNCHES: AtomicU64 = AtomicU64::new(0);
    let number = LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let path = scratch.join(format!("cell-{number}.json"));
    path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned()
}

/// Program and arguments of a launch, as they are and as a journal shows them.
pub(crate) fn command_of(launch: &CellLaunch<'_>) -> (Vec<String>, BTreeMap<String, String>) {
    (render_command(launch.runner, &launch.vars), render_env(launch.runner, &launch.vars))
}

/// Where a runner's program lies: relative paths are meant from the workspace, names from `PATH`.
pub(crate) fn program_path(root: &Path, program: &str) -> PathBuf {
    if program.contains('/') { root.join(program) } else { program.into() }
}

/// Launches a cell, stays with it to its end, reads its result and classifies it.
///
/// # Errors
///
/// When the runner cannot be started at all.
pub(crate) fn run_cell(
    launch: &CellLaunch<'_>,
    interrupt: Interrupt,
) -> anyhow::Result<CellOutcome> {
    let (command, env) = command_of(launch);
    let (program, args) = command.split_first().expect("a checked runner has a program");
    let mut spec = ChildSpec::new(program_path(launch.root, program), launch.root);
    spec.args = args.iter().map(Into::into).collect();
    spec.env = env.into_iter().map(|(name, value)| (name, Some(value))).collect();
    spec.env.extend(launch.env.iter().cloned());
    spec.timeout = Some(launch.timeout);
    spec.memory_limit_bytes = launch.memory_limit_bytes;
    let end = run_child(&spec, interrupt)?;

    let leavings = Leavings {
        stdout: end.stdout.text(),
        stdout_omitted_bytes: end.stdout.omitted_bytes(),
        stderr: end.stderr.text(),
        report: match launch.runner.result {
            ResultFormat::Report => read_report(&launch.root.join(&launch.vars.report)),
            ResultFormat::ProfileText | ResultFormat::LlamaBenchJson => None,
        },
    };
    let numbers = parse_result(launch.runner.result, launch.vars.prompt_tokens, &leavings);
    let (classification, decided_by) = classify(&Ending {
        exit: end.exit,
        stopped: end.stopped,
        pattern: end.pattern.clone(),
        result: if numbers.is_ok() { ResultState::Numbers } else { ResultState::Missing },
    });
    Ok(CellOutcome { classification, decided_by, numbers, end })
}

/// The report's text; `None` where there is none or it is no text of a sane size.
fn read_report(path: &Path) -> Option<String> {
    let size = std::fs::metadata(path).ok()?.len();
    (size <= REPORT_LIMIT_BYTES).then(|| std::fs::read_to_string(path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_launches_share_a_report() {
        let (root, scratch) = (Path::new("/w"), Path::new("/w/target/sweep/x"));
        let first = report_path(root, scratch);
        assert!(first.starts_with("target/sweep/x/cell-"), "{first}");
        assert_ne!(first, report_path(root, scratch));
    }

    #[test]
    fn programs_are_found_from_the_workspace_or_the_path() {
        assert_eq!(program_path(Path::new("/w"), "target/x"), Path::new("/w/target/x"));
        assert_eq!(program_path(Path::new("/w"), "/usr/x"), Path::new("/usr/x"));
        assert_eq!(program_path(Path::new("/w"), "llama-bench"), Path::new("llama-bench"));
    }
}
