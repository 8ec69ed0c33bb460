//! What NVIDIA's memory checker said about a run.

use serde_json::Value;

use super::Judged;
use crate::gpu::check::CheckResult;
use crate::gpu::check::seen::LegEnd;

/// The exit code that the checker is told to use if it found something.
pub(crate) const SANITIZER_ERRORS: i32 = 86;

/// Before each line of the checker's own.
const PREFIX: &str = "=========";
/// Its words where it checked nothing at all, whatever it counts.
const UNSUPPORTED: &str = "not supported";
/// Its words where it gave up half way: then no errors prove nothing.
const GAVE_UP: [&str; 2] =
    ["Internal Sanitizer Error", "terminated before first instrumented API call"];

/// The number of errors decides. Without a count nothing was checked, which says nothing about the
/// program.
///
/// `said` is all that the checker and the program wrote, `exit` the code that they ended with.
pub(crate) fn judge_sanitizer(
    name: &str,
    leg: &str,
    said: &str,
    exit: Option<i32>,
    end: &LegEnd,
) -> CheckResult {
    let judged = match (find_unsupported(said), find_summary(said)) {
        (Some(words), _) => unchecked(words),
        (None, Some((0, _))) => judge_clean(said, exit, end),
        (None, Some((_, summary))) => Judged::fail(format!("compute-sanitizer: {summary}")),
        (None, None) => judge_without_summary(said, exit, end),
    };
    judged.result(name, vec![leg.to_owned()])
}

/// The summary counts no errors.
fn judge_clean(said: &str, exit: Option<i32>, end: &LegEnd) -> Judged {
    if exit == Some(SANITIZER_ERRORS) {
        return Judged::fail(
            "compute-sanitizer counts 0 errors, but its exit code says that it found some",
        );
    }
    let gave_up = own_lines(said).find(|line| GAVE_UP.iter().any(|words| line.contains(words)));
    match (gave_up, end) {
        (_, LegEnd::Skipped(why)) => Judged::not_possible(why),
        (Some(words), _) => unchecked(words),
        (None, LegEnd::Measured(_)) => {
            Judged::pass("compute-sanitizer: 0 errors".to_owned(), Value::Null)
        }
        (None, LegEnd::Failed(why)) => {
            Judged::fail(format!("compute-sanitizer: 0 errors, but the run failed: {why}"))
        }
    }
}

fn judge_without_summary(said: &str, exit: Option<i32>, end: &LegEnd) -> Judged {
    let last = own_lines(said).filter(|line| *line != "COMPUTE-SANITIZER").last();
    match (end, last) {
        (LegEnd::Skipped(why), _) => Judged::not_possible(why),
        _ if exit == Some(SANITIZER_ERRORS) => {
            Judged::fail("compute-sanitizer found errors but does not say how many")
        }
        (_, Some(words)) => unchecked(words),
        (LegEnd::Failed(why), None) => unchecked(why),
        (LegEnd::Measured(_), None) => unchecked("it printed no error summary"),
    }
}

fn unchecked(why: &str) -> Judged {
    Judged::not_possible(format!("compute-sanitizer checked nothing: {why}"))
}

/// The lines of the checker's own, without what marks them.
fn own_lines(said: &str) -> impl Iterator<Item = &str> {
    said.lines()
        .filter_map(|line| line.trim().strip_prefix(PREFIX))
        .map(str::trim)
        .filter(|line| !line.is_empty())
}

fn find_unsupported(said: &str) -> Option<&str> {
    own_lines(said).find(|line| line.starts_with("Error:") && line.contains(UNSUPPORTED))
}

/// The largest number of errors, and its line: each process has a summary.
fn find_summary(said: &str) -> Option<(u64, &str)> {
    own_lines(said)
        .filter_map(|line| line.strip_prefix("ERROR SUMMARY:"))
        .filter_map(|text| Some((text.split_whitespace().next()?.parse().ok()?, text.trim())))
        .max_by_key(|(count, _)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::check::{CheckVerdict, LegNumbers};

    fn measured() -> LegEnd {
        LegEnd::Measured(Box::new(LegNumbers {
            report: formats::cell_report::CellReport::default(),
            json: Value::Null,
            wall_s: 9.0,
        }))
    }

    fn failed() -> LegEnd {
        LegEnd::Failed("FAIL:bench, exit code 1: error: no device".to_owned())
    }

    fn judge(lines: &[&str], exit: i32, end: &LegEnd) -> (CheckVerdict, String) {
        let said = lines.iter().map(|line| format!("========= {line}\n")).collect::<String>();
        let said = format!("========= COMPUTE-SANITIZER\nloaded\n{said}the end\n");
        let result = judge_sanitizer("sanitizer/m", "sanitizer", &said, Some(exit), end);
        (result.verdict, result.seen)
    }

    #[test]
    fn the_number_of_the_summary_decides_whatever_the_exit_code_is() {
        let clean = judge(&["ERROR SUMMARY: 0 errors"], 0, &measured());
        assert_eq!(clean, (CheckVerdict::Pass, "compute-sanitizer: 0 errors".to_owned()));
        let lines =
            ["Invalid __global__ write of size 4 bytes", "ERROR SUMMARY: 7 errors (2 not printed)"];
        let seven = "compute-sanitizer: 7 errors (2 not printed)".to_owned();
        for (exit, end) in [(0, measured()), (SANITIZER_ERRORS, failed()), (1, failed())] {
            assert_eq!(judge(&lines, exit, &end), (CheckVerdict::Fail, seven.clone()));
        }
        // Each process has its summary: the worst one counts.
        let two = ["ERROR SUMMARY: 7 errors (2 not printed)", "ERROR SUMMARY: 0 errors"];
        assert_eq!(judge(&two, 0, &measured()), (CheckVerdict::Fail, seven));
    }

    #[test]
    fn without_a_summary_nothing_was_checked_and_the_tool_says_why() {
        let line = "Error: Device not supported. Please refer to the \"Supported Devices\" section";
        let why = format!("compute-sanitizer checked nothing: {line}");
        for (exit, end) in [(1, failed()), (0, measured()), (SANITIZER_ERRORS, failed())] {
            assert_eq!(judge(&[line], exit, &end), (CheckVerdict::NotPossible, why.clone()));
        }
        // Nor was anything where it counts its own trouble.
        for summary in ["ERROR SUMMARY: 0 errors", "ERROR SUMMARY: 1 error"] {
            let lines = [line, summary];
            assert_eq!(judge(&lines, 1, &failed()), (CheckVerdict::NotPossible, why.clone()));
        }
        let (verdict, seen) = judge(&[], 0, &measured());
        assert_eq!(verdict, CheckVerdict::NotPossible);
        assert_eq!(seen, "compute-sanitizer checked nothing: it printed no error summary");
        let words = judge(&["ERROR SUMMARY: many errors"], 0, &measured());
        assert_eq!(words.0, CheckVerdict::NotPossible, "{}", words.1);
        let slow = LegEnd::Skipped("it was cut off after 80 s, when the time was up".to_owned());
        assert_eq!(
            judge(&[], 1, &slow),
            (
                CheckVerdict::NotPossible,
                "it was cut off after 80 s, when the time was up".to_owned()
            )
        );
    }

    #[test]
    fn a_tool_that_gave_up_half_way_is_no_pass_and_a_program_that_failed_is_none() {
        let gave_up = ["Internal Sanitizer Error: it cannot go on", "ERROR SUMMARY: 0 errors"];
        for end in [measured(), failed()] {
            let (verdict, seen) = judge(&gave_up, 0, &end);
            assert_eq!(verdict, CheckVerdict::NotPossible);
            assert!(seen.ends_with(": Internal Sanitizer Error: it cannot go on"), "{seen}");
        }
        let (verdict, seen) = judge(&["ERROR SUMMARY: 0 errors"], 1, &failed());
        assert_eq!((verdict, seen.contains("no device")), (CheckVerdict::Fail, true), "{seen}");
        let exit = judge(&["ERROR SUMMARY: 0 errors"], SANITIZER_ERRORS, &measured());
        assert_eq!(exit.0, CheckVerdict::Fail, "{}", exit.1);
    }
}
