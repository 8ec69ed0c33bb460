//! The checks of a `decode-bench` on a GPU: which runs they need, what each must show, and how the
//! result reads.
//!
//! Times are reported and never decide; counts, bytes and tokens do.

use serde::{Deserialize, Serialize};

pub(crate) use run::run;

use plan::{CheckKind, Leg, Plan, Setting, plan_checks};
use seen::{LegEnd, LegNumbers};

pub(crate) mod args;
mod budget;
#[cfg(test)]
mod fixture;
mod judge;
mod plan;
mod render;
mod run;
mod seen;

/// The `schema` number of the journal and of `result.json`.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckVerdict {
    /// It showed what it must.
    Pass,
    /// It showed something else, or a run of it failed.
    Fail,
    /// It could not be made here, for a reason that says nothing about the program.
    NotPossible,
}

impl CheckVerdict {
    /// As tables have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            CheckVerdict::Pass => "pass",
            CheckVerdict::Fail => "FAIL",
            CheckVerdict::NotPossible => "not possible",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CheckResult {
    pub(crate) name: String,
    pub(crate) verdict: CheckVerdict,
    pub(crate) seen: String,
    /// The figures behind it; null where there are none.
    pub(crate) figures: serde_json::Value,
    /// The runs that it rests on, by the names of their reports.
    pub(crate) legs: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GpuResult {
    pub(crate) schema: u32,
    pub(crate) date: String,
    /// The card, as the program names it.
    pub(crate) card: String,
    /// Whether it ran over the stand-in driver, so that it says nothing about hardware.
    pub(crate) is_standin: bool,
    /// Commit of the checkout, and whether tracked files differ from it.
    pub(crate) commit: String,
    pub(crate) dirty: Option<bool>,
    pub(crate) binary_sha256: String,
    pub(crate) wall_s: f64,
    pub(crate) budget_s: f64,
    pub(crate) interrupted: bool,
    pub(crate) checks: Vec<CheckResult>,
}

impl GpuResult {
    pub(crate) fn has_failed(&self) -> bool {
        self.checks.iter().any(|check| check.verdict == CheckVerdict::Fail)
    }

    /// Why nothing was checked, in the words of the first check; `None` where something was.
    pub(crate) fn find_nothing_checked(&self) -> Option<String> {
        if self.checks.iter().any(|check| check.verdict != CheckVerdict::NotPossible) {
            return None;
        }
        let first = self.checks.first();
        let why = first.map_or("no check was planned".to_owned(), |check| {
            format!("`{}`: {}", check.name, check.seen)
        });
        Some(format!("none of the {} checks could run: {why}", self.checks.len()))
    }
}

/// Whether a card's name is that of the stand-in driver.
pub(crate) fn is_standin(card: &str) -> bool {
    card.to_lowercase().contains("stand-in")
}
