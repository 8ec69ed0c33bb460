//! A robust slope through points: Theil–Sen, with the interval that Sen gave for it.

use super::Interval;
use super::location::{median, median_of_sorted, sorted};
use super::student::Tail;

/// A line through points that a few wild ones do not move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slope {
    /// Units of y for one unit of x.
    pub(crate) slope: f64,
    /// The height of the line at x = 0: median y less slope times median x.
    pub(crate) intercept: f64,
    /// Where the true slope lies with 95 % confidence, given independent noise.
    pub(crate) interval: Interval,
}

/// Theil–Sen: the median of the slopes of all pairs of points that differ in x.
///
/// The 95 % interval takes the order statistics of the slopes that
/// Kendall's S allows, its variance corrected for ties (Sen 1968), rounded as `scipy.stats.theilslopes`
/// rounds. `None` where no two points differ in x. Memory is quadratic in the number of points.
pub(crate) fn theil_sen(points: &[(f64, f64)]) -> Option<Slope> {
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (index, (x1, y1)) in points.iter().enumerate() {
        for (x2, y2) in &points[index + 1..] {
            if x1 != x2 {
                slopes.push((y2 - y1) / (x2 - x1));
            }
        }
    }
    slopes.sort_by(f64::total_cmp);
    let slope = median_of_sorted(&slopes)?;
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let intercept = median(&ys)? - slope * median(&xs)?;

    let variance = (kendall_term(points.len()) - tie_terms(&xs) - tie_terms(&ys)).max(0.0) / 18.0;
    let reach = Tail::INTERVAL.normal_quantile() * variance.sqrt();
    let count = slopes.len() as f64;
    let last = slopes.len() - 1;
    let low = (((count - reach) / 2.0).round_ties_even() - 1.0).max(0.0) as usize;
    let high = ((count + reach) / 2.0).round_ties_even() as usize;
    let interval = Interval::new(slopes[low.min(last)], slopes[high.min(last)]);
    Some(Slope { slope, intercept, interval })
}

/// n(n − 1)(2n + 5): 18 times the variance of Kendall's S over n untied values.
fn kendall_term(n: usize) -> f64 {
    let n = n as f64;
    n * (n - 1.0) * (2.0 * n + 5.0)
}

/// What the ties among `values` take from [`kendall_term`].
fn tie_terms(values: &[f64]) -> f64 {
    sorted(values)
        .chunk_by(|a, b| a == b)
        .filter(|group| group.len() > 1)
        .map(|group| kendall_term(group.len()))
        .sum()
}
