//! One leg: its metrics against base, its memory, its failure, and the verdict on it.

use std::collections::BTreeMap;

use super::proof::{activation_of, is_other_work, work_of};
use super::table::{Run, Table};
use super::{Failure, LegResult, MetricResult, VersusBase, describe_failure, describe_work};
use crate::ab::activation::Activation;
use crate::ab::attribution::{Part, Phases, SwitchAttribution, attribute_switch, split_difference};
use crate::ab::config::{BASE, Leg, LegRole, NULL};
use crate::ab::metric::Metric;
use crate::ab::same_work::WorkCheck;
use crate::ab::samples::{RunEnd, RunStatus};
use crate::cell::classify::Classification;
use crate::cell::runner::Measured;
use crate::stats::interval::center;
use crate::stats::location::{median, robust_standard_deviation};
use crate::stats::memory_curve::{curve_from_windows, judge_curves};
use crate::stats::verdict::{Verdict, judge, margin_interval, relative_effect};

pub(super) fn judge_leg(table: &Table<'_>, leg: &Leg, base_work: &WorkCheck) -> LegResult {
    let plan = table.plan();
    let activation = activation_of(table, leg);
    let work = work_of(table, leg);
    let failure = table.log.failure(&leg.name).map(failure_of);
    let overruled = overrule(table, leg, &activation, &work, base_work, failure.as_ref());
    let metrics: BTreeMap<Metric, MetricResult> = Metric::ALL
        .into_iter()
        .filter_map(|metric| Some((metric, judge_metric(table, leg, metric, &overruled)?)))
        .collect();
    let of_primary = metrics
        .get(&plan.primary)
        .and_then(|metric| metric.versus_base.as_ref())
        .and_then(|versus| versus.verdict);
    let is_compared = !leg.role.is_reference();
    let (verdict, why) = match overruled {
        Some((verdict, why)) => (Some(verdict), Some(why)),
        None if is_compared => match of_primary {
            Some(verdict) => (Some(verdict), None),
            None => (
                Some(Verdict::Inconclusive),
                Some(format!(
                    "no block measured {} in base, null and this leg",
                    plan.primary.name()
                )),
            ),
        },
        None => (None, None),
    };
    let curves: Option<Vec<_>> = table
        .of_leg(&leg.name)
        .map(|run| curve_from_windows(&run.report.as_ref()?.memory.windows))
        .collect();
    let contended = |run: &&Run<'_>| run.end.status == RunStatus::Contended;
    LegResult {
        leg: leg.clone(),
        verdict,
        why,
        failure,
        activation,
        work,
        contended_runs: table.of_leg(&leg.name).filter(contended).count(),
        memory: judge_curves(
            &curves.unwrap_or_default(),
            plan.flat_mib_per_token,
            table.start.device_bytes,
            table.bootstrap(&leg.name, None, 10),
        ),
        split: if is_compared { split_of(table, leg) } else { Vec::new() },
        attribution: attribution_of(table, leg),
        metrics,
    }
}

/// A verdict that no number can change, and why.
fn overrule(
    table: &Table<'_>,
    leg: &Leg,
    activation: &Activation,
    work: &WorkCheck,
    base_work: &WorkCheck,
    failure: Option<&Failure>,
) -> Option<(Verdict, String)> {
    if leg.role.is_reference() {
        return None;
    }
    let inconclusive = |why: String| Some((Verdict::Inconclusive, why));
    if let Some(failure) = failure {
        return inconclusive(describe_failure(failure));
    }
    for reference in [BASE, NULL] {
        if let Some(run) = table.log.failure(reference) {
            let why = describe_failure(&failure_of(run));
            return inconclusive(format!("{reference} has no numbers: it {why}"));
        }
    }
    if let Activation::Inert { reason, nearest } = activation {
        let near = nearest.as_ref().map(|name| format!("; did you mean {name}?"));
        return Some((Verdict::Inert, format!("{reason}{}", near.unwrap_or_default())));
    }
    if table.plan().allow_different_output {
        return None;
    }
    if is_other_work(base_work) {
        return inconclusive(format!("base disagrees with itself: {}", describe_work(base_work)));
    }
    is_other_work(work)
        .then(|| (Verdict::Inconclusive, format!("it did different work: {}", describe_work(work))))
}

fn failure_of(run: &RunEnd) -> Failure {
    let evidence = &run.evidence;
    // The signal is the harness's own then.
    let timed_out = run.classification == Some(Classification::FailTimeout);
    Failure {
        classification: run.classification.unwrap_or(Classification::FailBench),
        block: run.block,
        evidence: evidence
            .line
            .clone()
            .or_else(|| run.process.signal.filter(|_| !timed_out).map(|it| format!("signal {it}")))
            .or_else(|| evidence.stderr_tail.last().cloned())
            .or_else(|| {
                run.process
                    .exit_code
                    .filter(|code| *code != 0)
                    .map(|code| format!("exit code {code}"))
            })
            .or_else(|| evidence.result_problem.clone()),
    }
}

fn judge_metric(
    table: &Table<'_>,
    leg: &Leg,
    metric: Metric,
    overruled: &Option<(Verdict, String)>,
) -> Option<MetricResult> {
    let values: Vec<f64> =
        table.of_leg(&leg.name).filter_map(|run| run.values.get(&metric).copied()).collect();
    let own = center(&values, table.bootstrap(&leg.name, Some(metric), 1));
    Some(MetricResult {
        runs: values.len(),
        median: median(&values)?,
        spread: robust_standard_deviation(&values),
        interval: own.map(|center| center.interval),
        versus_base: versus_base(table, leg, metric, overruled),
    })
}

fn versus_base(
    table: &Table<'_>,
    leg: &Leg,
    metric: Metric,
    overruled: &Option<(Verdict, String)>,
) -> Option<VersusBase> {
    if leg.role == LegRole::Base {
        return None;
    }
    let effect = table.effect(&leg.name, metric)?;
    let floor = table.floor(metric, effect.scale);
    let base: Vec<f64> = table.pairs(&leg.name, metric).iter().map(|pair| pair.0).collect();
    let same = margin_interval(table.margin(metric), effect.scale, &base);
    let judged = floor.map(|floor| judge(&effect, floor, same, metric.better()));
    let verdict = match (leg.role, overruled, &judged) {
        (LegRole::Null, _, _) => None,
        (_, Some((verdict, _)), _) => Some(*verdict),
        (_, None, judged) => judged.map(|judged| judged.verdict),
    };
    let shown = |value: f64| match relative_effect(value, effect.scale) {
        Some(share) => 100.0 * share,
        None => value,
    };
    Some(VersusBase {
        scale: effect.scale,
        blocks: effect.blocks,
        change: shown(effect.center.estimate),
        interval: effect.center.interval.map(shown),
        noise_floor: floor.map(shown),
        verdict,
        within_margin: judged.is_some_and(|judged| judged.within_margin),
        detectable: judged.and_then(|judged| judged.detectable).map(shown),
        blocks_needed: judged.and_then(|judged| judged.blocks_needed),
    })
}

fn split_of(table: &Table<'_>, leg: &Leg) -> Vec<Part> {
    let phases = |run: &Run<'_>| {
        let timing = run.report.as_ref().map(|report| &report.timing);
        let measured: Measured = run.end.measured.unwrap_or_default();
        let steps =
            run.report.as_ref().and_then(|report| report.allocator.as_ref()).map(|allocator| {
                allocator.decode_steps.iter().map(|step| step.host_ns).sum::<Option<u64>>()
            });
        Phases {
            wall_ms: run.end.process.wall_ms,
            load_ms: timing.and_then(|timing| timing.load_ms),
            prefill_ms: measured.prefill_ms,
            decode_ms: measured.decode_ms,
            allocator_ms: steps.flatten().map(|ns| ns as f64 / 1e6),
        }
    };
    let blocks: Vec<(Phases, Phases)> = table
        .blocks_of([BASE, &leg.name])
        .iter()
        .map(|[base, leg]| (phases(base), phases(leg)))
        .collect();
    split_difference(&blocks, table.bootstrap(&leg.name, None, 20))
}

fn attribution_of(table: &Table<'_>, leg: &Leg) -> Option<SwitchAttribution> {
    let baseline = table.plan().legs.iter().find(|leg| leg.role == LegRole::Baseline)?;
    if leg.role != LegRole::Test {
        return None;
    }
    let metric = table.plan().primary;
    let blocks: Vec<[f64; 3]> = table
        .blocks_of([BASE, &leg.name, &baseline.name])
        .iter()
        .filter_map(|runs| {
            let values: Vec<f64> =
                runs.iter().map(|run| run.values.get(&metric).copied()).collect::<Option<_>>()?;
            values.try_into().ok()
        })
        .collect();
    attribute_switch(&blocks, table.bootstrap(&leg.name, Some(metric), 30))
}
