//! How a cell ended: the classification of its row, and the evidence that decided.
//!
//! Pure: it takes what the process edge saw and returns values. The rule that matters most: only a
//! cell that was launched and ran out of memory is a true OOM, because a true OOM keeps later cells
//! from being launched. What is doubtful is therefore a `FAIL:`, which costs a row and nothing else.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cell::evidence::Grade;

/// The exit code of `timeout(1)`: never a true OOM, whatever the output says.
const EXIT_TIMEOUT: i32 = 124;
/// What a shell reports for a child that SIGKILL ended.
const EXIT_SIGKILL: i32 = 128 + libc::SIGKILL;

/// The trailing token of a row that was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Classification {
    /// Launched, and ran out of memory: the only one that feeds the backstop and the record.
    Oom,
    /// Not launched: a shorter or equal length of this model ran out of memory in this sweep.
    OomBackstop,
    /// Not launched: the OOM record holds a shorter or equal length of this model.
    OomRecord,
    /// Not launched: the weights alone exceed 85 % of memory.
    OomEstimate,
    /// Launched, and failed otherwise.
    FailBench,
    /// Launched, and ended for taking too long.
    FailTimeout,
    /// Launched and exited with success, but without a result that can be read.
    FailNoOutput,
    /// Launched, and its result is one of other work, or cannot be true.
    FailWrongWork,
    /// Not launched: there is no such model.
    FailMissingModel,
    /// Launched, and the host was lost before it ended.
    FailHostLost,
}

impl Classification {
    /// All of them, in the order in which summaries show them.
    pub(crate) const ALL: [Classification; 10] = [
        Classification::Oom,
        Classification::OomBackstop,
        Classification::OomRecord,
        Classification::OomEstimate,
        Classification::FailBench,
        Classification::FailTimeout,
        Classification::FailNoOutput,
        Classification::FailWrongWork,
        Classification::FailMissingModel,
        Classification::FailHostLost,
    ];

    /// The token as rows have it.
    pub(crate) fn token(self) -> &'static str {
        match self {
            Classification::Oom => "SKIP:oom",
            Classification::OomBackstop => "SKIP:oom_backstop",
            Classification::OomRecord => "SKIP:oom_record",
            Classification::OomEstimate => "SKIP:oom_estimate",
            Classification::FailBench => "FAIL:bench",
            Classification::FailTimeout => "FAIL:timeout",
            Classification::FailNoOutput => "FAIL:no_output",
            Classification::FailWrongWork => "FAIL:wrong_work",
            Classification::FailMissingModel => "FAIL:missing_model",
            Classification::FailHostLost => "FAIL:host_lost",
        }
    }

    /// Whether it is a failure rather than a skip.
    pub(crate) fn is_failure(self) -> bool {
        self.token().starts_with("FAIL:")
    }

    /// Whether it says that memory ran out in a cell that was launched: the one class that keeps
    /// other cells from being launched.
    pub(crate) fn is_true_oom(self) -> bool {
        self == Classification::Oom
    }
}

impl fmt::Display for Classification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.token())
    }
}

impl FromStr for Classification {
    type Err = String;

    fn from_str(text: &str) -> Result<Classification, String> {
        Classification::ALL.into_iter().find(|class| class.token() == text).ok_or_else(|| {
            let known: Vec<_> = Classification::ALL.iter().map(|class| class.token()).collect();
            format!("no class `{text}`; the classes are {}", known.join(", "))
        })
    }
}

impl Serialize for Classification {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.token())
    }
}

impl<'de> Deserialize<'de> for Classification {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Classification, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How a process ended, as the system tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl ExitKind {
    /// SIGKILL, or what a shell makes of it.
    pub(crate) fn is_sigkill(self) -> bool {
        matches!(self, ExitKind::Signal(libc::SIGKILL) | ExitKind::Code(EXIT_SIGKILL))
    }
}

impl fmt::Display for ExitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitKind::Code(code) => write!(f, "exit code {code}"),
            ExitKind::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Why the harness ended a process itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    /// Its time was up.
    Timeout,
    /// The whole run was interrupted.
    Interrupt,
    /// It is a server, and its client had nothing more to ask.
    Finished,
}

/// What is known of a process that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Exit code or signal.
    pub(crate) exit: ExitKind,
    /// Set where the harness ended it.
    pub(crate) stopped: Option<StopReason>,
    /// What its output says of memory.
    pub(crate) said: MemoryWord,
    /// Whether the kernel says that it killed for memory.
    pub(crate) kernel_killed: bool,
    /// Whether its result could be read and holds numbers.
    pub(crate) result: ResultState,
}

/// What the output of a process that ended says of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryWord {
    /// That it ran out, and nothing after it says that this is not why it ended.
    Cause,
    /// Its last error names another cause.
    AnotherCause,
    /// Nothing, or nothing that counts.
    Nothing,
}

/// Whether a result with numbers was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultState {
    /// There are numbers.
    Numbers,
    /// There are none, or the result cannot be read.
    Missing,
    /// A request to the server failed.
    Refused,
    /// They are those of other work, or cannot be true.
    Impossible,
}

/// What decided a classification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DecidedBy {
    /// Success, and a result with numbers.
    Result,
    /// Success, and no result with numbers.
    NoResult,
    /// The harness's own deadline, or exit code 124.
    Timeout,
    /// SIGKILL that the harness did not send, or exit code 137.
    Sigkill,
    /// A failure whose output says that memory ran out, as the cause.
    Pattern,
    /// A failure while the kernel killed for memory, and whose output names no other cause.
    Kernel,
    /// Any other failure.
    Failure,
}

/// The verdict on a process that ended: `None` is a measured cell.
pub(crate) fn classify(ending: &Ending) -> (Option<Classification>, DecidedBy) {
    use Classification as Class;
    let failed = || match (ending.said, ending.kernel_killed) {
        (MemoryWord::Cause, _) => (Some(Class::Oom), DecidedBy::Pattern),
        // A worker of it was killed, and what started it ends as if by itself.
        (MemoryWord::Nothing, true) => (Some(Class::Oom), DecidedBy::Kernel),
        _ => (Some(Class::FailBench), DecidedBy::Failure),
    };
    if ending.stopped == Some(StopReason::Timeout) {
        return (Some(Class::FailTimeout), DecidedBy::Timeout);
    }
    // How a server ends that is told to end says nothing: what its client saw does.
    if ending.stopped == Some(StopReason::Finished) {
        return match ending.result {
            ResultState::Numbers => (None, DecidedBy::Result),
            ResultState::Impossible => (Some(Class::FailWrongWork), DecidedBy::Result),
            ResultState::Missing => (Some(Class::FailNoOutput), DecidedBy::NoResult),
            ResultState::Refused => failed(),
        };
    }
    match ending.exit {
        ExitKind::Code(EXIT_TIMEOUT) => (Some(Class::FailTimeout), DecidedBy::Timeout),
        // A SIGKILL of ours that was no timeout was an interruption: it says nothing about memory.
        ExitKind::Signal(_) if ending.stopped.is_some() => {
            (Some(Class::FailBench), DecidedBy::Failure)
        }
        exit if exit.is_sigkill() => (Some(Class::Oom), DecidedBy::Sigkill),
        ExitKind::Code(0) => match ending.result {
            ResultState::Numbers => (None, DecidedBy::Result),
            ResultState::Impossible => (Some(Class::FailWrongWork), DecidedBy::Result),
            ResultState::Missing | ResultState::Refused => {
                (Some(Class::FailNoOutput), DecidedBy::NoResult)
            }
        },
        ExitKind::Code(_) | ExitKind::Signal(_) => failed(),
    }
}

/// How well a true OOM is known; `None` where it is none.
pub(crate) fn grade(ending: &Ending) -> Option<Grade> {
    match classify(ending) {
        (Some(class), _) if !class.is_true_oom() => None,
        (None, _) => None,
        _ if ending.kernel_killed => Some(Grade::Kernel),
        _ if ending.said == MemoryWord::Cause => Some(Grade::Allocator),
        _ => Some(Grade::Signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(exit: ExitKind, pattern: bool) -> Ending {
        Ending {
            exit,
            stopped: None,
            said: if pattern { MemoryWord::Cause } else { MemoryWord::Nothing },
            kernel_killed: false,
            result: ResultState::Missing,
        }
    }

    #[test]
    fn a_worker_that_the_kernel_killed_takes_its_parent_along_unless_that_names_another_cause() {
        let exit = ExitKind::Code(1);
        let killed = Ending { kernel_killed: true, ..ending(exit, false) };
        assert_eq!(classify(&killed), (Some(Classification::Oom), DecidedBy::Kernel));
        let other = Ending { said: MemoryWord::AnotherCause, ..killed };
        assert_eq!(classify(&other).0, Some(Classification::FailBench));
        let success = Ending { exit: ExitKind::Code(0), ..killed };
        assert_eq!(classify(&success).0, Some(Classification::FailNoOutput));
    }

    #[test]
    fn sigkill_stays_out_of_memory_whatever_the_output_says() {
        for exit in [ExitKind::Signal(libc::SIGKILL), ExitKind::Code(137)] {
            let killed = Ending { said: MemoryWord::AnotherCause, ..ending(exit, false) };
            assert_eq!(classify(&killed).0, Some(Classification::Oom));
        }
    }

    #[test]
    fn the_grade_is_the_best_of_what_is_known() {
        let killed = ending(ExitKind::Signal(libc::SIGKILL), false);
        assert_eq!(grade(&killed), Some(Grade::Signal));
        let said = Ending { said: MemoryWord::Cause, ..killed };
        assert_eq!(grade(&said), Some(Grade::Allocator));
        assert_eq!(grade(&Ending { kernel_killed: true, ..said }), Some(Grade::Kernel));
        assert_eq!(grade(&ending(ExitKind::Code(1), true)), Some(Grade::Allocator));
        assert_eq!(grade(&ending(ExitKind::Code(1), false)), None);
        assert_eq!(grade(&ending(ExitKind::Code(0), true)), None);
        assert!(Grade::Kernel > Grade::Allocator && Grade::Allocator > Grade::Signal);
    }

    #[test]
    fn the_table() {
        use Classification as Class;
        use ExitKind::{Code, Signal};
        // exit, allocator text in the output, expected class
        let table = [
            (Code(124), false, Class::FailTimeout),
            (Code(124), true, Class::FailTimeout),
            (Code(137), false, Class::Oom),
            (Code(137), true, Class::Oom),
            (Signal(libc::SIGKILL), false, Class::Oom),
            (Signal(libc::SIGKILL), true, Class::Oom),
            (Code(134), false, Class::FailBench),
            (Code(134), true, Class::Oom),
            (Signal(libc::SIGABRT), false, Class::FailBench),
            (Signal(libc::SIGABRT), true, Class::Oom),
            (Code(1), false, Class::FailBench),
            (Code(1), true, Class::Oom),
            (Code(101), false, Class::FailBench),
            (Code(101), true, Class::Oom),
            (Code(2), true, Class::Oom),
            (Signal(libc::SIGSEGV), false, Class::FailBench),
            (Signal(libc::SIGSEGV), true, Class::Oom),
            (Signal(libc::SIGTERM), false, Class::FailBench),
            (Code(0), false, Class::FailNoOutput),
            // Success is no failure: what it printed on the way does not make it one.
            (Code(0), true, Class::FailNoOutput),
        ];
        for (exit, pattern, expected) in table {
            let (class, _) = classify(&ending(exit, pattern));
            assert_eq!(class, Some(expected), "{exit:?}, pattern: {pattern}");
        }
    }

    #[test]
    fn success_with_numbers_is_measured_even_if_it_mentions_memory() {
        let ending = Ending { result: ResultState::Numbers, ..ending(ExitKind::Code(0), true) };
        assert_eq!(classify(&ending), (None, DecidedBy::Result));
    }

    #[test]
    fn numbers_do_not_save_a_failure() {
        let ending = Ending { result: ResultState::Numbers, ..ending(ExitKind::Code(1), false) };
        assert_eq!(classify(&ending).0, Some(Classification::FailBench));
    }

    #[test]
    fn our_own_kill_is_never_out_of_memory() {
        for exit in [
            ExitKind::Signal(libc::SIGKILL),
            ExitKind::Signal(libc::SIGTERM),
            ExitKind::Code(137),
            ExitKind::Code(0),
            ExitKind::Code(1),
        ] {
            let timeout = Ending { stopped: Some(StopReason::Timeout), ..ending(exit, true) };
            assert_eq!(classify(&timeout).0, Some(Classification::FailTimeout), "{exit:?}");
        }
        let interrupt = Ending {
            stopped: Some(StopReason::Interrupt),
            ..ending(ExitKind::Signal(libc::SIGKILL), true)
        };
        assert_eq!(classify(&interrupt).0, Some(Classification::FailBench));
    }

    #[test]
    fn a_server_that_is_told_to_end_is_judged_by_what_its_client_saw() {
        for exit in [ExitKind::Code(0), ExitKind::Code(1), ExitKind::Signal(libc::SIGKILL)] {
            let finished = Ending { stopped: Some(StopReason::Finished), ..ending(exit, false) };
            let class = |ending: Ending| classify(&ending).0;
            let measured = Ending { result: ResultState::Numbers, ..finished };
            assert_eq!(class(measured), None, "{exit:?}");
            assert_eq!(class(finished), Some(Classification::FailNoOutput), "{exit:?}");
            let impossible = Ending { result: ResultState::Impossible, ..finished };
            assert_eq!(class(impossible), Some(Classification::FailWrongWork), "{exit:?}");
            let refused = Ending { result: ResultState::Refused, ..finished };
            assert_eq!(class(refused), Some(Classification::FailBench), "{exit:?}");
            let oom = Ending { said: MemoryWord::Cause, ..refused };
            assert_eq!(class(oom), Some(Classification::Oom), "{exit:?}");
            assert_eq!(grade(&oom), Some(Grade::Allocator));
            let lived_on = Ending { said: MemoryWord::Cause, ..measured };
            assert_eq!(class(lived_on), None, "{exit:?}");
        }
    }

    #[test]
    fn only_the_launched_oom_is_a_true_one() {
        let true_ones: Vec<_> =
            Classification::ALL.into_iter().filter(|class| class.is_true_oom()).collect();
        assert_eq!(true_ones, [Classification::Oom]);
    }

    #[test]
    fn tokens_are_read_back() {
        for class in Classification::ALL {
            assert_eq!(class.token().parse(), Ok(class));
        }
        assert!("SKIP:oom_else".parse::<Classification>().unwrap_err().contains("SKIP:oom_record"));
    }
}
