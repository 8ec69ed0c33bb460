//! How the result reads: a table for a terminal, a page for the tree.

use minijinja::context;

use super::{CheckResult, CheckVerdict, GpuResult};
use crate::base::page;

/// Width of what was seen in the table; the page has all of it.
const SEEN_WIDTH: usize = 100;

/// One line a check, with what was seen below where it is long.
pub(crate) fn render_table(checks: &[CheckResult]) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0).max("CHECK".len());
    let mut text = format!("{:<width$}  {:<12}  SEEN", "CHECK", "VERDICT");
    for check in checks {
        for (index, line) in wrap(&check.seen, SEEN_WIDTH).into_iter().enumerate() {
            let (name, verdict) =
                if index == 0 { (check.name.as_str(), check.verdict.word()) } else { ("", "") };
            let line = format!("{name:<width$}  {verdict:<12}  {line}");
            text.push('\n');
            text.push_str(line.trim_end());
        }
    }
    text
}

/// The last line: how many of each, and what it is worth.
pub(crate) fn render_summary(result: &GpuResult) -> String {
    let count = |verdict| result.checks.iter().filter(|check| check.verdict == verdict).count();
    let mut text = format!(
        "{} passed, {} failed, {} not possible, in {:.0} of {:.0} s on {}",
        count(CheckVerdict::Pass),
        count(CheckVerdict::Fail),
        count(CheckVerdict::NotPossible),
        result.wall_s,
        result.budget_s,
        result.card
    );
    if result.is_standin {
        text.push_str("; over the stand-in driver, so it says nothing about hardware");
    }
    if result.interrupted {
        text.push_str("; interrupted");
    }
    text
}

/// `report.md`.
///
/// # Errors
/// When the template is broken.
pub(crate) fn render_page(result: &GpuResult, command: &str) -> anyhow::Result<String> {
    let rows: Vec<_> = result
        .checks
        .iter()
        .map(|check| {
            context! { name => check.name, verdict => check.verdict.word(), seen => check.seen }
        })
        .collect();
    let values = context! { result, command, summary => render_summary(result), rows };
    page::render_page(include_str!("report.md.j2"), values)
}

/// Lines of at most `width` characters, broken at spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> GpuResult {
        let check = |name: &str, verdict, seen: &str| CheckResult {
            name: name.to_owned(),
            verdict,
            seen: seen.to_owned(),
            figures: serde_json::Value::Null,
            legs: Vec::new(),
        };
        GpuResult {
            schema: crate::gpu::check::SCHEMA,
            date: "2026-01-31".to_owned(),
            card: "NVIDIA H200".to_owned(),
            is_standin: false,
            commit: "abc1234".to_owned(),
            dirty: Some(false),
            binary_sha256: "00".to_owned(),
            wall_s: 201.4,
            budget_s: 280.0,
            interrupted: false,
            checks: vec![
                check("start/m", CheckVerdict::Pass, "a card"),
                check(
                    "decode/m",
                    CheckVerdict::Fail,
                    &"on and killed differ at token 3 ".repeat(6),
                ),
                check("graph-capture", CheckVerdict::NotPossible, "not offered | yet"),
            ],
        }
    }

    #[test]
    fn the_table_breaks_long_lines_below_themselves() {
        insta::assert_snapshot!(render_table(&result().checks), @r"
        CHECK          VERDICT       SEEN
        start/m        pass          a card
        decode/m       FAIL          on and killed differ at token 3 on and killed differ at token 3 on and killed differ at token 3 on
                                     and killed differ at token 3 on and killed differ at token 3 on and killed differ at token 3
        graph-capture  not possible  not offered | yet
        ");
    }

    #[test]
    fn the_page_says_where_it_was_measured() {
        let page = render_page(&result(), "cargo xtask gpu-check").unwrap();
        let start = "# GPU check: NVIDIA H200\n\nMeasured on NVIDIA H200 · 2026-01-31 · commit \
                     abc1234\n\n```console\n$ cargo xtask gpu-check\n```\n\n1 passed, 1 failed, 1 not \
                     possible, in 201 of 280 s on NVIDIA H200.\n";
        assert!(page.starts_with(start), "{page}");
        assert!(
            page.contains("| graph-capture | not possible | not offered \\| yet |\n"),
            "{page}"
        );
        let standin =
            GpuResult { is_standin: true, interrupted: true, dirty: Some(true), ..result() };
        let page = render_page(&standin, "x").unwrap();
        let start = "\nRun over the stand-in driver: NVIDIA H200 · 2026-01-31 · commit abc1234, with \
                     uncommitted changes\n";
        assert!(page.contains(start), "{page}");
        assert!(page.contains("it says nothing about hardware; interrupted"), "{page}");
        let unknown = render_page(&GpuResult { dirty: None, ..result() }, "x").unwrap();
        assert!(unknown.contains("abc1234, changes unknown\n"), "{unknown}");
    }
}
