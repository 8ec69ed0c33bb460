//! Robust statistics over few, noisy, paired measurements.
//!
//! Owns the numbers alone: location and spread, intervals, slopes, and what a number of blocks can
//! see. It knows no metric, no leg and no file, draws no randomness but from a seed, and takes its
//! input in any order. How each formula comes about is derived in docs/METHODOLOGY.md.

pub(crate) mod expr;
pub(crate) mod interval;
pub(crate) mod location;
pub(crate) mod memory_curve;
pub(crate) mod power;
pub(crate) mod schedule;
pub(crate) mod sequence;
pub(crate) mod slope;
pub(crate) mod student;
pub(crate) mod verdict;

/// A closed interval. Its ends may be infinite: then the data say nothing on that side.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// The whole line: what is known of a location after no usable measurement.
    pub(crate) const EVERYTHING: Interval =
        Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };

    /// An interval from its ends in either order.
    pub(crate) fn new(a: f64, b: f64) -> Interval {
        Interval { low: a.min(b), high: a.max(b) }
    }

    pub(crate) fn width(self) -> f64 {
        self.high - self.low
    }

    /// Whether `value` lies in it, ends included.
    pub(crate) fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The smallest interval that holds both.
    pub(crate) fn hull(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Both ends through a monotone function.
    pub(crate) fn map(self, f: impl Fn(f64) -> f64) -> Interval {
        Interval::new(f(self.low), f(self.high))
    }
}

#[cfg(test)]
mod tests;
