//! Gates: `METRIC OP BOUND`, a condition in the language of [`crate::stats::expr`], held against what
//! was measured.
//!
//! A gate with a percentage bounds the change against base; one with a plain number bounds the metric
//! itself. `LEG.METRIC` names a leg; without, a gate holds for every test leg. A gate passes only
//! where the whole interval meets it: what the runs do not show has not been met.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ab::figures::show_interval;
use crate::ab::metric::{Kind, Metric, describe_unknown};
use crate::stats::Interval;
use crate::stats::expr::{Expr, Relation, parse_condition};
use crate::stats::verdict::Scale;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gate {
    /// As it was written.
    pub(crate) text: String,
    /// The leg it is about; `None` for every test leg.
    pub(crate) leg: Option<String>,
    pub(crate) metric: Metric,
    pub(crate) relation: Relation,
    pub(crate) bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// On the change against base, as a fraction.
    Change(f64),
    /// On the metric itself, in its unit.
    Value(f64),
}

/// Why a text is not a gate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("gate `{gate}`: {problem}")]
pub(crate) struct GateError {
    gate: String,
    problem: String,
}

/// Parses one gate.
///
/// # Errors
/// What the language does not allow, a missing operator, an unknown metric (the error names the known
/// ones), a bound that is not a constant, a percentage of a slope, and equality of anything but a
/// count.
pub(crate) fn parse_gate(text: &str) -> Result<Gate, GateError> {
    let text = text.trim();
    let error = |problem: String| GateError { gate: text.to_owned(), problem };
    let (leg, condition) = split_leg(text);
    let (subject, relation, bound) = match parse_condition(condition).map_err(error)? {
        Expr::Compare(subject, relation, bound) => (subject, relation, bound),
        Expr::And(..) | Expr::Or(..) | Expr::Not(_) => {
            return Err(error("a gate is one comparison; give each condition a gate".to_owned()));
        }
        _ => {
            let problem = "there is no operator; write METRIC OP BOUND with >=, <=, >, <, == or !=";
            return Err(error(problem.to_owned()));
        }
    };
    let name = subject.to_string();
    let metric = Metric::parse(&name).ok_or_else(|| error(describe_unknown(&name)))?;
    let Some((number, is_percent)) = bound.constant() else {
        return Err(error(format!(
            "`{bound}` is not a number; write -1% for a change against base, or 0.1"
        )));
    };
    if is_percent && metric.kind() == Kind::Slope {
        return Err(error("a slope has no percentage; bound it in MiB per token".to_owned()));
    }
    let is_equality = matches!(relation, Relation::Equal | Relation::Unequal);
    if is_equality && (is_percent || metric.kind() != Kind::Count) {
        return Err(error(format!(
            "{relation} is for counts; a measured value never equals a bound, use <= or >="
        )));
    }
    let bound = if is_percent { Bound::Change(number) } else { Bound::Value(number) };
    Ok(Gate { text: text.to_owned(), leg: leg.map(str::to_owned), metric, relation, bound })
}

/// Splits `LEG.` off. A leg's name may hold `-` and start with a digit, which means something else to
/// the language.
fn split_leg(text: &str) -> (Option<&str>, &str) {
    let is_inner = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let end = text.find(|c| !is_inner(c)).unwrap_or(text.len());
    match text[..end].rsplit_once('.') {
        Some((leg, name)) if name.starts_with(char::is_alphabetic) => {
            (Some(leg), &text[leg.len() + 1..])
        }
        _ => (None, text),
    }
}

/// What was measured of a gate's metric in one leg.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Subject<'a> {
    pub(crate) leg: &'a str,
    /// The leg's values, one for each block.
    pub(crate) values: &'a [f64],
    /// Where the leg's centre lies with 95 % confidence.
    pub(crate) value_interval: Option<Interval>,
    /// Where the change against base lies, in percent; `None` where there is no ratio.
    pub(crate) change_pct: Option<Interval>,
    /// The change that base shows against itself, in percent.
    pub(crate) noise_floor_pct: Option<f64>,
}

/// How a gate came out for one leg.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GateResult {
    /// The gate as it was written.
    pub(crate) gate: String,
    pub(crate) leg: String,
    pub(crate) outcome: GateOutcome,
    /// What was seen, in words.
    pub(crate) reason: String,
    /// Why it cannot be met honestly, if so.
    pub(crate) warning: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GateOutcome {
    /// The whole interval meets it.
    Passed,
    /// No value of the interval meets it.
    Failed,
    /// The interval lies on both sides of the bound.
    NotShown,
    /// There is nothing to hold it against.
    NotMeasured,
}

impl fmt::Display for GateOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GateOutcome::Passed => "passed",
            GateOutcome::Failed => "FAILED",
            GateOutcome::NotShown => "NOT SHOWN",
            GateOutcome::NotMeasured => "NOT MEASURED",
        })
    }
}

/// Holds a gate against what was measured. Anything but `Passed` is a violation.
pub(crate) fn check_gate(gate: &Gate, subject: &Subject<'_>) -> GateResult {
    let result = |outcome, reason| GateResult {
        gate: gate.text.clone(),
        leg: subject.leg.to_owned(),
        outcome,
        reason,
        // What was shown in spite of the noise needs no warning of it.
        warning: (outcome != GateOutcome::Passed)
            .then(|| check_against_noise(gate, subject))
            .flatten(),
    };
    // Changes come in percent, bounds on them are fractions, as in a ladder's rules.
    let (bound, unit, interval) = match gate.bound {
        Bound::Change(bound) => (bound, 100.0, subject.change_pct),
        Bound::Value(bound) => (bound, 1.0, subject.value_interval),
    };
    let Some(interval) = interval else {
        return result(GateOutcome::NotMeasured, "no run measured it".to_owned());
    };
    let holds = |value: f64| gate.relation.holds(value / unit, bound);
    if matches!(gate.relation, Relation::Equal | Relation::Unequal) {
        let off = subject.values.iter().filter(|value| !holds(**value)).count();
        let outcome = if off == 0 { GateOutcome::Passed } else { GateOutcome::Failed };
        let what = if gate.relation == Relation::Equal { "differ from" } else { "have" };
        return result(outcome, format!("{off} of {} runs {what} {bound}", subject.values.len()));
    }
    let outcome = match (holds(interval.low), holds(interval.high)) {
        (true, true) => GateOutcome::Passed,
        (false, false) => GateOutcome::Failed,
        _ => GateOutcome::NotShown,
    };
    let shown = match gate.bound {
        Bound::Change(_) => show_interval(gate.metric, Scale::LogRatio, interval),
        Bound::Value(_) => {
            format!("{} to {}", gate.metric.render(interval.low), gate.metric.render(interval.high))
        }
    };
    result(outcome, format!("95 % interval {shown}"))
}

/// A bound on a change that is closer to zero than base is to itself.
fn check_against_noise(gate: &Gate, subject: &Subject<'_>) -> Option<String> {
    let Bound::Change(bound) = gate.bound else { return None };
    let floor = subject.noise_floor_pct?;
    (100.0 * bound.abs() < floor).then(|| {
        format!(
            "the bound is tighter than the noise floor: base differs from itself by {floor:.2} %, \
             so this gate cannot be met honestly"
        )
    })
}

#[cfg(test)]
mod tests;
