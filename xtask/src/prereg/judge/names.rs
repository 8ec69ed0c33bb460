//! What names mean in formulas, bounds, rules and expectations.

use super::round::{GuardOutcome, ReadOutcome, Round, Value};
use crate::prereg::compose::Dropped;
use crate::prereg::document::Document;
use crate::prereg::numbers::{is_fraction, percent};
use crate::prereg::oracle::{TrialOutcome, TrialVerdict};
use crate::stats::expr::{Expr, Names, Number, Truth};

/// Names that stand for numbers, where there are no functions.
pub(crate) struct Numbers<F>(pub(crate) F);

impl<F: Fn(&str) -> Number> Names for Numbers<F> {
    fn number(&self, name: &str) -> Number {
        (self.0)(name)
    }

    fn call_number(&self, function: &str, _: &[String]) -> Number {
        Number::Missing(format!("no function `{function}` here"))
    }

    fn call_truth(&self, function: &str, _: &[String]) -> Truth {
        Truth::Missing(format!("no function `{function}` here"))
    }
}

/// Names in the formula of a read or a guard: rungs stand for their figure of one metric, and
/// `value(metric, rung)` for that of another.
pub(super) struct Formula<'a> {
    pub(super) metric: &'a str,
    /// The figure of a metric at a rung.
    pub(super) figure: &'a dyn Fn(&str, &str) -> Number,
}

impl Names for Formula<'_> {
    fn number(&self, rung: &str) -> Number {
        (self.figure)(self.metric, rung)
    }

    fn call_number(&self, function: &str, args: &[String]) -> Number {
        match (function, args) {
            ("value", [metric, rung]) => (self.figure)(metric, rung),
            _ => Number::Missing(format!("no function `{function}` here")),
        }
    }

    fn call_truth(&self, function: &str, _: &[String]) -> Truth {
        Truth::Missing(format!("no condition `{function}` here"))
    }
}

/// What a read's name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadsAs {
    /// In rules: a read that its guard failed satisfies nothing.
    Judged,
    /// The same, with what a read would be without any effect in place of one that is no more than
    /// noise: a rule that holds so does not rest on it.
    Shown,
    /// In expectations: what was measured, whatever the guards say.
    Measured,
}

/// Names in rules and expectations.
pub(crate) struct Conditions<'a> {
    pub(crate) document: &'a Document,
    pub(crate) trials: &'a [TrialOutcome],
    pub(crate) dropped: &'a [Dropped],
    pub(crate) round: &'a Round,
    pub(crate) cost_min: f64,
    pub(crate) reads: ReadsAs,
}

impl Names for Conditions<'_> {
    fn number(&self, name: &str) -> Number {
        let failed =
            self.trials.iter().filter(|trial| trial.verdict == TrialVerdict::Failed).count();
        match name {
            "failed_oracles" => Number::Known(failed as f64),
            "surviving_items" => {
                Number::Known((self.document.items.len() - self.dropped.len()) as f64)
            }
            "cost_min" => Number::Known(self.cost_min),
            "noise" => self.round.noise.0.clone(),
            read => {
                let Some(outcome) = self.round.reads.iter().find(|one| one.id == read) else {
                    return Number::Missing(format!("no read `{read}`"));
                };
                self.judged(outcome, outcome.value.0.clone())
            }
        }
    }

    fn call_number(&self, function: &str, args: &[String]) -> Number {
        match (function, args) {
            ("value", [metric, rung]) => self.round.number(metric, rung),
            ("lower" | "upper", [read]) => {
                let Some(outcome) = self.round.reads.iter().find(|one| one.id == *read) else {
                    return Number::Missing(format!("no read `{read}`"));
                };
                let interval = outcome.certainty.as_ref().and_then(|one| one.interval);
                self.judged(
                    outcome,
                    match (&outcome.value.0, interval) {
                        (Number::Known(_), Some(interval)) if function == "lower" => {
                            Number::Known(interval.low)
                        }
                        (Number::Known(_), Some(interval)) => Number::Known(interval.high),
                        (Number::Known(_), None) => Number::Missing(format!(
                            "{read} has no interval: it takes several launches"
                        )),
                        (other, _) => other.clone(),
                    },
                )
            }
            _ => Number::Missing(format!("no function `{function}`")),
        }
    }

    fn call_truth(&self, function: &str, args: &[String]) -> Truth {
        let arg = args.first().map_or("", String::as_str);
        let crashed = self.round.crashed.contains_key(arg);
        let non_finite = self.round.non_finite.contains_key(arg);
        match function {
            "guard" => match self.round.guards.iter().find(|guard| guard.id == arg) {
                Some(GuardOutcome { passes: Some(passes), .. }) => Truth::from_bool(*passes),
                Some(GuardOutcome { value: Value(Number::Void(why)), .. }) => {
                    Truth::Void(why.clone())
                }
                Some(GuardOutcome { value: Value(Number::Missing(why)), .. }) => {
                    Truth::Missing(format!("guard {arg}: {why}"))
                }
                _ => Truth::Missing(format!("guard {arg} has no value")),
            },
            "oracle" => {
                let mut of_it = self.trials.iter().filter(|trial| trial.oracle == arg).peekable();
                if of_it.peek().is_none() {
                    return Truth::Missing(format!("oracle {arg} has judged nothing"));
                }
                Truth::from_bool(of_it.all(|trial| trial.verdict == TrialVerdict::Passed))
            }
            "dropped" => Truth::from_bool(self.dropped.iter().any(|drop| drop.item == arg)),
            "crashed" => Truth::from_bool(crashed),
            "nan" => Truth::from_bool(non_finite),
            "unstable" => Truth::from_bool(crashed || non_finite),
            _ => Truth::Missing(format!("no function `{function}`")),
        }
    }
}

impl Conditions<'_> {
    /// A number of a read as conditions see it.
    fn judged(&self, outcome: &ReadOutcome, number: Number) -> Number {
        match (&outcome.failed_by, &outcome.unsettled_by) {
            _ if self.reads == ReadsAs::Measured => number,
            (Some(guard), _) => Number::Void(format!("guard {guard} failed {}", outcome.id)),
            (None, Some(why)) => Number::Missing(why.clone()),
            (None, None) => match (&number, &outcome.certainty) {
                (Number::Known(_), Some(certainty))
                    if self.reads == ReadsAs::Shown
                        && outcome.within_noise(|_| String::new()).is_some() =>
                {
                    Number::Known(certainty.neutral)
                }
                _ => number,
            },
        }
    }

    /// The values that a condition uses, in words: `primary = −7.29 %; guard(vram) passes`.
    pub(crate) fn explain(&self, condition: &Expr) -> String {
        let mut parts: Vec<String> = Vec::new();
        condition.walk(&mut |expr| {
            let part = match expr {
                Expr::Name(name) => format!("{name} = {}", self.render_number(name, expr)),
                Expr::Call(function, args)
                    if ["value", "lower", "upper"].contains(&function.as_str()) =>
                {
                    format!("{expr} = {}", self.render_number(&args[0], expr))
                }
                Expr::Call(..) => match expr.truth(self) {
                    Truth::True => format!("{expr}: yes"),
                    Truth::False => format!("{expr}: no"),
                    Truth::Void(why) | Truth::Missing(why) => format!("{expr}: {why}"),
                },
                _ => return,
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        });
        parts.join("; ")
    }

    fn render_number(&self, name: &str, expr: &Expr) -> String {
        match expr.number(self) {
            Number::Known(value) if self.is_fraction(name) => percent(value),
            Number::Known(value) => format!("{}", (value * 1e4).round() / 1e4),
            Number::Void(why) | Number::Missing(why) => why,
        }
    }

    fn is_fraction(&self, name: &str) -> bool {
        name == "noise" || self.document.read(name).is_some_and(|read| is_fraction(&read.value))
    }
}
