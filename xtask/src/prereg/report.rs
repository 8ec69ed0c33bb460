//! The report of a run, from the frozen document and the raw samples alone: the same every time.

use std::collections::BTreeSet;

use serde::Serialize;

use super::chain::{DataBefore, Frozen, Version, diff_document};
use super::compose::{Dropped, NULL};
use super::document::Document;
use super::judge::{Conditions, Landing, Phase, ReadsAs, Round, Standing, judge};
use super::oracle::{TrialOutcome, TrialVerdict};
use super::sample::{
    Judging, LaunchRecord, Record, RunRecord, Samples, Slot, launches_in, total_cost_s,
};
use super::score::{Scorecard, score};

pub(crate) use markdown::render_markdown;

mod markdown;

const SCHEMA: u32 = 1;

/// `result.json`: everything that a report says.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ResultFile {
    pub(crate) schema: u32,
    pub(crate) run: RunRecord,
    pub(crate) status: Status,
    pub(crate) rule: Option<String>,
    /// What it authorises, in words.
    pub(crate) action: Option<String>,
    pub(crate) landing: Option<Landing>,
    /// Why nothing was decided, if so.
    pub(crate) why_open: Option<String>,
    pub(crate) oracles: Vec<TrialOutcome>,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) rounds: Vec<Round>,
    /// Expectations; `None` before a pass over the ladder is complete.
    pub(crate) scorecard: Option<Scorecard>,
    /// Launches of the ladder that count although they were disturbed.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) contended: u64,
    pub(crate) cost: Cost,
    /// `None` for a run that began before lines were tied to each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) samples: Option<SamplesNote>,
    /// What the document did not foresee.
    pub(crate) deviations: Vec<String>,
    pub(crate) versions: Vec<Amendment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Decided,
    /// A rule that would land something holds, but rests on what is no more than noise.
    NotShown,
    /// Everything was measured and no rule fired.
    Undecided,
    /// Something is missing.
    Incomplete,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Cost {
    /// Spent, in minutes, building and loading included.
    pub(crate) spent_min: f64,
    pub(crate) ceiling_min: f64,
    /// Launches, those that do not count included.
    pub(crate) launches: u64,
    pub(crate) over_ceiling: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Amendment {
    pub(crate) version: u32,
    pub(crate) date: String,
    pub(crate) why: Option<String>,
    pub(crate) data: DataBefore,
    /// What it changed in the document, as a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) diff: Option<String>,
    /// What it changed besides, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) changed: Vec<String>,
}

/// What the report was computed from.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SamplesNote {
    pub(crate) lines: u64,
    /// SHA-256 of the last line; each line holds the hash of the one before.
    pub(crate) last_sha256: String,
}

impl ResultFile {
    /// Whether a rule fired and every oracle and guard passed.
    pub(crate) fn is_clean(&self) -> bool {
        let guards = self
            .rounds
            .last()
            .is_none_or(|round| round.guards.iter().all(|guard| guard.passes != Some(false)));
        let oracles = self.oracles.iter().all(|trial| trial.verdict == TrialVerdict::Passed);
        self.status == Status::Decided && guards && oracles
    }

    pub(crate) fn render(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

pub(crate) fn summarize_run(
    document: &Document,
    frozen: &Frozen,
    version: &Version,
    run: &RunRecord,
    samples: &Samples,
) -> ResultFile {
    let records = samples.records.as_slice();
    let standing = judge(document, records);
    let (status, rule, landing, why_open) = match &standing.phase {
        Phase::Decided { rule, landing } => {
            (Status::Decided, Some(rule.clone()), Some(landing.clone()), None)
        }
        Phase::NotShown { rule, why } => {
            (Status::NotShown, Some(rule.clone()), None, Some(why.clone()))
        }
        Phase::Undecided { why } => (Status::Undecided, None, None, Some(why.clone())),
        _ => (Status::Incomplete, None, None, Some(render_open(records))),
    };
    let action = rule
        .as_ref()
        .and_then(|id| document.rules.iter().find(|rule| rule.id == *id))
        .map(|rule| rule.action.to_string());
    ResultFile {
        schema: SCHEMA,
        run: run.clone(),
        status,
        rule,
        action,
        landing,
        why_open,
        scorecard: scorecard(document, &standing, records),
        oracles: standing.trials,
        dropped: standing.dropped,
        rounds: standing.rounds,
        contended: count_contended(records),
        cost: read_cost(document, records),
        samples: note_samples(run, samples),
        deviations: read_deviations(document, version, run, records),
        versions: read_amendments(&frozen.versions[..version.version as usize], run),
    }
}

fn note_samples(run: &RunRecord, samples: &Samples) -> Option<SamplesNote> {
    let last_sha256 = samples.last_sha256.clone()?;
    let lines = samples.records.len() as u64;
    (run.judging == Judging::WithNoise).then_some(SamplesNote { lines, last_sha256 })
}

fn read_amendments(versions: &[Version], run: &RunRecord) -> Vec<Amendment> {
    let before = std::iter::once(None).chain(versions.iter().map(Some));
    let amendment = |(version, before): (&Version, Option<&Version>)| {
        let before = before.filter(|_| run.judging == Judging::WithNoise);
        Amendment {
            version: version.version,
            date: version.date.clone(),
            why: version.why.clone(),
            data: version.data.clone(),
            diff: before
                .and_then(|before| diff_document(&before.document, &version.document, &run.name)),
            changed: before.map(|before| version.pins.diff_words(&before.pins)).unwrap_or_default(),
        }
    };
    versions.iter().zip(before).map(amendment).collect()
}

fn render_open(records: &[Record]) -> String {
    match records.last() {
        Some(Record::Stopped { why }) => why.clone(),
        _ => "some launches are missing".to_owned(),
    }
}

fn scorecard(document: &Document, standing: &Standing, records: &[Record]) -> Option<Scorecard> {
    let first = standing.rounds.first()?;
    // An expectation is about the ladder as it was first run: what an item that a rule dropped later
    // did counts.
    let conditions = Conditions {
        document,
        trials: &standing.trials,
        dropped: &standing.dropped,
        round: first,
        cost_min: total_cost_s(records) / 60.0,
        reads: ReadsAs::Measured,
    };
    Some(score(document, &conditions))
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn count_contended(records: &[Record]) -> u64 {
    let counts = |launch: &&LaunchRecord| launch.rejected.is_none() && !launch.disturbed.is_empty();
    match Judging::of(records) {
        Judging::WithNoise => launches_in(records).filter(counts).count() as u64,
        Judging::ByValue => 0,
    }
}

fn read_cost(document: &Document, records: &[Record]) -> Cost {
    Cost {
        spent_min: total_cost_s(records) / 60.0,
        ceiling_min: document.protocol.ceiling_min,
        launches: launches_in(records).count() as u64,
        over_ceiling: (records.iter())
            .filter_map(|record| match record {
                Record::OverCeiling { reason } => Some(reason.clone()),
                _ => None,
            })
            .collect(),
    }
}

fn read_deviations(
    document: &Document,
    version: &Version,
    run: &RunRecord,
    records: &[Record],
) -> Vec<String> {
    let mut deviations = Vec::new();
    if run.machine != version.pins.machine {
        deviations.push(format!(
            "frozen on {} and run on {}: figures from two machines do not compare",
            version.pins.machine, run.machine
        ));
    }
    for record in records {
        match record {
            Record::Deviation { text } => deviations.push(text.clone()),
            Record::Launch(launch) if launch.rejected.is_none() && !launch.disturbed.is_empty() => {
                deviations.push(format!(
                    "{} counts although it was disturbed: {}",
                    render_launch(launch, run),
                    launch.disturbed.join("; ")
                ));
            }
            Record::Launch(launch) if launch.rejected.is_some() => deviations.push(format!(
                "{} was not counted: {}",
                render_launch(launch, run),
                launch.rejected.as_deref().unwrap_or_default()
            )),
            _ => {}
        }
    }
    deviations.extend(output_deviation(document, records));
    deviations
}

/// A launch in words: what it was for, and its items.
fn render_launch(launch: &LaunchRecord, run: &RunRecord) -> String {
    let items = render_items(&launch.items);
    match (&launch.slot, run.judging) {
        (_, Judging::ByValue) => format!("a launch with {items}"),
        (Slot::Oracle { shot }, _) => format!("the launch for oracles ({shot})"),
        (Slot::Ladder { round, rung, repeat }, _) => {
            let what = match rung.as_str() {
                NULL => "the base again".to_owned(),
                rung => format!("rung {rung}"),
            };
            let pass = if *round > 1 { format!(" of pass {round}") } else { String::new() };
            format!("launch {repeat} of {what}{pass} with {items}")
        }
    }
}

fn render_items(items: &[String]) -> String {
    if items.is_empty() { "no items".to_owned() } else { items.join(", ") }
}

/// Whether the base disagrees with itself about the tokens: equality with it then proves little.
fn output_deviation(document: &Document, records: &[Record]) -> Option<String> {
    let base = &document.base().items;
    let hashes: BTreeSet<&String> = launches_in(records)
        .filter(|launch| launch.items == *base && launch.failed.is_none())
        .filter(|launch| matches!(launch.slot, Slot::Ladder { .. }))
        .filter_map(|launch| launch.token_hash.as_ref())
        .collect();
    (hashes.len() > 1).then(|| {
        format!("the base produced {} different outputs in its own launches", hashes.len())
    })
}
