//! `report.md`: the template `report.md.j2`, and the words and figures that it is given.

use minijinja::{Environment, UndefinedBehavior, Value, context};

use super::tables::{memory_rows, metric_rows, render_legs_table, render_table, split_rows};
use super::{describe_attribution, render_gate_lines, render_verdicts};
use crate::ab::analysis::{AbResult, describe_failure};

const TEMPLATE: &str = include_str!("report.md.j2");

/// `report.md`. `command` repeats the comparison.
pub(crate) fn render_report(result: &AbResult, command: &str) -> String {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
        .render_named_str("report.md", TEMPLATE, context! { command, ..words(result) })
        .expect("the template asks for what it is given")
}

/// What the template cannot take from the result as it is: sentences, tables, rounded figures.
fn words(result: &AbResult) -> Value {
    let plan = &result.plan;
    let memory = memory_rows(result);
    let splits: Vec<_> = result
        .legs
        .iter()
        .filter(|leg| !leg.split.is_empty())
        .map(|leg| context! { leg => leg.leg.name, table => render_table(&split_rows(leg)) })
        .collect();
    let attributions: Vec<String> = result
        .legs
        .iter()
        .filter_map(|leg| {
            let found = leg.attribution.as_ref()?;
            Some(format!("{}: {}", leg.leg.name, describe_attribution(found)))
        })
        .collect();
    let failures: Vec<String> = result
        .legs
        .iter()
        .filter_map(|leg| {
            Some(format!("{} {}", leg.leg.name, describe_failure(leg.failure.as_ref()?)))
        })
        .collect();
    let engine = result.engine.as_ref().map(|engine| {
        [&engine.name, &engine.version].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ")
    });
    let drift = result.drift.map(|drift| {
        let (low, high) = (drift.interval.low, drift.interval.high);
        format!("{:+.3} % ({low:+.3} to {high:+.3} %)", drift.pct_per_run)
    });
    context! {
        verdicts => render_verdicts(result),
        legs_table => render_legs_table(result),
        metrics_table => render_table(&metric_rows(result)),
        memory_table => (memory.len() > 1).then(|| render_table(&memory)),
        gate_lines => render_gate_lines(result),
        splits, attributions, failures, drift, engine,
        flat => plan.flat_mib_per_token.to_string(),
        margin => plan.margin_pct.to_string(),
        primary => plan.primary.label(),
        stopped => result.stop.map(|stop| stop.describe()),
        ..Value::from_serialize(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::analysis::analyse;
    use crate::ab::analysis::tests::{log, noisy, start};
    use crate::ab::samples::{RunStatus, Stop};
    use crate::cell::classify::Classification;

    #[test]
    fn a_report_of_nothing_is_partial_and_names_what_is_unknown() {
        let result = analyse(&start("", None), &log(0, noisy(0.0))).unwrap();
        let report = render_report(&result, "cargo xtask ab");
        assert!(report.starts_with("# A/B on tiny, 2026-01-31\n\n**Partial: runs are missing.**"));
        assert!(report.contains("No leg reported held memory"), "{report}");
        assert!(report.contains("drawn from seed 1; not finished\n- runs: 0 accepted"), "{report}");
        assert!(report.contains("- engine: unknown; checkout unknown\n"), "{report}");
        assert!(!report.contains("none") && !report.contains("\n\n\n"), "{report}");
    }

    #[test]
    fn a_report_has_every_part_that_there_is_something_to_say_of() {
        let text = "question = \"why?\"\ngates = [\"decode_tok_s >= 1%\"]\nquiet = \"noted\"\n";
        let mut samples = log(6, noisy(0.01));
        samples.runs[1].report = None;
        samples.runs[2].status = RunStatus::Failed;
        samples.runs[2].classification = Some(Classification::FailTimeout);
        samples.stop = Some(Stop::LegsFailed);
        let mut start = start(text, None);
        start.dirty = Some(true);
        start.identity.model_sha256 = Some("0123456789abcdef".to_owned());
        let report = render_report(&analyse(&start, &samples).unwrap(), "cargo xtask ab");
        for part in [
            "\n\nwhy?\n\n- test against base: inconclusive: null has no numbers: it timed out",
            "\n- note: a quiet machine was not required: 0 of 18 runs were disturbed\n\n```sh\n",
            "\n\n## Activation\n\n- test: unknown: the runner writes no cell report\n\n## Memory",
            "\n\n## Where the time of test differs\n\n| part of the run",
            "\n\n## Gates\n\n- gate `decode_tok_s >= 1%` on test: ",
            "; ended because legs failed\n",
            "; checkout unknown with uncommitted changes\n- SHA-256",
            ", model 0123456789ab\n- null timed out (FAIL:timeout) in block 1\n",
        ] {
            assert!(report.contains(part), "{part:?} is not in\n{report}");
        }
        assert!(!report.contains("none") && !report.contains("\n\n\n"), "{report}");
    }
}
