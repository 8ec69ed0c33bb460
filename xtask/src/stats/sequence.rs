//! An interval that may be looked at after every block: a confidence sequence.
//!
//! With probability [`CONFIDENCE`] it holds the centre at every number of blocks at once, so that a
//! comparison may stop whenever it is decided. It asks one thing of the noise: that a paired effect is as
//! likely to lie above the centre as equally far below it, whatever the blocks before showed. Legs whose
//! order within a block is drawn give that.
//!
//! For each candidate θ somebody bets against it. Given |x − θ|, both signs are equally likely if θ is the
//! centre; so e^(λy) / cosh(λy) is a fair bet for every λ that is chosen before the sign of y is seen, and wealth from fair bets, mixed over a few λ of both signs, exceeds 1/α at any time with
//! probability α at most (Ville). The candidates that never made anybody that rich are the interval. y is x − θ
//! in units of the median distance so far and at most one of them: an outlier counts as much as any value on
//! its side, and never sets the stakes.
//!
//! No such bet more than doubles, so no interval is finite before α·2ⁿ is at least 1, and zero needs about
//! ten blocks on one side to be excluded. That is the price of asking nothing else of the noise.

use super::Interval;
use super::location::{hodges_lehmann, robust_standard_deviation};

/// The probability that the sequence holds the centre at every look.
pub(crate) const CONFIDENCE: f64 = 0.99;

/// Stakes λ and how much of the wealth begins with each: large
/// ones find a large effect soon, small ones narrow the interval of a small one.
const STAKES: [(f64, f64); 4] = [(2.0, 0.4), (1.0, 0.25), (0.5, 0.2), (0.25, 0.15)];
/// Halvings of the distance between a candidate within and one without.
const HALVINGS: usize = 50;
/// Doublings until an end is taken to be infinite.
const DOUBLINGS: usize = 60;

/// What bets against one candidate have earned.
#[derive(Debug, Clone)]
pub(crate) struct Bet {
    candidate: f64,
    /// |x − θ| of every value so far, in ascending order.
    distances: Vec<f64>,
    /// The logarithm of the wealth of each stake, upwards and downwards.
    wealth: [[f64; 2]; STAKES.len()],
    /// The highest logarithm of the whole wealth at any time.
    highest: f64,
}

impl Bet {
    pub(crate) fn against(candidate: f64) -> Bet {
        Bet { candidate, distances: Vec::new(), wealth: Default::default(), highest: 0.0 }
    }

    /// Sees the next value.
    pub(crate) fn push(&mut self, value: f64) {
        let offset = value - self.candidate;
        let place = self.distances.partition_point(|other| *other < offset.abs());
        self.distances.insert(place, offset.abs());
        let middle = self.distances[(self.distances.len() - 1) / 2];
        // No distance yet: nobody bets.
        let share = if middle > 0.0 { (offset / middle).clamp(-1.0, 1.0) } else { 0.0 };
        let mut whole = 0.0;
        for ((stake, weight), [up, down]) in STAKES.iter().zip(&mut self.wealth) {
            *up += ln_bet(stake * share);
            *down += ln_bet(-stake * share);
            whole += weight / 2.0 * (up.exp() + down.exp());
        }
        self.highest = self.highest.max(whole.ln());
    }

    /// Whether the candidate has been outside at any time.
    pub(crate) fn is_excluded(&self) -> bool {
        self.highest >= -(1.0 - CONFIDENCE).ln()
    }
}

/// ln(e^x / cosh x) = ln 2 − ln(1 + e^(−2x)), which no x makes overflow.
fn ln_bet(x: f64) -> f64 {
    let tail = if x >= 0.0 { (-2.0 * x).exp().ln_1p() } else { -2.0 * x + (2.0 * x).exp().ln_1p() };
    std::f64::consts::LN_2 - tail
}

/// The interval after `values`, which are in the order in which they were measured. Its ends are infinite
/// while there are too few.
pub(crate) fn sequence_interval(values: &[f64]) -> Interval {
    let Some(center) = hodges_lehmann(values) else { return Interval::EVERYTHING };
    let spread = robust_standard_deviation(values).unwrap_or(0.0);
    let step = spread.max(center.abs() * 1e-9).max(f64::MIN_POSITIVE.sqrt());
    Interval { low: find_end(values, center, -step), high: find_end(values, center, step) }
}

/// The last candidate from `center` in the direction of `step` that is not excluded, from outside.
fn find_end(values: &[f64], center: f64, step: f64) -> f64 {
    let is_excluded = |candidate: f64| {
        let mut bet = Bet::against(candidate);
        values.iter().for_each(|value| bet.push(*value));
        bet.is_excluded()
    };
    let (mut within, mut reach) = (0.0, step);
    let mut doublings = 0;
    while !is_excluded(center + reach) {
        within = reach;
        reach *= 2.0;
        doublings += 1;
        if doublings > DOUBLINGS {
            return f64::INFINITY.copysign(step);
        }
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(within, reach);
        if is_excluded(center + middle) { reach = middle } else { within = middle }
    }
    center + reach
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bet_is_fair_for_both_signs_and_never_doubles() {
        for x in [0.0, 1e-9, 0.3, 2.0, 40.0, 800.0] {
            let mean = f64::midpoint(ln_bet(x).exp(), ln_bet(-x).exp());
            assert!((mean - 1.0).abs() < 1e-12, "{x}: {mean}");
            assert!(ln_bet(x) <= std::f64::consts::LN_2);
        }
    }

    #[test]
    fn nothing_is_known_before_ten_blocks_and_everything_after_equal_ones() {
        let equal = |blocks: usize| sequence_interval(&vec![0.05; blocks]);
        assert_eq!(equal(0), Interval::EVERYTHING);
        assert_eq!(equal(7), Interval::EVERYTHING);
        let found = equal(10);
        assert!(found.contains(0.05) && found.width() < 1e-6, "{found:?}");
    }

    #[test]
    fn it_follows_shift_and_scale_and_sign() {
        let values = [1.0, 3.0, 2.5, 2.0, 1.5, 2.2, 1.8, 2.6, 1.1, 2.9, 2.4, 1.6, 2.1, 1.9];
        let plain = sequence_interval(&values);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        let moved = sequence_interval(&values.map(|value| 10.0 - 3.0 * value));
        near(moved.low, 10.0 - 3.0 * plain.high);
        near(moved.high, 10.0 - 3.0 * plain.low);
        assert!(plain.low < 2.0 && 2.0 < plain.high && plain.width() < 3.0, "{plain:?}");
    }

    #[test]
    fn the_interval_and_the_bets_agree() {
        let values: Vec<f64> = (0..24).map(|i| f64::from(i * 7 % 24) / 10.0).collect();
        let interval = sequence_interval(&values);
        for step in -40..=60 {
            let candidate = f64::from(step) / 10.0 + 0.013;
            let mut bet = Bet::against(candidate);
            values.iter().for_each(|value| bet.push(*value));
            assert_eq!(
                bet.is_excluded(),
                !interval.contains(candidate),
                "{candidate} {interval:?}"
            );
        }
    }
}
