//! What came of a cell that was launched: its class, its numbers, and what was seen of its process.

use super::child::ChildEnd;
use super::classify::{
    Classification, DecidedBy, Ending, ExitKind, MemoryWord, ResultState, StopReason, classify,
    grade,
};
use super::evidence::{Grade, describe_plenty};
use super::journal::{Evidence, ProcessNote};
use super::quiet::QuietNote;
use super::result::CellNumbers;
use super::serving::{FailureKind, ServeFailure};
use super::work::{Asked, check_work};
use crate::oom_record::{render_confirm_command, render_prune_command};

/// Lines of stderr that a failed cell's evidence keeps.
const STDERR_TAIL_LINES: usize = 5;

/// What came of a cell that was launched.
#[derive(Debug)]
pub(crate) struct CellOutcome {
    /// Why there are no numbers; `None` where it was measured.
    pub(crate) classification: Option<Classification>,
    pub(crate) decided_by: DecidedBy,
    /// How well a true OOM is known.
    pub(crate) grade: Option<Grade>,
    /// The numbers, or why there are none, in words. A failed cell may have some.
    pub(crate) numbers: Result<CellNumbers, String>,
    /// Numbers that cannot be true, or are those of other work.
    pub(crate) rejected: Option<Box<CellNumbers>>,
    pub(crate) end: ChildEnd,
    /// What was seen around it; `None` where nobody watched.
    pub(crate) quiet: Option<QuietNote>,
}

impl CellOutcome {
    /// Judges a process that ended, by its end and by what its result holds.
    pub(crate) fn new(
        end: ChildEnd,
        numbers: Result<CellNumbers, String>,
        asked: Asked,
    ) -> CellOutcome {
        let numbers = numbers.map(|mut numbers| {
            if !asked.counts {
                // What it says of tokens it did not count.
                numbers.measured.prompt_tokens = None;
                numbers.measured.generated_tokens = None;
            }
            numbers
        });
        let (numbers, rejected) = match numbers {
            Ok(numbers) => match check_work(&numbers.measured, asked) {
                Ok(()) => (Ok(numbers), None),
                Err(why) => (Err(why), Some(Box::new(numbers))),
            },
            Err(why) => (Err(why), None),
        };
        let ending = Ending {
            exit: end.exit,
            stopped: end.stopped,
            said: match &end.said {
                said if said.cause.is_some() => MemoryWord::Cause,
                said if said.other_cause.is_some() => MemoryWord::AnotherCause,
                _ => MemoryWord::Nothing,
            },
            kernel_killed: end.kernel_oom_line.is_some()
                || end.cgroup_oom_kills.is_some_and(|kills| kills > 0),
            result: match (&numbers, &rejected, &end.served) {
                (Ok(_), ..) => ResultState::Numbers,
                (Err(_), Some(_), _) => ResultState::Impossible,
                (Err(_), None, Some(Err(failure))) if failure.kind != FailureKind::Empty => {
                    ResultState::Refused
                }
                (Err(_), None, _) => ResultState::Missing,
            },
        };
        let (classification, decided_by) = classify(&ending);
        let grade = grade(&ending);
        CellOutcome { classification, decided_by, grade, numbers, rejected, end, quiet: None }
    }

    /// Whether it ended because the whole run was interrupted, so that it says nothing.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.end.stopped == Some(StopReason::Interrupt)
    }

    /// Whether it was hard on a machine with this much memory, so that the next one should wait longer.
    pub(crate) fn was_hard(&self, memory_bytes: Option<u64>) -> bool {
        let ended_badly =
            matches!(self.classification, Some(Classification::Oom | Classification::FailTimeout))
                || matches!(self.end.exit, ExitKind::Signal(_));
        let half = memory_bytes.map(|bytes| bytes / 2);
        ended_badly || self.end.rss_peak_bytes.zip(half).is_some_and(|(peak, half)| peak > half)
    }

    /// Whether it may have left a driver ill: a program that meets an illegal access or a lost GPU fails
    /// with an exit code like any other.
    pub(crate) fn may_have_hurt_driver(&self, memory_bytes: Option<u64>) -> bool {
        self.was_hard(memory_bytes) || self.classification.is_some_and(Classification::is_failure)
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let end = &self.end;
        let cause = end.said.cause.as_ref();
        Evidence {
            decided_by: Some(self.decided_by),
            grade: self.grade,
            pattern: cause.map(|found| found.pattern.clone()),
            api: cause.map(|found| found.api.clone()),
            line: cause.map(|found| found.line.clone()),
            survived: end.said.survived.clone(),
            kernel_line: end.kernel_oom_line.clone(),
            result_problem: self.numbers.as_ref().err().cloned(),
            result_notes: self.notes().to_vec(),
            cgroup_oom_kills: end.cgroup_oom_kills,
            available_low_bytes: end.available_low_bytes,
            memory_bytes: end.memory_bytes,
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

    /// Why the true OOM of this model may be none, and the commands that find out and drop it: a signal
    /// is all that is known, and memory was plentiful throughout.
    pub(crate) fn doubt(&self, model: &str) -> Option<String> {
        let end = &self.end;
        if self.grade != Some(Grade::Signal) {
            return None;
        }
        let plenty = describe_plenty(end.available_low_bytes, end.memory_bytes)?;
        Some(format!(
            "{plenty} throughout, so somebody else may have sent it: `{}` tries again, `{}` drops it \
             from the record",
            render_confirm_command(model),
            render_prune_command(model),
        ))
    }

    /// Why the client of a server has no figures.
    fn refusal(&self) -> Option<&ServeFailure> {
        self.end.served.as_ref()?.as_ref().err()
    }

    /// What disturbed it, in words.
    pub(crate) fn disturbance(&self) -> Option<String> {
        let found = &self.quiet.as_ref()?.disturbances;
        (!found.is_empty()).then(|| found.join("; "))
    }

    /// What of the result could not be read.
    pub(crate) fn notes(&self) -> &[String] {
        self.numbers.as_ref().map_or(&[], |numbers| &numbers.notes)
    }

    /// The numbers, true or not.
    pub(crate) fn any_numbers(&self) -> Option<&CellNumbers> {
        self.numbers.as_ref().ok().or(self.rejected.as_deref())
    }

    /// What the kernel says, in words.
    fn describe_kernel(&self) -> String {
        match (&self.end.kernel_oom_line, self.end.cgroup_oom_kills) {
            (Some(line), _) => format!(", and the kernel says `{line}`"),
            (None, Some(kills)) if kills > 0 => {
                format!(", kernel OOM kills in this cgroup: {kills}")
            }
            _ => String::new(),
        }
    }

    /// What decided, in words for a status line.
    pub(crate) fn describe(&self) -> String {
        let end = &self.end;
        let exit = end.exit;
        match self.decided_by {
            DecidedBy::Pattern if end.stopped == Some(StopReason::Finished) => {
                self.refusal().map(|refusal| refusal.reason.clone()).unwrap_or_default()
            }
            DecidedBy::Pattern => {
                let line = end.said.cause.as_ref().map(|found| found.line.as_str());
                format!("{exit}, and the output says `{}`", line.unwrap_or_default())
            }
            DecidedBy::Sigkill => {
                format!("{exit}, not sent by the harness{}", self.describe_kernel())
            }
            DecidedBy::Kernel => format!("{exit}{}", self.describe_kernel()),
            DecidedBy::Timeout => match self.refusal() {
                Some(refusal) if refusal.kind == FailureKind::NotReady => refusal.reason.clone(),
                _ => format!("{exit}, over its time limit"),
            },
            DecidedBy::NoResult | DecidedBy::Result => {
                self.numbers.as_ref().err().cloned().unwrap_or_default()
            }
            DecidedBy::Failure => match (self.refusal(), end.stderr.last_lines(1).pop()) {
                (Some(refusal), _) if end.stopped == Some(StopReason::Finished) => {
                    refusal.reason.clone()
                }
                (_, Some(line)) => format!("{exit}: {line}"),
                (_, None) => exit.to_string(),
            },
        }
    }
}
