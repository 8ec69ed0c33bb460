//! How parts of a document read in reports and messages.

use std::fmt;

use super::{Action, Bound, Confidence, Difference, Order, Statistic};
use crate::prereg::numbers::number;

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
            Action::Park => f.write_str("land nothing"),
            Action::Drop(item) => write!(f, "drop {item} and measure again"),
        }
    }
}
