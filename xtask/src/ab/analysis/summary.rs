//! What is said of the comparison as a whole: drift, gates, notes, violations.

use super::proof::{is_other_work, work_of};
use super::table::Table;
use super::{AbResult, Drift, LegResult, describe_work};
use crate::ab::activation::has_same_effect;
use crate::ab::config::{BASE, Leg, LegRole, NULL};
use crate::ab::gate::{Gate, GateOutcome, GateResult, Subject, check_gate};
use crate::ab::same_work::WorkCheck;
use crate::ab::samples::RunStatus;
use crate::cell::quiet::QuietRule;
use crate::stats::slope::theil_sen;
use crate::stats::verdict::{Scale, Verdict};

pub(super) fn drift(table: &Table<'_>) -> Option<Drift> {
    let metric = table.plan().primary;
    let points: Vec<(f64, f64)> = table
        .log
        .runs
        .iter()
        .enumerate()
        .filter(|(_, run)| run.leg == BASE)
        .filter_map(|(index, end)| {
            let run = table.runs.get(&(BASE, end.block)).filter(|run| run.end == end)?;
            let value = run.values.get(&metric).filter(|value| **value > 0.0)?;
            Some((index as f64, value.ln()))
        })
        .collect();
    let line = theil_sen(&points)?;
    let percent = |value: f64| 100.0 * value.exp_m1();
    Some(Drift { pct_per_run: percent(line.slope), interval: line.interval.map(percent) })
}

pub(super) fn check_gates(
    gates: &[Gate],
    legs: &[LegResult],
    table: &Table<'_>,
) -> Vec<GateResult> {
    let mut results = Vec::new();
    for gate in gates {
        let is_subject = |leg: &&LegResult| match &gate.leg {
            Some(name) => leg.leg.name == *name,
            None => leg.leg.role == LegRole::Test,
        };
        for leg in legs.iter().filter(is_subject) {
            let metric = leg.metrics.get(&gate.metric);
            let versus = metric
                .and_then(|metric| metric.versus_base.as_ref())
                .filter(|versus| versus.scale == Scale::LogRatio);
            let values: Vec<f64> = table
                .of_leg(&leg.leg.name)
                .filter_map(|run| run.values.get(&gate.metric).copied())
                .collect();
            let mut result = check_gate(
                gate,
                &Subject {
                    leg: &leg.leg.name,
                    values: &values,
                    value_interval: metric.and_then(|metric| metric.interval),
                    change_pct: versus.map(|versus| versus.interval),
                    noise_floor_pct: versus.and_then(|versus| versus.noise_floor),
                },
            );
            // A gate on a comparison that was not made is not met, whatever its numbers look like.
            if let (Some(Verdict::Inert | Verdict::Inconclusive), Some(why)) =
                (leg.verdict, &leg.why)
                && result.outcome == GateOutcome::Passed
            {
                result.outcome = GateOutcome::NotMeasured;
                result.reason = format!("no comparison was made: {why}");
            }
            results.push(result);
        }
    }
    results
}

pub(super) fn collect_notes(table: &Table<'_>, base_work: &WorkCheck) -> Vec<String> {
    let mut notes = Vec::new();
    let plan = table.plan();
    let contended = table.log.runs.iter().filter(|run| run.status == RunStatus::Contended).count();
    if contended > 0 {
        notes.push(format!(
            "the machine was not quiet: {contended} runs count although they were disturbed on every try"
        ));
    }
    if plan.quiet == QuietRule::Noted {
        let disturbed =
            table.log.runs.iter().filter(|run| !run.quiet.disturbances.is_empty()).count();
        notes.push(format!(
            "a quiet machine was not required: {disturbed} of {} runs were disturbed",
            table.log.runs.len()
        ));
    }
    if plan.allow_different_output {
        if is_other_work(base_work) {
            notes.push(format!("base disagrees with itself: {}", describe_work(base_work)));
        }
        for leg in plan.legs.iter().filter(|leg| leg.role != LegRole::Base) {
            let work = work_of(table, leg);
            if is_other_work(&work) {
                notes.push(format!("{} did different work: {}", leg.name, describe_work(&work)));
            }
        }
    }
    if let Some(null) = table.effect(NULL, plan.primary)
        && !null.center.interval.contains(0.0)
    {
        notes.push(
            "base differs from itself: its interval against itself excludes zero, so something other \
             than the variables moves the runs; the noise floor is the far end of that interval"
                .to_owned(),
        );
    }
    notes.extend(same_effects(table));
    let removed: Vec<&str> = plan
        .variables()
        .into_iter()
        .filter(|name| table.start.environment.contains_key(*name))
        .collect();
    if !removed.is_empty() {
        notes.push(format!("set in the shell and removed for base: {}", removed.join(", ")));
    }
    notes
}

/// The pairs of legs that the program took for the same, for example `=0` and `=false`.
fn same_effects(table: &Table<'_>) -> Vec<String> {
    let tests: Vec<&Leg> =
        table.plan().legs.iter().filter(|leg| leg.role == LegRole::Test).collect();
    let mut notes = Vec::new();
    for (index, one) in tests.iter().enumerate() {
        for other in &tests[index + 1..] {
            let variables: Vec<_> = one.env.iter().chain(&other.env).cloned().collect();
            let blocks = table.blocks_of([&one.name, &other.name]);
            let is_same = blocks.iter().all(|[one, other]| {
                let reports = one.report.as_ref().zip(other.report.as_ref());
                reports.is_some_and(|(one, other)| has_same_effect(&variables, one, other))
            });
            if is_same && !blocks.is_empty() {
                notes.push(format!(
                    "{} and {} had the same effect: they are one leg, measured twice",
                    one.name, other.name
                ));
            }
        }
    }
    notes
}

pub(super) fn collect_violations(result: &AbResult) -> Vec<String> {
    let mut violations: Vec<String> = result
        .legs
        .iter()
        .filter_map(|leg| match leg.verdict {
            Some(verdict @ (Verdict::Inert | Verdict::Inconclusive)) => {
                let why = leg.why.as_deref().unwrap_or_default();
                Some(format!("{} is {}: {why}", leg.leg.name, verdict.word()))
            }
            _ => None,
        })
        .collect();
    for gate in result.gates.iter().filter(|gate| gate.outcome != GateOutcome::Passed) {
        let outcome = gate.outcome.to_string().to_lowercase();
        violations
            .push(format!("gate `{}` on {}: {outcome}, {}", gate.gate, gate.leg, gate.reason));
    }
    violations
}
