//! Which names and functions each kind of expression may use.

use super::Document;
use crate::base::nearest::nearest;
use crate::stats::expr::{Kind, Signature};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The formula of a read or a guard: names are rungs, and `value(metric, rung)` reaches the figure of
    /// another metric.
    Formula,
    /// The bound of a guard: the only name is `value`.
    Bound,
    /// A rule or an expectation: names are reads.
    Condition,
    /// What a transfer is expected to show: names are `here.READ` and `there.READ`.
    Transfer,
}

/// The functions of conditions, with what their arguments name and what they yield.
pub(crate) const FUNCTIONS: &[(&str, &[&str], Kind)] = &[
    ("guard", &["guard"], Kind::Condition),
    ("oracle", &["oracle"], Kind::Condition),
    ("dropped", &["item"], Kind::Condition),
    ("unstable", &["rung"], Kind::Condition),
    ("crashed", &["rung"], Kind::Condition),
    ("nan", &["rung"], Kind::Condition),
    ("value", &["metric", "rung"], Kind::Number),
    ("lower", &["read"], Kind::Number),
    ("upper", &["read"], Kind::Number),
];

/// Names that conditions may use besides the reads.
pub(crate) const NUMBERS: &[&str] = &["failed_oracles", "surviving_items", "cost_min", "noise"];

/// The names of one place in one document.
pub(crate) struct Scope<'a> {
    pub(crate) document: &'a Document,
    pub(crate) place: Place,
}

impl Signature for Scope<'_> {
    fn check_name(&self, name: &str) -> Result<(), String> {
        let known: Vec<String> = match self.place {
            Place::Formula => ids_of(self.document, "rung"),
            Place::Bound => vec!["value".to_owned()],
            Place::Condition => {
                let numbers = NUMBERS.iter().map(|name| (*name).to_owned());
                ids_of(self.document, "read").into_iter().chain(numbers).collect()
            }
            Place::Transfer => self
                .document
                .transfer
                .iter()
                .flat_map(|transfer| &transfer.reads)
                .flat_map(|read| [format!("here.{read}"), format!("there.{read}")])
                .collect(),
        };
        check_known("name", name, &known)
    }

    fn check_call(&self, function: &str, args: &[String]) -> Result<Kind, String> {
        let is_allowed = match self.place {
            Place::Condition => true,
            Place::Formula => function == "value",
            Place::Bound | Place::Transfer => false,
        };
        if !is_allowed {
            return Err(format!(
                "`{function}` cannot be used here: this place takes no such function"
            ));
        }
        let Some((_, params, kind)) = FUNCTIONS.iter().find(|(name, ..)| *name == function) else {
            let known: Vec<String> =
                FUNCTIONS.iter().map(|(name, ..)| (*name).to_owned()).collect();
            return check_known("function", function, &known).map(|()| Kind::Condition);
        };
        if params.len() != args.len() {
            return Err(format!("`{function}` takes ({})", params.join(", ")));
        }
        for (param, arg) in params.iter().zip(args) {
            check_known(param, arg, &ids_of(self.document, param))?;
        }
        Ok(*kind)
    }
}

/// The names of everything of one kind.
pub(crate) fn ids_of(document: &Document, kind: &str) -> Vec<String> {
    match kind {
        "guard" => document.guards.iter().map(|guard| guard.id.clone()).collect(),
        "item" => document.items.iter().map(|item| item.id.clone()).collect(),
        "metric" => document.metrics.iter().map(|metric| metric.id.clone()).collect(),
        "oracle" => document.oracles.iter().map(|oracle| oracle.id.clone()).collect(),
        "read" => document.reads.iter().map(|read| read.id.clone()).collect(),
        "rule" => document.rules.iter().map(|rule| rule.id.clone()).collect(),
        "rung" => document.rungs.iter().map(|rung| rung.id.clone()).collect(),
        _ => Vec::new(),
    }
}

/// Checks that `name` is one of `known`; else names the nearest, or all.
pub(crate) fn check_known(what: &str, name: &str, known: &[String]) -> Result<(), String> {
    if known.iter().any(|other| other == name) {
        return Ok(());
    }
    Err(match nearest(name, known.iter().map(String::as_str)) {
        Some(other) => format!("unknown {what} `{name}`; did you mean `{other}`?"),
        None if known.is_empty() => format!("unknown {what} `{name}`; there is none"),
        None => format!("unknown {what} `{name}`; expected one of {}", known.join(", ")),
    })
}
