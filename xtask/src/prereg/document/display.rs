//! How parts of a document read in reports and messages.

use std::fmt;

use super::{Action, Bound, Confidence, Difference, Order, Statistic};

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Confidence::Low => "low",
            Confidence::MediumLow => "medium-low",
            Confidence::Medium => "medium",
            Confidence::MediumHigh => "medium-high",
            Confidence::High => "high",
        })
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Statistic::Median => "median",
            Statistic::Mean => "mean",
            Statistic::Min => "min",
            Statistic::Max => "max",
            Statistic::Last => "last",
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Sequential => "sequential",
            Order::Interleaved => "interleaved",
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.of {
            Difference::Absolute => "abs",
            Difference::Relative => "rel",
        };
        write!(f, "{of} <= {}", number(self.at_most))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::LandAll => f.write_str("land every surviving item"),
            Action::Land(items) => write!(f, "land only {}", items.join(", ")),
            Action::Park => f.write_str("park: land nothing"),
            Action::Drop(item) => write!(f, "drop {item} and measure again"),
        }
    }
}

/// A number as people write it: `1e-3` rather than `0.001`, and never `1e0`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-2..1e6).contains(&size) {
        format!("{value:e}")
    } else {
        format!("{value}")
    }
}
