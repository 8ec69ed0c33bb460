//! How a command ended, and the exit code that says so.

use std::process::ExitCode;

/// The exit code of a command that could not run: usage, environment, unreadable input.
pub(crate) const COULD_NOT_RUN: u8 = 2;

/// How a command ended that could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what was asked: exit code 0.
    Done,
    /// It ran and found a violation: exit code 1.
    Violation,
    /// It stopped because the machine is not fit to go on, with everything finished so far on disk: exit
    /// code 2.
    Stopped,
    /// It was interrupted, with everything finished so far on disk: exit code 130.
    Interrupted,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(match outcome {
            Outcome::Done => 0,
            Outcome::Violation => 1,
            Outcome::Stopped => COULD_NOT_RUN,
            Outcome::Interrupted => 130,
        })
    }
}
