//! The 95 % interval of a centre from few values.
//!
//! Three answers are joined, and the widest end of each side counts:
//!
//! - the signed-rank interval: order statistics of the Walsh averages, exact for any noise that is
//!   symmetric about the centre, and differences of two exchangeable runs are;
//! - the percentile bootstrap of the Hodges–Lehmann estimate, resampled over blocks from a seed;
//! - below six values, Student's t about the mean. No distribution-free 95 % interval exists there:
//!   the whole range of n values covers the centre with 1 − 2^(1 − n) only.
//!
//! The signed-rank interval is the floor for few values, where the bootstrap alone is too narrow.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

use super::Interval;
use super::location::{hodges_lehmann, mean, standard_deviation, walsh_averages};
use super::student::Tail;

/// The confidence of every interval here, two-sided.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// The fewest values that have an exact distribution-free interval: 2·2⁻⁶ ≤ 0.05 < 2·2⁻⁵.
pub(crate) const FEWEST_EXACT: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bootstrap {
    /// The seed; the same seed and values give the same interval.
    pub(crate) seed: u64,
    /// Which of 2⁶⁴ independent sequences of the seed to use: one for each thing that is compared.
    pub(crate) stream: u64,
    pub(crate) resamples: usize,
}

impl Bootstrap {
    /// Enough resamples that the ends move by less than a tenth of the half-width from seed to seed.
    pub(crate) const RESAMPLES: usize = 2_000;
}

/// The centre of some values and where it lies with [`CONFIDENCE`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Center {
    /// Hodges–Lehmann.
    pub(crate) estimate: f64,
    /// The joined interval; it always holds the estimate.
    pub(crate) interval: Interval,
}

/// The Hodges–Lehmann centre of `values` with its interval; `None` for no values.
///
/// One value has no interval: its ends are infinite.
pub(crate) fn center(values: &[f64], bootstrap: Bootstrap) -> Option<Center> {
    let estimate = hodges_lehmann(values)?;
    let mut interval = Interval::new(estimate, estimate).hull(signed_rank_interval(values));
    if values.len() < FEWEST_EXACT {
        interval = interval.hull(student_interval(values));
    }
    if values.len() > 1 {
        interval = interval.hull(bootstrap_interval(values, bootstrap));
    }
    Some(Center { estimate, interval })
}

/// The exact interval that inverts Wilcoxon's signed-rank test: with k as large as
/// P(W ≤ k − 1) ≤ 0.025 allows, from the k-th smallest to the k-th largest Walsh average.
///
/// Below six values no k exists, and the whole range stands in; one value or none: everything.
pub(crate) fn signed_rank_interval(values: &[f64]) -> Interval {
    if values.len() < 2 {
        return Interval::EVERYTHING;
    }
    let averages = walsh_averages(values);
    let k = signed_rank_depth(values.len(), (1.0 - CONFIDENCE) / 2.0).max(1);
    Interval { low: averages[k - 1], high: averages[averages.len() - k] }
}

/// The largest k with P(W ≤ k − 1) ≤ `tail`, where W is the signed-rank statistic of `n` values
/// under the null; 0 where even P(W = 0) = 2⁻ⁿ is more than that.
fn signed_rank_depth(n: usize, tail: f64) -> usize {
    // probabilities[w] = P(W = w): each rank is added or not, with a fair coin.
    let mut probabilities = vec![1.0];
    for rank in 1..=n {
        let mut next = vec![0.0; probabilities.len() + rank];
        for (w, p) in probabilities.iter().enumerate() {
            next[w] += p / 2.0;
            next[w + rank] += p / 2.0;
        }
        probabilities = next;
    }
    let mut cumulative = 0.0;
    probabilities
        .iter()
        .take_while(|probability| {
            cumulative += **probability;
            cumulative <= tail
        })
        .count()
}

/// Student's t interval about the mean; everything for one value or none.
fn student_interval(values: &[f64]) -> Interval {
    let (Some(center), Some(deviation)) = (mean(values), standard_deviation(values)) else {
        return Interval::EVERYTHING;
    };
    let quantile = Tail::INTERVAL.student_quantile(values.len() - 1);
    let reach = quantile * deviation / (values.len() as f64).sqrt();
    Interval { low: center - reach, high: center + reach }
}

/// The percentile bootstrap of the Hodges–Lehmann estimate.
pub(crate) fn bootstrap_interval(values: &[f64], bootstrap: Bootstrap) -> Interval {
    let n = values.len();
    if n < 2 || bootstrap.resamples == 0 {
        return Interval::EVERYTHING;
    }
    let pairs = sorted_pairs(values);
    let mut rng = ChaCha8Rng::seed_from_u64(bootstrap.seed);
    rng.set_stream(bootstrap.stream);
    let mut estimates: Vec<f64> = (0..bootstrap.resamples)
        .map(|_| {
            let mut counts = vec![0_u64; n];
            for _ in 0..n {
                counts[index_below(n, &mut rng)] += 1;
            }
            weighted_median(&pairs, &counts)
        })
        .collect();
    estimates.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let rank = (tail * bootstrap.resamples as f64).floor() as usize;
    Interval { low: estimates[rank], high: estimates[estimates.len() - 1 - rank] }
}

/// The Walsh averages in ascending order, each with the two values that it comes from.
fn sorted_pairs(values: &[f64]) -> Vec<(f64, usize, usize)> {
    let n = values.len();
    let mut pairs = Vec::with_capacity(n * (n + 1) / 2);
    for i in 0..n {
        pairs.extend((i..n).map(|j| (values[i] / 2.0 + values[j] / 2.0, i, j)));
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    pairs
}

/// The median of the Walsh averages of a resample, given how often it holds each value.
///
/// A resample that holds value i cᵢ times has the average of i and j cᵢcⱼ times, and that of i with
/// itself cᵢ(cᵢ + 1)/2 times. So the averages are sorted once for all resamples, and each resample is
/// one pass with those weights up to the middle of their total n(n + 1)/2.
fn weighted_median(pairs: &[(f64, usize, usize)], counts: &[u64]) -> f64 {
    let n = counts.len() as u64;
    let total = n * (n + 1) / 2;
    // The two middle positions, counted from 1; the same one where the total is odd.
    let (lower, upper) = (total.div_ceil(2), total / 2 + 1);
    let mut below = 0;
    let mut next = 0;
    // The weights add up to `total`, so both positions are reached.
    let mut average_at = |position: u64| {
        while below < position {
            let (_, i, j) = pairs[next];
            let (a, b) = (counts[i], counts[j]);
            below += if i == j { a * (a + 1) / 2 } else { a * b };
            next += 1;
        }
        pairs[next - 1].0
    };
    average_at(lower) / 2.0 + average_at(upper) / 2.0
}

/// A uniform index below `n`, by multiplying instead of dividing. For `n` below 2³² the bias is
/// below n/2³², and the sequence is the same on every platform and version.
pub(crate) fn index_below(n: usize, rng: &mut ChaCha8Rng) -> usize {
    ((u64::from(rng.next_u32()) * n as u64) >> 32) as usize
}

/// The Hodges–Lehmann estimate of a resample, for the tests to compare with the plain one.
#[cfg(test)]
pub(super) fn resampled_estimate(values: &[f64], counts: &[u64]) -> f64 {
    weighted_median(&sorted_pairs(values), counts)
}
