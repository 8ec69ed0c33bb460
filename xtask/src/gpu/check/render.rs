//! How the result reads: a table for a terminal, a page for the tree.

use super::{CheckResult, GpuResult, Verdict};

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
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::NotPossible),
        result.wall_s,
        result.budget_s,
        result.card
    );
    if result.is_standin {
        text.push_str("; over the stand-in driver, so nothing of it is about hardware");
    }
    if result.interrupted {
        text.push_str("; interrupted");
    }
    text
}

/// `report.md`.
pub(crate) fn render_page(result: &GpuResult, command: &str) -> String {
    let dirty = match result.dirty {
        Some(true) => ", with changes",
        Some(false) => "",
        None => ", changes unknown",
    };
    let origin = if result.is_standin { "stand-in driver" } else { "measured on" };
    let mut text = format!(
        "# GPU check: {}\n\n{origin}: {} · {} · commit {}{dirty}\n\n```console\n$ {command}\n```\n\n{}.\n\n\
         | check | verdict | seen |\n| --- | --- | --- |\n",
        result.card,
        result.card,
        result.date,
        result.commit,
        render_summary(result)
    );
    for check in &result.checks {
        let seen = check.seen.trim().replace('|', "\\|").replace('\n', " ");
        text.push_str(&format!("| {} | {} | {seen} |\n", check.name, check.verdict.word()));
    }
    text.push_str(
        "\nEvery run's cell report is in `reports/`, what was launched and how it ended in \
         `samples.jsonl`, the figures in `result.json`. Times are reported and decide nothing: \
         driver calls, bytes and tokens do. One run of each kind is no comparison; `cargo xtask ab` \
         makes one.\n",
    );
    text
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
                check("start/m", Verdict::Pass, "a card"),
                check("decode/m", Verdict::Fail, &"on and killed part at token 3 ".repeat(6)),
                check("graph-capture", Verdict::NotPossible, "not offered | yet"),
            ],
        }
    }

    #[test]
    fn the_table_breaks_long_lines_below_themselves() {
        insta::assert_snapshot!(render_table(&result().checks), @r"
        CHECK          VERDICT       SEEN
        start/m        pass          a card
        decode/m       FAIL          on and killed part at token 3 on and killed part at token 3 on and killed part at token 3 on and
                                     killed part at token 3 on and killed part at token 3 on and killed part at token 3
        graph-capture  not possible  not offered | yet
        ");
    }

    #[test]
    fn the_page_says_where_it_was_measured() {
        let page = render_page(&result(), "cargo xtask gpu-check");
        let start = "# GPU check: NVIDIA H200\n\nmeasured on: NVIDIA H200 · 2026-01-31 · commit \
                     abc1234\n\n```console\n$ cargo xtask gpu-check\n```\n\n1 passed, 1 failed, 1 not \
                     possible, in 201 of 280 s on NVIDIA H200.\n";
        assert!(page.starts_with(start), "{page}");
        assert!(
            page.contains("| graph-capture | not possible | not offered \\| yet |\n"),
            "{page}"
        );
        let standin = GpuResult { is_standin: true, interrupted: true, ..result() };
        let page = render_page(&standin, "x");
        assert!(page.contains("\nstand-in driver: NVIDIA H200"), "{page}");
        assert!(page.contains("nothing of it is about hardware; interrupted"), "{page}");
    }
}
