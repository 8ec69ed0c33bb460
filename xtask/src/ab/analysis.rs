//! The result of a comparison, out of its samples alone: the same samples give the same result.
//! Pure.

use std::collections::BTreeMap;

use cell_report::{CellReport, EngineInfo, ModelInfo};
use serde::Serialize;

use super::activation::{Activation, check_activation};
use super::config::{AbPlan, BASE, Leg, NULL, Role};
use super::quiet::QuietRule;
use super::same_work::{Work, WorkCheck, check_work};
use super::samples::{AbStart, Identity, Log, RunEnd, RunStatus, Stop};
use crate::attribution::{Part, Phases, SwitchAttribution, attribute_switch, split_difference};
use crate::classify::Classification;
use crate::gate::{Gate, GateOutcome, GateResult, Subject, check_gate};
use crate::journal::HostNote;
use crate::memory_curve::{CurveJudgement, curve_from_windows, judge_curves};
use crate::metric::{Kind, Metric, Values, read_values};
use crate::runner::Measured;
use crate::stats::Interval;
use crate::stats::interval::{Bootstrap, center};
use crate::stats::location::{median, robust_standard_deviation};
use crate::stats::slope::theil_sen;
use crate::verdict::{
    Effect, Margin, Scale, Verdict, judge, margin_interval, noise_floor, paired_difference,
    paired_effect, relative_effect,
};

/// The `schema` number of `result.json`.
pub(crate) const SCHEMA: u32 = 1;

/// What a comparison found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AbResult {
    /// The version of this format.
    pub(crate) schema: u32,
    /// The day of its start.
    pub(crate) date: String,
    /// Whether runs are missing that were wanted.
    pub(crate) partial: bool,
    /// Why no further run was made; none while it goes on.
    pub(crate) stop: Option<Stop>,
    /// Blocks in which base was measured.
    pub(crate) blocks: usize,
    /// Runs by what became of them.
    pub(crate) runs: RunCounts,
    /// What was run and how it was judged.
    pub(crate) plan: AbPlan,
    /// Hashes of program, model and definitions.
    pub(crate) identity: Identity,
    /// The machine.
    pub(crate) host: HostNote,
    /// Chip and memory in short.
    pub(crate) hardware: String,
    /// The commit of the checkout.
    pub(crate) commit: String,
    /// Whether tracked files differed from it.
    pub(crate) dirty: Option<bool>,
    /// The engine, as its report names it.
    pub(crate) engine: Option<EngineInfo>,
    /// The model, as the report names it.
    pub(crate) model: Option<ModelInfo>,
    /// How the base leg changed from run to run.
    pub(crate) drift: Option<Drift>,
    /// The legs, in the order of the plan.
    pub(crate) legs: Vec<LegResult>,
    /// The gates, for each leg that they are about.
    pub(crate) gates: Vec<GateResult>,
    /// What a reader must know.
    pub(crate) notes: Vec<String>,
    /// Why the exit code is 1; empty where it is 0.
    pub(crate) violations: Vec<String>,
}

/// Runs by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RunCounts {
    /// Measured on a quiet machine.
    pub(crate) accepted: usize,
    /// Repeated, since the machine was not quiet.
    pub(crate) rejected: usize,
    /// Counted although the machine was not quiet.
    pub(crate) contended: usize,
    /// Without numbers.
    pub(crate) failed: usize,
    /// Launched, without an end.
    pub(crate) lost: usize,
}

/// The change of the base leg's primary metric from run to run, all legs' runs counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Drift {
    /// In percent a run.
    pub(crate) pct_per_run: f64,
    /// Where it lies with 95 % confidence.
    pub(crate) interval: Interval,
}

/// One leg.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LegResult {
    /// The leg.
    pub(crate) leg: Leg,
    /// The verdict on the leg: that of the primary metric, unless no comparison was made. None for
    /// base and null.
    pub(crate) verdict: Option<Verdict>,
    /// Why it is inert or inconclusive.
    pub(crate) why: Option<String>,
    /// How it failed, if it did.
    pub(crate) failure: Option<Failure>,
    /// Whether its variables did anything.
    pub(crate) activation: Activation,
    /// Whether it did the work of base.
    pub(crate) work: WorkCheck,
    /// Runs that count although the machine was not quiet.
    pub(crate) contended_runs: usize,
    /// What was measured.
    pub(crate) metrics: BTreeMap<Metric, MetricResult>,
    /// Held memory over the decode steps.
    pub(crate) memory: Option<CurveJudgement>,
    /// Where the time of the difference from base lies.
    pub(crate) split: Vec<Part>,
    /// What the leg's switch explains of the gain over the baseline build.
    pub(crate) attribution: Option<SwitchAttribution>,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// Its class.
    pub(crate) classification: Classification,
    /// The block, from 0.
    pub(crate) block: usize,
    /// What decided the class: a pattern's line, a signal, a reason.
    pub(crate) evidence: Option<String>,
}

/// One metric of one leg.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MetricResult {
    /// Runs that measured it.
    pub(crate) runs: usize,
    /// The median of the runs.
    pub(crate) median: f64,
    /// Robust standard deviation of the runs.
    pub(crate) spread: Option<f64>,
    /// Where the centre of the runs lies with 95 % confidence.
    pub(crate) interval: Option<Interval>,
    /// Against base; none for base itself.
    pub(crate) versus_base: Option<VersusBase>,
}

/// One metric of a leg against base. In percent of base for log ratios, else in the metric's unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct VersusBase {
    /// What the effect was estimated in.
    pub(crate) scale: Scale,
    /// Blocks that hold both.
    pub(crate) blocks: usize,
    /// The change.
    pub(crate) change: f64,
    /// Where it lies with 95 % confidence.
    pub(crate) interval: Interval,
    /// The change that base shows against itself; none without a null leg's runs.
    pub(crate) noise_floor: Option<f64>,
    /// The verdict; none for the null leg.
    pub(crate) verdict: Option<Verdict>,
    /// Whether a difference is real but smaller than the margin.
    pub(crate) within_margin: bool,
    /// The smallest change that this many blocks find four times in five.
    pub(crate) detectable: Option<f64>,
    /// Blocks that it takes to see a change of the margin, where the verdict is unresolved.
    pub(crate) blocks_needed: Option<usize>,
}

/// Everything of the samples that judgements need, by leg and block.
struct Table<'a> {
    start: &'a AbStart,
    log: &'a Log,
    runs: BTreeMap<(&'a str, usize), Run<'a>>,
}

/// One run that counts.
struct Run<'a> {
    end: &'a RunEnd,
    report: Option<CellReport>,
    values: Values,
}

impl<'a> Table<'a> {
    fn new(start: &'a AbStart, log: &'a Log) -> Table<'a> {
        let measured =
            |run: &&RunEnd| matches!(run.status, RunStatus::Accepted | RunStatus::Contended);
        let mut runs = BTreeMap::new();
        for end in log.runs.iter().filter(measured) {
            let report = end.cell_report();
            let measured = end.measured.unwrap_or_default();
            let values = read_values(&measured, report.as_ref(), end.process.rss_peak_bytes);
            runs.entry((end.leg.as_str(), end.block)).or_insert(Run { end, report, values });
        }
        Table { start, log, runs }
    }

    fn plan(&self) -> &'a AbPlan {
        &self.start.plan
    }

    fn of_leg<'b>(&'b self, leg: &'b str) -> impl Iterator<Item = &'b Run<'a>> {
        self.runs.range((leg, 0)..=(leg, usize::MAX)).map(|(_, run)| run)
    }

    /// The runs of some legs in each block that has them all.
    fn blocks_of<'b, const N: usize>(&'b self, legs: [&'b str; N]) -> Vec<[&'b Run<'a>; N]> {
        let blocks = self.of_leg(legs[0]).map(|run| run.end.block);
        blocks
            .filter_map(|block| {
                let runs: Vec<&Run<'a>> =
                    legs.iter().map(|leg| self.runs.get(&(*leg, block))).collect::<Option<_>>()?;
                runs.try_into().ok()
            })
            .collect()
    }

    fn pairs(&self, leg: &str, metric: Metric) -> Vec<(f64, f64)> {
        self.blocks_of([BASE, leg])
            .iter()
            .filter_map(|[base, leg]| Some((*base.values.get(&metric)?, *leg.values.get(&metric)?)))
            .collect()
    }

    /// A sequence of the seed of its own for each thing that is drawn.
    fn bootstrap(&self, leg: &str, metric: Option<Metric>, purpose: u64) -> Bootstrap {
        let leg = self.plan().legs.iter().position(|other| other.name == leg).unwrap_or(0) as u64;
        let metric = metric.map_or(0, |metric| metric as u64 + 1);
        Bootstrap {
            seed: self.plan().seed,
            stream: (leg * 100 + metric) * 100 + purpose,
            resamples: Bootstrap::RESAMPLES,
        }
    }

    fn effect(&self, leg: &str, metric: Metric) -> Option<Effect> {
        let (pairs, bootstrap) = (self.pairs(leg, metric), self.bootstrap(leg, Some(metric), 0));
        match metric.kind() {
            Kind::Slope => paired_difference(&pairs, bootstrap),
            Kind::Time | Kind::Count | Kind::Memory => paired_effect(&pairs, bootstrap),
        }
    }

    /// What base shows against itself, on the scale of an effect. A leg with a zero is compared by
    /// difference, and then the null leg is as well; the other way round there is no floor.
    fn floor(&self, metric: Metric, scale: Scale) -> Option<f64> {
        let null = self.effect(NULL, metric)?;
        match (scale, null.scale) {
            (Scale::LogRatio, Scale::LogRatio) | (Scale::Difference, Scale::Difference) => {
                Some(noise_floor(&null))
            }
            (Scale::Difference, Scale::LogRatio) => {
                let bootstrap = self.bootstrap(NULL, Some(metric), 2);
                paired_difference(&self.pairs(NULL, metric), bootstrap).map(|e| noise_floor(&e))
            }
            (Scale::LogRatio, Scale::Difference) => None,
        }
    }

    fn margin(&self, metric: Metric) -> Margin {
        let absolute = match metric.kind() {
            Kind::Slope => Some(self.plan().flat_mib_per_token),
            Kind::Time | Kind::Count | Kind::Memory => None,
        };
        Margin { relative: self.plan().margin_pct / 100.0, absolute }
    }
}

/// Judges the samples of a comparison.
///
/// # Errors
/// A gate of the plan that is none, which a plan never has.
pub(crate) fn analyse(start: &AbStart, log: &Log) -> anyhow::Result<AbResult> {
    let table = Table::new(start, log);
    let plan = table.plan();
    let base_work = check_base_work(&table);
    let legs: Vec<LegResult> =
        plan.legs.iter().map(|leg| judge_leg(&table, leg, &base_work)).collect();
    let gates = check_gates(&plan.parse_gates()?, &legs, &table);
    let count = |status| log.runs.iter().filter(|run| run.status == status).count();
    let report = table.of_leg(BASE).find_map(|run| run.report.as_ref());
    let partial = matches!(log.stop, None | Some(Stop::Interrupted));
    let mut result = AbResult {
        schema: SCHEMA,
        date: start.date.clone(),
        partial,
        stop: log.stop,
        blocks: table.of_leg(BASE).count(),
        runs: RunCounts {
            accepted: count(RunStatus::Accepted),
            rejected: count(RunStatus::Rejected),
            contended: count(RunStatus::Contended),
            failed: count(RunStatus::Failed),
            lost: log.lost_launches,
        },
        plan: plan.clone(),
        identity: start.identity.clone(),
        host: start.host.clone(),
        hardware: start.hardware.clone(),
        commit: start.commit.clone(),
        dirty: start.dirty,
        engine: report.map(|report| report.engine.clone()),
        model: report.map(|report| report.model.clone()),
        drift: drift(&table),
        legs,
        gates,
        notes: Vec::new(),
        violations: Vec::new(),
    };
    result.notes = collect_notes(&table, &base_work);
    result.violations = collect_violations(&result);
    Ok(result)
}

/// Whether the comparison may end after `blocks` whole blocks, and why.
///
/// `elapsed_minutes` counts the runs alone.
pub(crate) fn check_stop(
    start: &AbStart,
    log: &Log,
    blocks: usize,
    elapsed_minutes: f64,
) -> Option<Stop> {
    let plan = &start.plan;
    let compared: Vec<&Leg> =
        plan.legs.iter().filter(|leg| !matches!(leg.role, Role::Base | Role::Null)).collect();
    let has_failed = |leg: &str| log.failure(leg).is_some();
    if [BASE, NULL].into_iter().any(has_failed) || compared.iter().all(|leg| has_failed(&leg.name))
    {
        return Some(Stop::LegsFailed);
    }
    // The first block shows whether there is anything to compare. Blocks come in mirrored pairs:
    // stopping within one would leave a drift in.
    let ends_a_pair = blocks.is_multiple_of(2);
    if blocks == 0 || (blocks > 1 && !ends_a_pair && blocks < plan.max_blocks) {
        return None;
    }
    let table = Table::new(start, log);
    let live: Vec<&Leg> = compared.into_iter().filter(|leg| !has_failed(&leg.name)).collect();
    let is_inert = |leg: &&Leg| matches!(activation_of(&table, leg), Activation::Inert { .. });
    if live.iter().all(is_inert) {
        return Some(Stop::Inert);
    }
    let base_work = check_base_work(&table);
    let base_differs = is_other_work(&base_work);
    let all_differ = live.iter().all(|leg| is_other_work(&work_of(&table, leg)));
    if (base_differs || all_differ) && !plan.allow_different_output {
        return Some(Stop::OtherWork);
    }
    if blocks < plan.min_blocks {
        return None;
    }
    if plan.min_blocks == plan.max_blocks {
        return (blocks >= plan.max_blocks).then_some(Stop::FixedBlocks);
    }
    let narrow = |leg: &&Leg| {
        let effect = table.effect(&leg.name, plan.primary);
        effect.is_some_and(|effect| {
            let base: Vec<f64> =
                table.pairs(&leg.name, plan.primary).iter().map(|pair| pair.0).collect();
            let same = margin_interval(table.margin(plan.primary), effect.scale, &base);
            effect.center.interval.width() <= same.high
        })
    };
    if ends_a_pair && live.iter().all(narrow) {
        return Some(Stop::NarrowEnough);
    }
    if ends_a_pair && plan.max_minutes.is_some_and(|minutes| elapsed_minutes >= minutes) {
        return Some(Stop::MaxMinutes);
    }
    (blocks >= plan.max_blocks).then_some(Stop::MaxBlocks)
}

fn is_other_work(check: &WorkCheck) -> bool {
    matches!(check, WorkCheck::OtherPrompt | WorkCheck::OtherOutput { .. })
}

/// Base and null are the same thing: all of their runs must have done the same.
fn check_base_work(table: &Table<'_>) -> WorkCheck {
    let works: Vec<Work> =
        table.of_leg(BASE).chain(table.of_leg(NULL)).filter_map(work_of_run).collect();
    check_work(works.first(), &works)
}

fn work_of(table: &Table<'_>, leg: &Leg) -> WorkCheck {
    let reference = table.of_leg(BASE).find_map(work_of_run);
    let works: Vec<Work> = table.of_leg(&leg.name).filter_map(work_of_run).collect();
    check_work(reference.as_ref(), &works)
}

fn work_of_run(run: &Run<'_>) -> Option<Work> {
    run.report.as_ref().map(Work::from_report)
}

/// The proof for every block; the first block that is not active decides.
fn activation_of(table: &Table<'_>, leg: &Leg) -> Activation {
    let mut first = None;
    for [base, run] in table.blocks_of([BASE, &leg.name]) {
        let found = check_activation(&leg.env, base.report.as_ref(), run.report.as_ref());
        if matches!(found, Activation::Inert { .. }) {
            return found;
        }
        first.get_or_insert(found);
    }
    first.unwrap_or_else(|| {
        if leg.env.is_empty() {
            Activation::NotNeeded
        } else {
            Activation::Unknown { reason: "no block holds both legs".to_owned() }
        }
    })
}

fn judge_leg(table: &Table<'_>, leg: &Leg, base_work: &WorkCheck) -> LegResult {
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
    let is_compared = !matches!(leg.role, Role::Base | Role::Null);
    let (verdict, why) = match overruled {
        Some((verdict, why)) => (Some(verdict), Some(why)),
        None if is_compared => match of_primary {
            Some(verdict) => (Some(verdict), None),
            None => (
                Some(Verdict::Inconclusive),
                Some(format!("no block measured {} in base, null and here", plan.primary.name())),
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
    if matches!(leg.role, Role::Base | Role::Null) {
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
        .then(|| (Verdict::Inconclusive, format!("it did other work: {}", describe_work(work))))
}

fn failure_of(run: &RunEnd) -> Failure {
    let evidence = &run.evidence;
    Failure {
        classification: run.classification.unwrap_or(Classification::FailBench),
        block: run.block,
        evidence: evidence
            .line
            .clone()
            .or_else(|| run.process.signal.map(|signal| format!("signal {signal}")))
            .or_else(|| evidence.stderr_tail.last().cloned())
            .or_else(|| evidence.result_problem.clone()),
    }
}

/// How a leg failed, in words.
pub(crate) fn describe_failure(failure: &Failure) -> String {
    let what = match failure.classification {
        Classification::Oom => "ran out of memory",
        Classification::FailTimeout => "took too long",
        Classification::FailNoOutput => "left no numbers",
        _ => "failed",
    };
    let evidence = failure.evidence.as_ref().map(|line| format!(": {line}")).unwrap_or_default();
    format!("{what} ({}) in block {}{evidence}", failure.classification, failure.block + 1)
}

/// How the work compares, in words.
pub(crate) fn describe_work(work: &WorkCheck) -> String {
    match work {
        WorkCheck::Same { output } => format!("same ({output})"),
        WorkCheck::OtherPrompt => "another prompt".to_owned(),
        WorkCheck::OtherOutput { same_tokens: Some(count) } => {
            format!("other tokens after {count} that agree")
        }
        WorkCheck::OtherOutput { same_tokens: None } => "other tokens".to_owned(),
        WorkCheck::Unknown => "unknown".to_owned(),
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
    if leg.role == Role::Base {
        return None;
    }
    let effect = table.effect(&leg.name, metric)?;
    let floor = table.floor(metric, effect.scale);
    let base: Vec<f64> = table.pairs(&leg.name, metric).iter().map(|pair| pair.0).collect();
    let same = margin_interval(table.margin(metric), effect.scale, &base);
    let judged = floor.map(|floor| judge(&effect, floor, same, metric.better()));
    let verdict = match (leg.role, overruled, &judged) {
        (Role::Null, _, _) => None,
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
    let baseline = table.plan().legs.iter().find(|leg| leg.role == Role::Baseline)?;
    if leg.role != Role::Test {
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

fn drift(table: &Table<'_>) -> Option<Drift> {
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

fn check_gates(gates: &[Gate], legs: &[LegResult], table: &Table<'_>) -> Vec<GateResult> {
    let mut results = Vec::new();
    for gate in gates {
        let is_subject = |leg: &&LegResult| match &gate.leg {
            Some(name) => leg.leg.name == *name,
            None => leg.leg.role == Role::Test,
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

fn collect_notes(table: &Table<'_>, base_work: &WorkCheck) -> Vec<String> {
    let mut notes = Vec::new();
    let plan = table.plan();
    let contended = table.log.runs.iter().filter(|run| run.status == RunStatus::Contended).count();
    if contended > 0 {
        notes.push(format!(
            "the machine was not quiet: {contended} runs count although every try was disturbed"
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
        for leg in plan.legs.iter().filter(|leg| leg.role != Role::Base) {
            let work = work_of(table, leg);
            if is_other_work(&work) {
                notes.push(format!("{} did other work: {}", leg.name, describe_work(&work)));
            }
        }
    }
    if let Some(null) = table.effect(NULL, plan.primary)
        && !null.center.interval.contains(0.0)
    {
        notes.push(
            "base differs from itself beyond its interval: something else than the variables moves \
             the runs, and the noise floor is the far end of that interval"
                .to_owned(),
        );
    }
    let removed: Vec<&str> = plan
        .variables()
        .into_iter()
        .filter(|name| table.start.environment.contains_key(*name))
        .collect();
    if !removed.is_empty() {
        notes.push(format!("the shell had {} set; base had it removed", removed.join(", ")));
    }
    notes
}

fn collect_violations(result: &AbResult) -> Vec<String> {
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
