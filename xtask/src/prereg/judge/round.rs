//! One pass over the ladder: the figures of each rung, reads and guards, and the meaning of names in
//! rules and expectations.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::{RuleOutcome, is_measured};
use crate::prereg::compose::{Composed, Dropped, NULL, RungState};
use crate::prereg::document::{Document, Role};
use crate::prereg::metric::{figure, find_non_finite};
use crate::prereg::oracle::{TrialOutcome, Verdict};
use crate::prereg::sample::{LaunchRecord, Record, Slot};
use crate::stats::expr::{Expr, Names, Number, Truth};
use crate::stats::location::median;

/// One pass over the ladder.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Round {
    pub(crate) number: u32,
    pub(crate) ladder: Vec<Composed>,
    pub(crate) figures: BTreeMap<String, BTreeMap<String, Figure>>,
    /// Rungs that crashed, with how.
    pub(crate) crashed: BTreeMap<String, String>,
    /// Rungs with a reading that is no finite number, with where.
    pub(crate) non_finite: BTreeMap<String, String>,
    /// How far apart the base and the base again are, relative, in the primary read's metric.
    pub(crate) noise: Value,
    pub(crate) reads: Vec<ReadOutcome>,
    pub(crate) guards: Vec<GuardOutcome>,
    pub(crate) rules: Vec<RuleOutcome>,
}

/// The figure of one metric at one rung.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) repeats: Vec<f64>,
    pub(crate) value: Value,
}

impl Figure {
    /// The lowest and the highest repeat; `None` without any.
    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        let low = self.repeats.iter().copied().reduce(f64::min)?;
        Some((low, self.repeats.iter().copied().reduce(f64::max)?))
    }
}

/// A number that serializes as itself, or as why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Value(pub(crate) Number);

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Number::Known(value) => serializer.serialize_f64(*value),
            Number::Void(why) | Number::Missing(why) => serializer.serialize_str(why),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ReadOutcome {
    pub(crate) id: String,
    pub(crate) value: Value,
    pub(crate) failed_by: Option<String>,
    /// The guard that could fail it and cannot be judged, with why.
    pub(crate) unsettled_by: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct GuardOutcome {
    pub(crate) id: String,
    pub(crate) value: Value,
    /// Whether it passes; `None` where there is no value.
    pub(crate) passes: Option<bool>,
}

/// The counted launches of a rung in a round, in the order of repeats.
pub(crate) fn launches<'a>(records: &'a [Record], round: u32, rung: &str) -> Vec<&'a LaunchRecord> {
    let mut found: Vec<(u64, &LaunchRecord)> = records
        .iter()
        .filter_map(|record| match record {
            Record::Launch(launch) if launch.rejected.is_none() => match &launch.slot {
                Slot::Ladder { round: r, rung: id, repeat } if *r == round && id == rung => {
                    Some((*repeat, launch))
                }
                _ => None,
            },
            _ => None,
        })
        .collect();
    found.sort_by_key(|(repeat, _)| *repeat);
    found.into_iter().map(|(_, launch)| launch).collect()
}

/// Reads a round; `None` while a launch is missing. A rung that crashed needs no further repeats.
pub(crate) fn read_round(
    document: &Document,
    ladder: &[Composed],
    records: &[Record],
    number: u32,
) -> Option<Round> {
    let mut round = Round {
        number,
        ladder: ladder.to_vec(),
        figures: BTreeMap::new(),
        crashed: BTreeMap::new(),
        non_finite: BTreeMap::new(),
        noise: Value(Number::Missing("no null rung was measured".to_owned())),
        reads: Vec::new(),
        guards: Vec::new(),
        rules: Vec::new(),
    };
    for rung in ladder.iter().filter(|rung| is_measured(rung)) {
        let launches = launches(records, number, &rung.id);
        for launch in &launches {
            if let Some(failure) = &launch.failed {
                let how = format!("{} crashed: {}: {}", rung.name, failure.class, failure.detail);
                round.crashed.entry(rung.id.clone()).or_insert(how);
            }
            let bad = launch.series.iter().find_map(|(metric, series)| {
                Some(format!("{} has {metric} {}", rung.name, find_non_finite(series)?))
            });
            if let Some(bad) = bad {
                round.non_finite.entry(rung.id.clone()).or_insert(bad);
            }
        }
        let complete = launches.len() as u64 >= document.protocol.repeats;
        if !complete && !round.crashed.contains_key(&rung.id) {
            return None;
        }
        for metric in &document.metrics {
            let per_launch: Vec<Number> = launches
                .iter()
                .map(|launch| match launch.series.get(&metric.id) {
                    Some(series) => {
                        figure(series, document.protocol.discard_steps, metric.statistic)
                    }
                    None => Number::Missing(format!("{} reported no {}", rung.name, metric.id)),
                })
                .collect();
            let figure = round.figure_of(rung, &per_launch);
            round.figures.entry(metric.id.clone()).or_default().insert(rung.id.clone(), figure);
        }
    }
    round.read_noise(document);
    round.read_guards(document);
    round.read_reads(document);
    Some(round)
}

impl Round {
    fn figure_of(&self, rung: &Composed, per_launch: &[Number]) -> Figure {
        let repeats: Vec<f64> = per_launch
            .iter()
            .filter_map(|number| match number {
                Number::Known(value) => Some(*value),
                _ => None,
            })
            .collect();
        let value = if let Some(how) = self.crashed.get(&rung.id) {
            Number::Void(how.clone())
        } else if let Some(bad) = self.non_finite.get(&rung.id) {
            Number::Void(bad.clone())
        } else {
            let gap = per_launch.iter().find(|number| !matches!(number, Number::Known(_)));
            match gap {
                Some(gap) => gap.clone(),
                None => median(&repeats).map_or_else(
                    || Number::Missing(format!("{} was not measured", rung.name)),
                    Number::Known,
                ),
            }
        };
        Figure { repeats, value: Value(value) }
    }

    /// The figure of a metric at a rung, or why there is none.
    pub(crate) fn number(&self, metric: &str, rung: &str) -> Number {
        if let Some(figure) = self.figures.get(metric).and_then(|rungs| rungs.get(rung)) {
            return figure.value.0.clone();
        }
        match self.ladder.iter().find(|composed| composed.id == rung) {
            Some(Composed { state: RungState::Void(why), name, .. }) => {
                Number::Void(format!("{name} did not run: {why}"))
            }
            _ => Number::Missing(format!("no {metric} of {rung}")),
        }
    }

    fn read_noise(&mut self, document: &Document) {
        let primary = document.reads.iter().find(|read| read.role == Role::Primary);
        let Some(metric) = primary.map(|read| read.metric.as_str()) else { return };
        if !self.ladder.iter().any(|rung| rung.id == NULL) {
            return;
        }
        let base = self.number(metric, &document.base().id);
        let noise = match (base, self.number(metric, NULL)) {
            (Number::Known(a), Number::Known(again)) if a != 0.0 => {
                Number::Known(((again - a) / a).abs())
            }
            (Number::Known(_), Number::Known(_)) => {
                Number::Missing("the base reads 0, which nothing is relative to".to_owned())
            }
            (Number::Known(_), other) | (other, _) => other,
        };
        self.noise = Value(noise);
    }

    fn read_guards(&mut self, document: &Document) {
        for guard in &document.guards {
            let value = guard.value.number(&Rungs { round: self, metric: &guard.metric });
            let passes = match guard.passes.truth(&Only { value: &value }) {
                Truth::True => Some(true),
                Truth::False => Some(false),
                Truth::Void(_) | Truth::Missing(_) => None,
            };
            self.guards.push(GuardOutcome { id: guard.id.clone(), value: Value(value), passes });
        }
    }

    fn read_reads(&mut self, document: &Document) {
        for read in &document.reads {
            let value = read.value.number(&Rungs { round: self, metric: &read.metric });
            let failed_by = document
                .guards
                .iter()
                .zip(&self.guards)
                .find(|(guard, outcome)| {
                    guard.fails.contains(&read.id) && outcome.passes == Some(false)
                })
                .map(|(guard, _)| guard.id.clone());
            let unsettled_by = document.guards.iter().zip(&self.guards).find_map(
                |(guard, outcome)| match &outcome.value.0 {
                    Number::Missing(why) if guard.fails.contains(&read.id) => {
                        Some(format!("guard {} cannot be judged: {why}", guard.id))
                    }
                    _ => None,
                },
            );
            let value = Value(value);
            self.reads.push(ReadOutcome { id: read.id.clone(), value, failed_by, unsettled_by });
        }
    }
}

pub(crate) struct Rungs<'a> {
    pub(crate) round: &'a Round,
    pub(crate) metric: &'a str,
}

impl Names for Rungs<'_> {
    fn number(&self, name: &str) -> Number {
        self.round.number(self.metric, name)
    }

    fn call_number(&self, function: &str, _: &[String]) -> Number {
        Number::Missing(format!("no function `{function}` here"))
    }

    fn call_truth(&self, function: &str, _: &[String]) -> Truth {
        Truth::Missing(format!("no function `{function}` here"))
    }
}

struct Only<'a> {
    value: &'a Number,
}

impl Names for Only<'_> {
    fn number(&self, _: &str) -> Number {
        self.value.clone()
    }

    fn call_number(&self, function: &str, _: &[String]) -> Number {
        Number::Missing(format!("no function `{function}` here"))
    }

    fn call_truth(&self, function: &str, _: &[String]) -> Truth {
        Truth::Missing(format!("no function `{function}` here"))
    }
}

/// What a read's name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadsAs {
    /// In rules: a read that its guard failed satisfies nothing.
    Judged,
    /// In expectations: what was measured, whatever the guards say.
    Measured,
}

/// Names in rules and expectations.
pub(crate) struct Conditions<'a> {
    pub(crate) document: &'a Document,
    pub(crate) trials: &'a [TrialOutcome],
    pub(crate) dropped: &'a [Dropped],
    pub(crate) round: &'a Round,
    pub(crate) cost_min: f64,
    pub(crate) reads: ReadsAs,
}

impl Names for Conditions<'_> {
    fn number(&self, name: &str) -> Number {
        let failed = self.trials.iter().filter(|trial| trial.verdict == Verdict::Failed).count();
        match name {
            "failed_oracles" => Number::Known(failed as f64),
            "surviving_items" => {
                Number::Known((self.document.items.len() - self.dropped.len()) as f64)
            }
            "cost_min" => Number::Known(self.cost_min),
            "noise" => self.round.noise.0.clone(),
            read => {
                let Some(outcome) = self.round.reads.iter().find(|one| one.id == read) else {
                    return Number::Missing(format!("no read `{read}`"));
                };
                match (&outcome.failed_by, &outcome.unsettled_by) {
                    _ if self.reads == ReadsAs::Measured => outcome.value.0.clone(),
                    (Some(guard), _) => Number::Void(format!("{read} is failed by guard {guard}")),
                    (None, Some(why)) => Number::Missing(why.clone()),
                    (None, None) => outcome.value.0.clone(),
                }
            }
        }
    }

    fn call_number(&self, function: &str, args: &[String]) -> Number {
        match (function, args) {
            ("value", [metric, rung]) => self.round.number(metric, rung),
            _ => Number::Missing(format!("no function `{function}`")),
        }
    }

    fn call_truth(&self, function: &str, args: &[String]) -> Truth {
        let arg = args.first().map_or("", String::as_str);
        let crashed = self.round.crashed.contains_key(arg);
        let non_finite = self.round.non_finite.contains_key(arg);
        match function {
            "guard" => match self.round.guards.iter().find(|guard| guard.id == arg) {
                Some(GuardOutcome { passes: Some(passes), .. }) => Truth::from_bool(*passes),
                Some(GuardOutcome { value: Value(Number::Void(why)), .. }) => {
                    Truth::Void(why.clone())
                }
                Some(GuardOutcome { value: Value(Number::Missing(why)), .. }) => {
                    Truth::Missing(format!("guard {arg}: {why}"))
                }
                _ => Truth::Missing(format!("guard {arg} has no value")),
            },
            "oracle" => {
                let mut of_it = self.trials.iter().filter(|trial| trial.oracle == arg).peekable();
                if of_it.peek().is_none() {
                    return Truth::Missing(format!("oracle {arg} judged nothing"));
                }
                Truth::from_bool(of_it.all(|trial| trial.verdict == Verdict::Passed))
            }
            "dropped" => Truth::from_bool(self.dropped.iter().any(|drop| drop.item == arg)),
            "crashed" => Truth::from_bool(crashed),
            "nan" => Truth::from_bool(non_finite),
            "unstable" => Truth::from_bool(crashed || non_finite),
            _ => Truth::Missing(format!("no function `{function}`")),
        }
    }
}

impl Conditions<'_> {
    /// The values that a condition speaks of, in words: `primary = −7.29 %; guard(vram) passes`.
    pub(crate) fn explain(&self, condition: &Expr) -> String {
        let mut parts: Vec<String> = Vec::new();
        condition.walk(&mut |expr| {
            let part = match expr {
                Expr::Name(name) => format!("{name} = {}", self.render_number(name, expr)),
                Expr::Call(function, args) if function == "value" => {
                    format!("{expr} = {}", self.render_number(&args[0], expr))
                }
                Expr::Call(..) => match expr.truth(self) {
                    Truth::True => format!("{expr}: yes"),
                    Truth::False => format!("{expr}: no"),
                    Truth::Void(why) | Truth::Missing(why) => format!("{expr}: {why}"),
                },
                _ => return,
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        });
        parts.join("; ")
    }

    fn render_number(&self, name: &str, expr: &Expr) -> String {
        match expr.number(self) {
            Number::Known(value) if self.is_fraction(name) => percent(value),
            Number::Known(value) => format!("{}", (value * 1e4).round() / 1e4),
            Number::Void(why) | Number::Missing(why) => why,
        }
    }

    fn is_fraction(&self, name: &str) -> bool {
        name == "noise" || self.document.read(name).is_some_and(|read| is_fraction(&read.value))
    }
}

/// Whether a formula is a ratio, so that its value reads best as a percentage.
pub(crate) fn is_fraction(formula: &Expr) -> bool {
    use crate::stats::expr::Operator;
    matches!(formula, Expr::Arithmetic(_, Operator::Divide, _))
        || matches!(formula, Expr::Arithmetic(_, Operator::Subtract, one)
            if matches!(**one, Expr::Number { value, .. } if value == 1.0))
}

/// A fraction as a percentage with its sign: `+1.90 %`, `−7.29 %`.
pub(crate) fn percent(value: f64) -> String {
    let value = value * 100.0;
    // Rounding first, so that −0.001 does not read as −0.00.
    let rounded = (value * 100.0).round() / 100.0;
    let sign = if rounded < 0.0 { "−" } else { "+" };
    format!("{sign}{:.2} %", rounded.abs())
}
