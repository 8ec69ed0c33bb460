//! One pass over the ladder: the figures of each rung, reads and guards.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::certainty::{Certainty, read_certainty};
use super::names::{Formula, Numbers};
use super::{RuleOutcome, is_measured};
use crate::prereg::compose::{Composed, NULL, RungState};
use crate::prereg::document::Document;
use crate::prereg::metric::{figure, find_non_finite};
use crate::prereg::sample::{Judging, LaunchRecord, Record, Slot, launches_in};
use crate::stats::expr::{Number, Truth};
use crate::stats::location::median;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Round {
    pub(crate) number: u32,
    pub(crate) ladder: Vec<Composed>,
    pub(crate) figures: BTreeMap<String, BTreeMap<String, Figure>>,
    /// Rungs that crashed, with how.
    pub(crate) crashed: BTreeMap<String, String>,
    /// Rungs with a reading that is not a finite number, and where it is.
    pub(crate) non_finite: BTreeMap<String, String>,
    /// How far apart the base and the base again are, relative, in the primary read's metric.
    pub(crate) noise: Value,
    pub(crate) reads: Vec<ReadOutcome>,
    pub(crate) guards: Vec<GuardOutcome>,
    pub(crate) rules: Vec<RuleOutcome>,
}

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
    /// How sure it is; `None` where it has no value, and in runs before reads had an interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certainty: Option<Certainty>,
}

impl ReadOutcome {
    /// Why it is no more than noise, in words; `None` where it is more, or nothing tells.
    pub(crate) fn within_noise(&self, show: impl Fn(f64) -> String) -> Option<String> {
        match (&self.value.0, &self.certainty) {
            (Number::Known(value), Some(certainty)) => certainty.within_noise(*value, show),
            _ => None,
        }
    }
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
    let mut found: Vec<(u64, &LaunchRecord)> = launches_in(records)
        .filter(|launch| launch.rejected.is_none())
        .filter_map(|launch| match &launch.slot {
            Slot::Ladder { round: r, rung: id, repeat } if *r == round && id == rung => {
                Some((*repeat, launch))
            }
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
    judging: Judging,
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
    round.read_reads(document, judging);
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
            _ => Number::Missing(format!("no {metric} for {rung}")),
        }
    }

    /// The figure of one launch of a rung, `at` from 0.
    pub(super) fn repeat(&self, metric: &str, rung: &str, at: usize) -> Number {
        let figure = self.figures.get(metric).and_then(|rungs| rungs.get(rung));
        match figure.and_then(|figure| figure.repeats.get(at)) {
            Some(value) => Number::Known(*value),
            None => Number::Missing(format!("no launch {} of {rung} with {metric}", at + 1)),
        }
    }

    fn read_noise(&mut self, document: &Document) {
        let Some(metric) = document.primary().map(|read| read.metric.as_str()) else { return };
        if !self.ladder.iter().any(|rung| rung.id == NULL) {
            return;
        }
        let base = self.number(metric, &document.base().id);
        let noise = match (base, self.number(metric, NULL)) {
            (Number::Known(a), Number::Known(again)) if a != 0.0 => {
                Number::Known(((again - a) / a).abs())
            }
            (Number::Known(_), Number::Known(_)) => {
                Number::Missing("the base reads 0, so nothing can be relative to it".to_owned())
            }
            (Number::Known(_), other) | (other, _) => other,
        };
        self.noise = Value(noise);
    }

    fn read_guards(&mut self, document: &Document) {
        for guard in &document.guards {
            let value = guard.value.number(&Formula {
                metric: &guard.metric,
                figure: &|metric, rung| self.number(metric, rung),
            });
            let passes = match guard.passes.truth(&Numbers(|_: &str| value.clone())) {
                Truth::True => Some(true),
                Truth::False => Some(false),
                Truth::Void(_) | Truth::Missing(_) => None,
            };
            self.guards.push(GuardOutcome { id: guard.id.clone(), value: Value(value), passes });
        }
    }

    fn read_reads(&mut self, document: &Document, judging: Judging) {
        for (at, read) in document.reads.iter().enumerate() {
            let value = read.value.number(&Formula {
                metric: &read.metric,
                figure: &|metric, rung| self.number(metric, rung),
            });
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
            let certainty = match (judging, &value) {
                (Judging::WithNoise, Number::Known(value)) => {
                    read_certainty(document, self, read, at, *value)
                }
                _ => None,
            };
            let (id, value) = (read.id.clone(), Value(value));
            self.reads.push(ReadOutcome { id, value, failed_by, unsettled_by, certainty });
        }
    }
}
