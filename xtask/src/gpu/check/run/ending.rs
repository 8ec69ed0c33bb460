//! What a process that has ended came to.

use crate::cell::outcome::CellOutcome;
use crate::cell::session::End;
use crate::gpu::check::budget::is_hang;
use crate::gpu::check::{LegEnd, LegNumbers};

/// What became of a leg, whose run was expected to need `estimate_s`.
pub(super) fn leg_end_of(end: &End, estimate_s: f64) -> LegEnd {
    match end {
        End::Ran(outcome) => end_of(outcome, estimate_s),
        End::Refused { reason, .. } => LegEnd::Skipped(format!("not launched: {reason}")),
        End::Faked(class) => LegEnd::Failed(format!("{class}, faked")),
        End::NotStarted(reason) => LegEnd::Failed(reason.clone()),
        End::Interrupted => LegEnd::Skipped("interrupted".to_owned()),
    }
}

/// What a run came to, which was expected to need `estimate_s`.
///
/// One that the budget cut off says nothing about the program; one that hangs does.
fn end_of(outcome: &CellOutcome, estimate_s: f64) -> LegEnd {
    let end = &outcome.end;
    let wall_s = end.wall.as_secs_f64();
    if outcome.was_interrupted() {
        return LegEnd::Skipped("interrupted".to_owned());
    }
    if end.stopped.is_some() {
        if !is_hang(wall_s, estimate_s) {
            return LegEnd::Skipped(format!(
                "it was cut off after {wall_s:.0} s, when the time was up"
            ));
        }
        return LegEnd::Failed(format!(
            "it hung: stopped after {wall_s:.0} s, though about {estimate_s:.0} s were expected"
        ));
    }
    if let Some(class) = outcome.classification {
        return LegEnd::Failed(describe_failure(outcome, class.token()));
    }
    match &outcome.numbers {
        Ok(numbers) => LegEnd::Measured(Box::new(LegNumbers {
            report: numbers.report.clone().unwrap_or_default(),
            json: numbers.report_json.clone().unwrap_or_default(),
            wall_s,
        })),
        Err(why) => LegEnd::Failed(why.clone()),
    }
}

/// Why a run has no numbers: its class, how it ended, and its last words.
fn describe_failure(outcome: &CellOutcome, class: &str) -> String {
    let how = outcome.end.exit;
    let said: Vec<String> = outcome
        .end
        .stderr
        .last_lines(3)
        .iter()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    let problem = outcome.numbers.as_ref().err().filter(|_| said.is_empty());
    let words = problem.cloned().unwrap_or_else(|| said.join("; "));
    format!("{class}, {how}: {words}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cell::capture::{Capture, CaptureLimits};
    use crate::cell::child::ChildEnd;
    use crate::cell::classify::{Classification, DecidedBy, ExitKind, StopReason};
    use crate::cell::evidence::verdict::Said;
    use crate::cell::quiet::LostTime;

    /// A run without numbers that was stopped after a while.
    fn stopped(reason: StopReason, wall_s: u64) -> CellOutcome {
        CellOutcome {
            classification: Some(Classification::FailTimeout),
            decided_by: DecidedBy::Timeout,
            grade: None,
            rejected: None,
            numbers: Err("no report".to_owned()),
            quiet: None,
            end: ChildEnd {
                exit: ExitKind::Signal(15),
                stopped: Some(reason),
                wall: Duration::from_secs(wall_s),
                cpu: Duration::ZERO,
                rss_peak_bytes: None,
                lost: LostTime::default(),
                stdout: Capture::new(CaptureLimits::default()),
                stderr: Capture::new(CaptureLimits::default()),
                said: Said::default(),
                available_low_bytes: None,
                memory_bytes: None,
                cgroup_oom_kills: None,
                kernel_oom_line: None,
                served: None,
            },
        }
    }

    #[test]
    fn a_run_that_hangs_fails_however_little_time_was_left() {
        let LegEnd::Failed(why) = end_of(&stopped(StopReason::Timeout, 25), 3.0) else {
            panic!("it is not taken for a hang")
        };
        assert!(why.contains("stopped after 25 s, though about 3 s were expected"), "{why}");
        // One that was cut off before it can be told from a slow one says nothing.
        for (wall_s, estimate_s) in [(19, 3.0), (79, 20.0), (140, 60.0)] {
            let end = end_of(&stopped(StopReason::Timeout, wall_s), estimate_s);
            assert_eq!(
                end,
                LegEnd::Skipped(format!("it was cut off after {wall_s} s, when the time was up"))
            );
        }
        // No run may take longer than this, whatever was expected of it.
        assert!(matches!(end_of(&stopped(StopReason::Timeout, 151), 60.0), LegEnd::Failed(_)));
        let end = end_of(&stopped(StopReason::Interrupt, 151), 3.0);
        assert_eq!(end, LegEnd::Skipped("interrupted".to_owned()));
    }
}
