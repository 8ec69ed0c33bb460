//! How parts of a document read in reports and messages.

use std::fmt;

use serde::Serialize as _;

use super::{Action, Bound, Confidence, Difference, Landed, Order, Statistic};
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

impl fmt::Display for Landed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.only_if {
            Some(condition) => write!(f, "{} (if {condition})", self.item),
            None => f.write_str(&self.item),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::LandAll => f.write_str("land every surviving item"),
            Action::Land(items) => {
                let items: Vec<String> = items.iter().map(Landed::to_string).collect();
                write!(f, "land only {}", items.join(", "))
            }
            Action::Park => f.write_str("land nothing"),
            Action::Drop(item) => write!(f, "drop {item} and measure again"),
        }
    }
}
