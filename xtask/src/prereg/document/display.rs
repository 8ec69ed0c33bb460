//! How parts of a document read in reports and messages.

use std::fmt;

use serde::Serialize as _;

use super::{Action, Bound, Confidence, Difference, Order, Statistic};
use crate::prereg::numbers::number;

// As documents spell them.

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
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
