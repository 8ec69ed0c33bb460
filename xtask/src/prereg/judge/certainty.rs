//! What the launches allow to be said of a read: its interval, and whether it is more than noise.
//!
//! The interval is that of an A/B over blocks, over the read of each repeat. The null rung says what
//! the read would have been of two things that are the same.

use serde::Serialize;

use super::names::Formula;
use super::round::Round;
use crate::prereg::compose::NULL;
use crate::prereg::document::{Document, Read, rungs_in};
use crate::stats::Interval;
use crate::stats::expr::{Number, Relation};
use crate::stats::interval::{Bootstrap, center};

/// How sure a read is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Certainty {
    /// What the read would be if every rung were as the base: 0 for a difference, 1 for a ratio.
    pub(crate) neutral: f64,
    /// How far from that the base again is, read as if it were a rung; `None` without a null rung.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) null_apart: Option<f64>,
    /// The 95 % interval over the launches; `None` where each rung has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<Interval>,
}

impl Certainty {
    /// Why `value` is no more than noise, in words; `None` where it is more.
    pub(crate) fn within_noise(&self, value: f64, show: impl Fn(f64) -> String) -> Option<String> {
        let apart = (value - self.neutral).abs();
        if let Some(null) = self.null_apart.filter(|null| Relation::AtMost.holds(apart, *null)) {
            return Some(format!(
                "the base measured again is {} apart",
                show(null).trim_start_matches('+')
            ));
        }
        let interval = self.interval.filter(|interval| interval.contains(self.neutral))?;
        Some(format!(
            "its interval from {} to {} holds {}",
            show(interval.low),
            show(interval.high),
            show(self.neutral)
        ))
    }
}

/// How sure the `at`-th read is; `None` where it has no value, or no base to be compared with.
pub(super) fn read_certainty(
    document: &Document,
    round: &Round,
    read: &Read,
    at: usize,
    value: f64,
) -> Option<Certainty> {
    let base = document.base().id.as_str();
    let with = |figure: &dyn Fn(&str, &str) -> Number| match read
        .value
        .number(&Formula { metric: &read.metric, figure })
    {
        Number::Known(value) => Some(value),
        Number::Void(_) | Number::Missing(_) => None,
    };
    let neutral = with(&|metric, _| round.number(metric, base))?;
    let null_apart = (rungs_in(&read.value).into_iter())
        .filter(|rung| *rung != base)
        .map(|changed| {
            let rung_of = |rung: &str| if rung == changed { NULL } else { base }.to_owned();
            with(&|metric, rung| round.number(metric, &rung_of(rung)))
        })
        .map(|again| Some((again? - neutral).abs()))
        .collect::<Option<Vec<f64>>>()
        .and_then(|apart| apart.into_iter().reduce(f64::max));
    let repeats = document.protocol.repeats as usize;
    let each: Option<Vec<f64>> = (0..repeats)
        .map(|repeat| with(&|metric, rung| round.repeat(metric, rung, repeat)))
        .collect();
    let bootstrap = Bootstrap {
        seed: document.protocol.seed,
        stream: at as u64,
        resamples: Bootstrap::RESAMPLES,
    };
    let interval = each
        .filter(|each| each.len() > 1)
        .and_then(|each| center(&each, bootstrap))
        .map(|center| center.interval.hull(Interval::new(value, value)));
    Some(Certainty { neutral, null_apart, interval })
}

#[cfg(test)]
mod tests;
