//! What paired measurements allow to be said of a difference.
//!
//! It turns pairs (base, leg), one a block, into an effect with an interval, and the effect and the
//! noise floor into one of six words. It knows no metric's name and no file. The derivation, and what
//! the simulations below found, are in docs/METHODOLOGY.md.

use serde::{Deserialize, Serialize};

use crate::stats::Interval;
use crate::stats::interval::{Bootstrap, Center, center};
use crate::stats::location::{median, robust_standard_deviation};
use crate::stats::power::{blocks_needed, detectable_effect};
use crate::stats::sequence::sequence_interval;

/// What may be said of a leg against its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Better than base: the interval lies beyond zero and beyond the noise floor.
    Faster,
    /// Worse than base, in the same sense.
    Slower,
    /// The interval lies within the margin on both sides.
    Equivalent,
    /// The interval allows too much to say any of these.
    Unresolved,
    /// The variable did nothing: no comparison was made.
    Inert,
    /// The runs cannot be compared: other work, or no measurement.
    Inconclusive,
}

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Equivalent => "equivalent",
            Verdict::Unresolved => "unresolved",
            Verdict::Inert => "inert",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

/// Which direction of a metric is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Better {
    /// Throughputs.
    Higher,
    /// Times, counts of calls, bytes.
    Lower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scale {
    /// Natural logarithm of leg over base; every value was positive.
    LogRatio,
    /// Leg less base, in the metric's unit; some value was zero or negative.
    Difference,
}

impl Scale {
    /// The effect of one pair (base, leg).
    fn of(self, (base, leg): (f64, f64)) -> f64 {
        match self {
            // The ratio first: equal values then give exactly 0.
            Scale::LogRatio => (leg / base).ln(),
            Scale::Difference => leg - base,
        }
    }
}

/// The difference between a leg and its base over blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Effect {
    pub(crate) scale: Scale,
    /// The centre of the paired effects and its 95 % interval; positive where the leg is larger.
    pub(crate) center: Center,
    /// Robust standard deviation of the paired effects; `None` for one block.
    pub(crate) deviation: Option<f64>,
    pub(crate) blocks: usize,
}

/// The smallest difference that matters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Margin {
    /// As a share of base: 0.01 for one percent. Used for ratios, and for differences against the
    /// median of base where `absolute` is none.
    pub(crate) relative: f64,
    /// In the metric's unit, for differences.
    pub(crate) absolute: Option<f64>,
}

/// A verdict on one metric, and what it would take to say more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// Where it is faster or slower: whether the whole interval is smaller than the margin still.
    pub(crate) within_margin: bool,
    /// The smallest effect that this many blocks find four times in five, noise floor included, on
    /// the effect's scale; `None` where the blocks say nothing.
    pub(crate) detectable: Option<f64>,
    /// Blocks to find an effect of the margin's size four times in five, for an unresolved verdict.
    pub(crate) blocks_needed: Option<usize>,
}

/// The effect of pairs (base, leg), one for each block: their log ratios where every value is
/// positive, else their differences. `None` for no pair or a value that is not finite.
pub(crate) fn paired_effect(pairs: &[(f64, f64)], bootstrap: Bootstrap) -> Option<Effect> {
    if pairs.iter().all(|(base, leg)| *base > 0.0 && *leg > 0.0) {
        effect_of(pairs, Scale::LogRatio, bootstrap)
    } else {
        paired_difference(pairs, bootstrap)
    }
}

/// The effect of pairs by their differences, for quantities whose ratio means nothing.
pub(crate) fn paired_difference(pairs: &[(f64, f64)], bootstrap: Bootstrap) -> Option<Effect> {
    effect_of(pairs, Scale::Difference, bootstrap)
}

/// The same effect with an interval that holds at every look, for a comparison that stops once it is
/// decided. The pairs are in the order of their blocks.
pub(crate) fn with_sequence(effect: Effect, pairs: &[(f64, f64)]) -> Effect {
    let values: Vec<f64> = pairs.iter().map(|pair| effect.scale.of(*pair)).collect();
    let at = effect.center.estimate;
    let interval = sequence_interval(&values).hull(Interval::new(at, at));
    Effect { center: Center { interval, ..effect.center }, ..effect }
}

fn effect_of(pairs: &[(f64, f64)], scale: Scale, bootstrap: Bootstrap) -> Option<Effect> {
    if pairs.iter().any(|(base, leg)| !base.is_finite() || !leg.is_finite()) {
        return None;
    }
    let effects: Vec<f64> = pairs.iter().map(|pair| scale.of(*pair)).collect();
    Some(Effect {
        scale,
        center: center(&effects, bootstrap)?,
        deviation: robust_standard_deviation(&effects),
        blocks: pairs.len(),
    })
}

/// How large an effect the base shows against itself.
///
/// The size of the null leg's centre; and where its interval excludes zero, although nothing differs,
/// the far end of that interval: something else than the variable moves the runs.
pub(crate) fn noise_floor(null: &Effect) -> f64 {
    let Interval { low, high } = null.center.interval;
    if null.center.interval.contains(0.0) {
        null.center.estimate.abs()
    } else {
        low.abs().max(high.abs())
    }
}

/// The margin on an effect's scale: how far below and above zero still counts as the same.
pub(crate) fn margin_interval(margin: Margin, scale: Scale, base: &[f64]) -> Interval {
    match scale {
        Scale::LogRatio => {
            Interval { low: (1.0 - margin.relative).ln(), high: margin.relative.ln_1p() }
        }
        Scale::Difference => {
            let reach = margin
                .absolute
                .unwrap_or_else(|| margin.relative * median(base).unwrap_or(0.0).abs());
            Interval { low: -reach, high: reach }
        }
    }
}

/// Judges an effect against the noise floor and the margin, all on the effect's scale.
pub(crate) fn judge(effect: &Effect, floor: f64, same: Interval, better: Better) -> Judgement {
    let Interval { low, high } = effect.center.interval;
    let within_margin = same.low <= low && high <= same.high;
    let verdict = if low > floor {
        if better == Better::Higher { Verdict::Faster } else { Verdict::Slower }
    } else if high < -floor {
        if better == Better::Higher { Verdict::Slower } else { Verdict::Faster }
    } else if within_margin {
        Verdict::Equivalent
    } else {
        Verdict::Unresolved
    };
    let detectable = effect
        .deviation
        .map(|deviation| detectable_effect(deviation, effect.blocks) + floor)
        .filter(|effect| effect.is_finite());
    let blocks_needed = match (verdict, effect.deviation) {
        (Verdict::Unresolved, Some(deviation)) => {
            // An effect that straddles a border may stay unresolved where the margin alone could be
            // seen already; then it takes more blocks than there are, if only one.
            blocks_needed(deviation, same.high).map(|blocks| blocks.max(effect.blocks + 1))
        }
        _ => None,
    };
    Judgement { verdict, within_margin, detectable, blocks_needed }
}

/// An effect on its scale as a share of base: e^x − 1 for a log ratio; `None` for a difference.
pub(crate) fn relative_effect(value: f64, scale: Scale) -> Option<f64> {
    match scale {
        Scale::LogRatio => Some(value.exp_m1()),
        Scale::Difference => None,
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
