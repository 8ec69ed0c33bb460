//! The result of a comparison, out of its samples alone: the same samples give the same result.

use std::collections::BTreeMap;

use formats::cell_report::{EngineInfo, ModelInfo};
use serde::Serialize;

use super::activation::Activation;
use super::config::{AbPlan, BASE, Leg};
use super::same_work::WorkCheck;
use super::samples::{AbStart, Identity, Log, RunStatus, Stop};
use crate::ab::attribution::{Part, SwitchAttribution};
use crate::ab::gate::GateResult;
use crate::ab::metric::Metric;
use crate::cell::classify::Classification;
use crate::stats::Interval;
use crate::stats::memory_curve::CurveJudgement;
use crate::stats::verdict::{Scale, Verdict};
use crate::sys::hardware::HostFacts;

use leg::judge_leg;
use proof::check_base_work;
pub(crate) use stop::check_stop;
use summary::{check_gates, collect_notes, collect_violations, drift};
use table::Table;

mod leg;
mod proof;
mod stop;
mod summary;
mod table;

/// The `schema` number of `result.json`.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct AbResult {
    pub(crate) schema: u32,
    pub(crate) date: String,
    /// Whether runs are missing.
    pub(crate) partial: bool,
    /// Why no further run was made; none while it goes on.
    pub(crate) stop: Option<Stop>,
    /// Blocks in which base was measured.
    pub(crate) blocks: usize,
    pub(crate) runs: RunCounts,
    pub(crate) plan: AbPlan,
    pub(crate) identity: Identity,
    pub(crate) host: HostFacts,
    pub(crate) hardware: String,
    pub(crate) commit: String,
    pub(crate) dirty: Option<bool>,
    pub(crate) engine: Option<EngineInfo>,
    pub(crate) model: Option<ModelInfo>,
    /// Hash of what every run inherited from the shell, and the switches in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inherited: Option<InheritedShown>,
    /// How the base leg changed from run to run.
    pub(crate) drift: Option<Drift>,
    pub(crate) legs: Vec<LegResult>,
    /// The gates, for each leg that they are about.
    pub(crate) gates: Vec<GateResult>,
    /// What a reader must know.
    pub(crate) notes: Vec<String>,
    /// Why the exit code is 1; empty where it is 0.
    pub(crate) violations: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct InheritedShown {
    pub(crate) sha256: String,
    /// `NAME=VALUE` of what is known to change speed or memory.
    pub(crate) switches: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RunCounts {
    /// Measured on a quiet machine.
    pub(crate) accepted: usize,
    /// Repeated, since the machine was not quiet.
    pub(crate) rejected: usize,
    /// Counted although the machine was not quiet on any try.
    pub(crate) contended: usize,
    pub(crate) failed: usize,
    /// Launched, without an end.
    pub(crate) lost: usize,
}

/// The change of the base leg's primary metric from run to run, all legs' runs counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Drift {
    pub(crate) pct_per_run: f64,
    /// Where it lies with 95 % confidence.
    pub(crate) interval: Interval,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct LegResult {
    pub(crate) leg: Leg,
    /// The verdict on the leg: that of the primary metric, unless no comparison was made. None for
    /// base and null.
    pub(crate) verdict: Option<Verdict>,
    /// Why it is inert or inconclusive.
    pub(crate) why: Option<String>,
    pub(crate) failure: Option<Failure>,
    /// Whether its variables did anything.
    pub(crate) activation: Activation,
    /// Whether it did the work of base.
    pub(crate) work: WorkCheck,
    /// Runs that count although the machine was not quiet.
    pub(crate) contended_runs: usize,
    pub(crate) metrics: BTreeMap<Metric, MetricResult>,
    /// Held memory over the decode steps.
    pub(crate) memory: Option<CurveJudgement>,
    /// Where the time of the difference from base lies.
    pub(crate) split: Vec<Part>,
    /// What the leg's switch explains of the gain over the baseline build.
    pub(crate) attribution: Option<SwitchAttribution>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    pub(crate) classification: Classification,
    /// The block, from 0.
    pub(crate) block: usize,
    /// What decided the class: a pattern's line, a signal, a reason.
    pub(crate) evidence: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MetricResult {
    pub(crate) runs: usize,
    /// The median of the runs.
    pub(crate) median: f64,
    /// Robust standard deviation of the runs.
    pub(crate) spread: Option<f64>,
    /// Where the centre of the runs lies with 95 % confidence.
    pub(crate) interval: Option<Interval>,
    /// None for base itself.
    pub(crate) versus_base: Option<VersusBase>,
}

/// One metric of a leg against base. In percent of base for log ratios, else in the metric's unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct VersusBase {
    /// What the effect was estimated in.
    pub(crate) scale: Scale,
    pub(crate) blocks: usize,
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

/// Judges the samples of a comparison.
///
/// # Errors
/// A gate of the plan that does not parse, which a plan never has.
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
        inherited: start.inherited.as_ref().map(|inherited| InheritedShown {
            sha256: inherited.sha256.clone(),
            switches: inherited.switches(),
        }),
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

pub(crate) fn describe_failure(failure: &Failure) -> String {
    let what = match failure.classification {
        Classification::Oom => "ran out of memory",
        Classification::FailTimeout => "timed out",
        Classification::FailNoOutput => "reported no numbers",
        Classification::FailWrongWork => "did other work than was asked for",
        _ => "failed",
    };
    let evidence = failure.evidence.as_ref().map(|line| format!(": {line}")).unwrap_or_default();
    format!("{what} ({}) in block {}{evidence}", failure.classification, failure.block + 1)
}

pub(crate) fn describe_work(work: &WorkCheck) -> String {
    match work {
        WorkCheck::Same { output } => format!("same ({output})"),
        WorkCheck::OtherPrompt => "a different prompt".to_owned(),
        WorkCheck::OtherOutput { same_tokens: Some(count) } => {
            format!("different tokens after the first {count}")
        }
        WorkCheck::OtherOutput { same_tokens: None } => "different tokens".to_owned(),
        WorkCheck::Unknown => "unknown".to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
