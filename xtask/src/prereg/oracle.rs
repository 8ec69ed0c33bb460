//! Oracles: which launches they need, and whether an item passes.
//!
//! It owns the comparison of a measured value with its bound. A bound is never widened here: an item
//! that fails is out.

use serde::Serialize;

use super::compose::with_needs;
use super::document::{Bound, Difference, Document, Oracle, OracleCheck};
use super::metric::{figure, find_non_finite};
use super::numbers::number;
use super::sample::{CommandRecord, Judging, LaunchRecord, Record, Series, Slot, launches_in};
use crate::stats::expr::{Number, Relation};

/// A launch for oracles: which settings and items. Oracles that ask for the same share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shot {
    pub(crate) items: Vec<String>,
    pub(crate) prompt_tokens: u64,
    pub(crate) steps: u64,
    /// Runner arguments, besides those of the protocol and the items.
    pub(crate) args: Vec<String>,
}

impl Shot {
    /// What distinguishes it in the samples.
    pub(crate) fn key(&self) -> String {
        let items = if self.items.is_empty() { "base".to_owned() } else { self.items.join("+") };
        let mut key = match self.prompt_tokens {
            // A runner without a prompt.
            0 => format!("{items} steps={}", self.steps),
            prompt => format!("{items} prompt={prompt} steps={}", self.steps),
        };
        if !self.args.is_empty() {
            key.push_str(&format!(" args={}", self.args.join(" ")));
        }
        key
    }
}

/// One oracle on one candidate.
#[derive(Debug, Clone)]
pub(crate) struct Trial<'a> {
    pub(crate) oracle: &'a Oracle,
    /// The item that is judged; `None` for an oracle of a rung.
    pub(crate) item: Option<&'a str>,
    pub(crate) base: Vec<String>,
    pub(crate) candidate: Vec<String>,
}

impl Trial<'_> {
    fn shot(&self, document: &Document, items: &[String]) -> Shot {
        Shot {
            items: items.to_vec(),
            prompt_tokens: self.oracle.prompt_tokens.unwrap_or(document.protocol.prompt_tokens),
            steps: self.oracle.steps.unwrap_or(document.protocol.steps),
            args: self.oracle.args.clone(),
        }
    }

    pub(crate) fn shots(&self, document: &Document) -> Vec<Shot> {
        match self.oracle.check {
            OracleCheck::Command { .. } => Vec::new(),
            OracleCheck::Peaks { .. } => vec![self.shot(document, &self.candidate)],
            _ => vec![self.shot(document, &self.base), self.shot(document, &self.candidate)],
        }
    }
}

/// The trials of items: each oracle of each item, on top of what the item needs.
pub(crate) fn item_trials(document: &Document) -> Vec<Trial<'_>> {
    let mut trials = Vec::new();
    for item in &document.items {
        let candidate = with_needs(document, std::slice::from_ref(&item.id));
        let base: Vec<String> = candidate.iter().filter(|id| **id != item.id).cloned().collect();
        for oracle in item.oracles.iter().filter_map(|id| document.oracle(id)) {
            trials.push(Trial {
                oracle,
                item: Some(&item.id),
                base: base.clone(),
                candidate: candidate.clone(),
            });
        }
    }
    trials
}

/// The trials of rungs, with the items that are left in each.
pub(crate) fn rung_trials<'a>(
    document: &'a Document,
    items_of: impl Fn(&str) -> Vec<String>,
) -> Vec<Trial<'a>> {
    (document.oracles.iter())
        .filter_map(|oracle| Some((oracle, oracle.rung.as_ref()?)))
        .map(|(oracle, rung)| Trial {
            oracle,
            item: None,
            base: Vec::new(),
            candidate: items_of(rung),
        })
        .collect()
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TrialOutcome {
    pub(crate) oracle: String,
    pub(crate) item: Option<String>,
    pub(crate) verdict: TrialVerdict,
    /// The measured value, in words.
    pub(crate) measured: String,
    pub(crate) bound: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrialVerdict {
    Passed,
    Failed,
}

/// Judges a trial by the samples; `None` while a launch that it needs is missing.
pub(crate) fn judge_trial(
    document: &Document,
    trial: &Trial<'_>,
    records: &[Record],
) -> Option<TrialOutcome> {
    let outcome = |(passed, measured): (bool, String)| TrialOutcome {
        oracle: trial.oracle.id.clone(),
        item: trial.item.map(str::to_owned),
        verdict: if passed { TrialVerdict::Passed } else { TrialVerdict::Failed },
        measured,
        bound: render_bound(&trial.oracle.check),
    };
    if let OracleCheck::Command { exit, .. } = &trial.oracle.check {
        let ran = find_command(records, trial)?;
        let ended = ran.exit.map_or("no exit code".to_owned(), |code| format!("exit code {code}"));
        let passed = exit.is_some() && ran.exit == *exit;
        let said = if passed || ran.detail.is_empty() {
            String::new()
        } else {
            format!(": {}", ran.detail)
        };
        return Some(outcome((passed, ended + &said)));
    }
    let launches: Vec<&LaunchRecord> =
        trial.shots(document).iter().map(|shot| find_shot(records, shot)).collect::<Option<_>>()?;
    if let [base, _] = launches[..]
        && trial.base.is_empty()
        && Judging::of(records) == Judging::WithNoise
        && (base.failed.is_some() || find_base_gap(&trial.oracle.check, base).is_some())
    {
        // What the base lacks is nothing that an item did.
        return None;
    }
    for (launch, who) in launches.iter().rev().zip(["the item", "the base"]) {
        if let Some(failure) = &launch.failed {
            return Some(outcome((
                false,
                format!("{who} failed: {}: {}", failure.class, failure.detail),
            )));
        }
    }
    let base = launches[0];
    let candidate = launches[launches.len() - 1];
    Some(outcome(compare(document, &trial.oracle.check, base, candidate)))
}

/// The launch for a shot, the one that counts.
pub(crate) fn find_shot<'a>(records: &'a [Record], shot: &Shot) -> Option<&'a LaunchRecord> {
    let slot = Slot::Oracle { shot: shot.key() };
    launches_in(records).find(|launch| launch.rejected.is_none() && launch.slot == slot)
}

/// The run of a command oracle.
pub(crate) fn find_command<'a>(
    records: &'a [Record],
    trial: &Trial<'_>,
) -> Option<&'a CommandRecord> {
    records.iter().find_map(|record| match record {
        Record::Command(ran)
            if ran.oracle == trial.oracle.id && ran.item.as_deref() == trial.item =>
        {
            Some(ran)
        }
        _ => None,
    })
}

/// What the base lacks of what an oracle compares, in words.
pub(crate) fn find_base_gap(check: &OracleCheck, base: &LaunchRecord) -> Option<String> {
    match check {
        OracleCheck::TokensEqual if base.token_hash.is_none() => {
            Some("no token hash is in its report".to_owned())
        }
        OracleCheck::FileEqual { file } if !base.files.contains_key(file) => {
            Some(format!("it wrote no `{file}`"))
        }
        OracleCheck::Metric { metric, .. } | OracleCheck::Overlay { metric, .. } => {
            let Some(series) = base.series.get(metric) else {
                let why = base.absent.get(metric).map(|why| format!(": {why}"));
                return Some(format!("it reported no {metric}{}", why.unwrap_or_default()));
            };
            find_non_finite(series).map(|bad| format!("its {metric} is {bad}"))
        }
        _ => None,
    }
}

/// Whether the candidate passes, and the measured value in words.
fn compare(
    document: &Document,
    check: &OracleCheck,
    base: &LaunchRecord,
    candidate: &LaunchRecord,
) -> (bool, String) {
    let series = |launch: &LaunchRecord, id: &str| {
        launch.series.get(id).cloned().ok_or_else(|| format!("no readings of `{id}`"))
    };
    let result = match check {
        OracleCheck::TokensEqual => match (&base.token_hash, &candidate.token_hash) {
            (Some(a), Some(b)) => Ok((a == b, equality(a, b))),
            _ => Err("no token hash in the report".to_owned()),
        },
        OracleCheck::FileEqual { file } => {
            match (base.files.get(file), candidate.files.get(file)) {
                (Some(a), Some(b)) => Ok((a == b, equality(a, b))),
                (None, _) => Err(format!("the base wrote no `{file}`")),
                (_, None) => Err(format!("the item wrote no `{file}`")),
            }
        }
        OracleCheck::Metric { metric, bound } => (|| {
            let (a, b) = (series(base, metric)?, series(candidate, metric)?);
            let bound = bound.ok_or("the oracle has no bound")?;
            Ok(compare_metric(document, metric, &a, &b, bound))
        })(),
        OracleCheck::Overlay { metric, band } => (|| {
            let (a, b) = (series(base, metric)?, series(candidate, metric)?);
            let band = band.ok_or("the oracle has no bound")?;
            Ok(compare_curves(&a, &b, band))
        })(),
        OracleCheck::Peaks { lifetime, window } => {
            (|| Ok(check_peaks(&series(candidate, lifetime)?, &series(candidate, window)?)))()
        }
        OracleCheck::Command { .. } => Err("a command compares no launches".to_owned()),
    };
    result.unwrap_or_else(|problem: String| (false, problem))
}

fn equality(a: &str, b: &str) -> String {
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    if a == b { "equal".to_owned() } else { format!("{} against {}", short(b), short(a)) }
}

fn compare_metric(
    document: &Document,
    metric: &str,
    base: &Series,
    candidate: &Series,
    bound: Bound,
) -> (bool, String) {
    let statistic =
        document.metric(metric).map_or(document.protocol.statistic, |metric| metric.statistic);
    // An oracle looks at everything that its short launch yields: parity knows no warm-up.
    let (a, b) = match (figure(base, 0, statistic), figure(candidate, 0, statistic)) {
        (Number::Known(a), Number::Known(b)) => (a, b),
        (_, Number::Void(why) | Number::Missing(why))
        | (Number::Void(why) | Number::Missing(why), _) => return (false, why),
    };
    let difference = match bound.of {
        Difference::Absolute => (b - a).abs(),
        Difference::Relative if a == 0.0 && b == 0.0 => 0.0,
        Difference::Relative => (b - a).abs() / a.abs(),
    };
    (
        is_within(difference, bound.at_most),
        format!("{} ({} against {})", scientific(difference), b, a),
    )
}

/// Whether a difference is at most its bound; one from a base of 0 has no relative size and is not.
fn is_within(difference: f64, bound: f64) -> bool {
    difference.is_finite() && Relation::AtMost.holds(difference, bound)
}

fn scientific(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}

/// Inside the band: at each step, no further from the base than `band` times the base's largest
/// change from one step to the next.
fn compare_curves(base: &Series, candidate: &Series, band: f64) -> (bool, String) {
    for (series, who) in [(base, "the base"), (candidate, "the item")] {
        if let Some(bad) = find_non_finite(series) {
            return (false, format!("{who}: {bad}"));
        }
    }
    if base.steps != candidate.steps || base.values.len() != candidate.values.len() {
        return (
            false,
            format!(
                "the item has {} readings and the base {}, or they are at other steps",
                candidate.values.len(),
                base.values.len()
            ),
        );
    }
    let steps = base.values.windows(2).map(|pair| (pair[1].0 - pair[0].0).abs());
    let noise = steps.fold(0.0, f64::max);
    let mut worst = (0.0, 0);
    for (at, (a, b)) in base.values.iter().zip(&candidate.values).enumerate() {
        let apart = (b.0 - a.0).abs();
        if apart > worst.0 {
            worst = (apart, at);
        }
    }
    let (apart, at) = worst;
    let step = base.steps.get(at).copied().unwrap_or(at as u64 + 1);
    let share = if apart == 0.0 { 0.0 } else { apart / noise };
    let place = if apart == 0.0 { String::new() } else { format!(" at step {step}") };
    (is_within(apart, band * noise), format!("at most {} of the band{place}", round(share)))
}

fn round(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "∞".to_owned() }
}

/// The lifetime peak is never below the window's, and never falls.
fn check_peaks(lifetime: &Series, window: &Series) -> (bool, String) {
    for (series, who) in [(lifetime, "lifetime"), (window, "window")] {
        if let Some(bad) = find_non_finite(series) {
            return (false, format!("{who}: {bad}"));
        }
    }
    let step = |series: &Series, at: usize| series.steps.get(at).copied().unwrap_or(0);
    if let Some(at) = lifetime.values.windows(2).position(|pair| pair[1].0 < pair[0].0) {
        return (
            false,
            format!(
                "the lifetime peak falls from {} to {} at step {}",
                lifetime.values[at].0,
                lifetime.values[at + 1].0,
                step(lifetime, at + 1)
            ),
        );
    }
    let once = lifetime.values.len() == 1;
    if !once && lifetime.values.len() != window.values.len() {
        return (
            false,
            format!(
                "{} lifetime peaks, but {} windowed peaks",
                lifetime.values.len(),
                window.values.len()
            ),
        );
    }
    for (at, peak) in window.values.iter().enumerate() {
        let whole = lifetime.values[if once { 0 } else { at }].0;
        if whole < peak.0 {
            return (
                false,
                format!(
                    "the lifetime peak {whole} is below the window's {} at step {}",
                    peak.0,
                    step(window, at)
                ),
            );
        }
    }
    (true, format!("{} windows, the lifetime peak never below them", window.values.len()))
}

pub(crate) fn render_bound(check: &OracleCheck) -> String {
    match check {
        OracleCheck::TokensEqual => "the same tokens".to_owned(),
        OracleCheck::FileEqual { file } => format!("the same bytes in {file}"),
        OracleCheck::Metric { metric, bound } => match bound {
            Some(bound) => format!("{metric} {bound}"),
            None => format!("{metric}: none"),
        },
        OracleCheck::Overlay { metric, band } => match band {
            Some(band) => format!("{metric} within {} × the base's band", number(*band)),
            None => format!("{metric}: none"),
        },
        OracleCheck::Peaks { lifetime, window } => {
            format!("{lifetime} >= {window}, {lifetime} never falls")
        }
        OracleCheck::Command { exit: Some(exit), .. } => format!("exit code {exit}"),
        OracleCheck::Command { exit: None, .. } => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests;
