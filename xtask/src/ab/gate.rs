//! Gates: `METRIC OP BOUND`, parsed into a checked expression and held against what was measured.
//!
//! A gate with a percentage bounds the change against base; one with a plain number bounds the metric
//! itself. `LEG.METRIC` names a leg; without, a gate holds for every test leg. A gate passes only
//! where the whole interval meets it: what the runs do not show has not been met. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ab::metric::{Kind, Metric};
use crate::base::nearest::nearest;
use crate::stats::Interval;

/// One gate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gate {
    /// As it was written.
    pub(crate) text: String,
    /// The leg it is about; `None` for every test leg.
    pub(crate) leg: Option<String>,
    /// The metric.
    pub(crate) metric: Metric,
    /// How it is compared.
    pub(crate) comparison: Comparison,
    /// What it is compared with.
    pub(crate) bound: Bound,
}

/// How a gate compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `==`
    Equal,
    /// `>=`
    AtLeast,
    /// `>`
    More,
}

impl Comparison {
    /// Longer signs first, so that `<=` is not read as `<`.
    const ALL: [(&'static str, Comparison); 5] = [
        ("<=", Comparison::AtMost),
        (">=", Comparison::AtLeast),
        ("==", Comparison::Equal),
        ("<", Comparison::Less),
        (">", Comparison::More),
    ];

    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Comparison::Less => value < bound,
            Comparison::AtMost => value <= bound,
            Comparison::Equal => value == bound,
            Comparison::AtLeast => value >= bound,
            Comparison::More => value > bound,
        }
    }
}

/// What a gate compares with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// The change against base, in percent.
    PercentOfBase(f64),
    /// The metric itself, in its unit.
    Value(f64),
}

/// Why a text is no gate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum GateError {
    /// There is no operator.
    #[error("gate `{0}` has no operator; write METRIC OP BOUND with <=, >=, ==, < or >")]
    NoOperator(String),
    /// The metric is not known.
    #[error("gate `{gate}`: no metric `{name}`{suggestion}; the metrics are {known}")]
    UnknownMetric {
        /// The gate.
        gate: String,
        /// The name.
        name: String,
        /// The nearest known one, in words, or nothing.
        suggestion: String,
        /// All of them.
        known: String,
    },
    /// The bound is no number.
    #[error("gate `{gate}`: `{bound}` is no number; write -1% for a change against base, or 0.1")]
    BadBound {
        /// The gate.
        gate: String,
        /// The bound.
        bound: String,
    },
    /// A slope may be zero or negative, so a share of it says nothing.
    #[error("gate `{0}`: a slope has no percentage; bound it in MiB per token")]
    PercentOfSlope(String),
    /// Measured times are never equal to anything.
    #[error("gate `{0}`: == is for counts; a measured value never equals a bound, use <= or >=")]
    EqualityOfMeasurement(String),
}

/// Parses one gate.
///
/// # Errors
/// A missing operator, an unknown metric (the error names the known ones), a bound that is no finite
/// number, a percentage of a slope, and equality of anything but a count.
pub(crate) fn parse_gate(text: &str) -> Result<Gate, GateError> {
    let gate = text.trim().to_owned();
    let (at, sign, comparison) = Comparison::ALL
        .iter()
        .filter_map(|(sign, comparison)| Some((gate.find(sign)?, *sign, *comparison)))
        // The first operator counts; of two at one place, the longer.
        .min_by_key(|(at, sign, _)| (*at, std::cmp::Reverse(sign.len())))
        .ok_or_else(|| GateError::NoOperator(gate.clone()))?;
    let subject = gate[..at].trim();
    let (leg, name) = match subject.rsplit_once('.') {
        Some((leg, name)) => (Some(leg.trim().to_owned()), name.trim()),
        None => (None, subject),
    };
    let metric = Metric::parse(name).ok_or_else(|| unknown_metric(&gate, name))?;
    let bound_text = gate[at + sign.len()..].trim();
    let (number, is_percent) = match bound_text.strip_suffix('%') {
        Some(number) => (number.trim_end(), true),
        None => (bound_text, false),
    };
    let number =
        number.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| {
            GateError::BadBound { gate: gate.clone(), bound: bound_text.to_owned() }
        })?;
    if is_percent && metric.kind() == Kind::Slope {
        return Err(GateError::PercentOfSlope(gate));
    }
    if comparison == Comparison::Equal && (is_percent || metric.kind() != Kind::Count) {
        return Err(GateError::EqualityOfMeasurement(gate));
    }
    let bound = if is_percent { Bound::PercentOfBase(number) } else { Bound::Value(number) };
    Ok(Gate { text: gate, leg, metric, comparison, bound })
}

fn unknown_metric(gate: &str, name: &str) -> GateError {
    let known: Vec<&str> = Metric::ALL.into_iter().map(Metric::name).collect();
    let suggestion = nearest(name, known.iter().copied())
        .map(|near| format!(", did you mean `{near}`?"))
        .unwrap_or_default();
    GateError::UnknownMetric {
        gate: gate.to_owned(),
        name: name.to_owned(),
        suggestion,
        known: known.join(", "),
    }
}

/// What was measured of a gate's metric in one leg.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Subject<'a> {
    /// The leg's name.
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
    /// The leg.
    pub(crate) leg: String,
    /// Whether it was met.
    pub(crate) outcome: GateOutcome,
    /// What was seen, in words.
    pub(crate) reason: String,
    /// Why it cannot be met honestly, if so.
    pub(crate) warning: Option<String>,
}

/// Whether a gate was met.
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
    let (bound, interval, unit) = match gate.bound {
        Bound::PercentOfBase(bound) => (bound, subject.change_pct, " %"),
        Bound::Value(bound) => (bound, subject.value_interval, ""),
    };
    let result = |outcome, reason| GateResult {
        gate: gate.text.clone(),
        leg: subject.leg.to_owned(),
        outcome,
        reason,
        warning: check_against_noise(gate, subject),
    };
    let Some(Interval { low, high }) = interval else {
        return result(GateOutcome::NotMeasured, "no run measured it".to_owned());
    };
    if gate.comparison == Comparison::Equal {
        let off = subject.values.iter().filter(|value| **value != bound).count();
        let outcome = if off == 0 { GateOutcome::Passed } else { GateOutcome::Failed };
        let reason = format!("{off} of {} runs differ from {bound}", subject.values.len());
        return result(outcome, reason);
    }
    let holds = [low, high].map(|end| gate.comparison.holds(end, bound));
    let outcome = match holds {
        [true, true] => GateOutcome::Passed,
        [false, false] => GateOutcome::Failed,
        _ => GateOutcome::NotShown,
    };
    let show = |value: f64| match gate.bound {
        Bound::PercentOfBase(_) => format!("{value:+.2}"),
        Bound::Value(_) => gate.metric.render(value),
    };
    result(outcome, format!("95 % interval {} to {}{unit}", show(low), show(high)))
}

/// A bound on a change that is closer to zero than base is to itself.
fn check_against_noise(gate: &Gate, subject: &Subject<'_>) -> Option<String> {
    let Bound::PercentOfBase(bound) = gate.bound else { return None };
    let floor = subject.noise_floor_pct?;
    (bound.abs() < floor).then(|| {
        format!(
            "the bound of {bound} % is tighter than the noise floor: base differs from itself by \
             {floor:.2} %, so this gate cannot be met honestly"
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gates_are_parsed() {
        let table = [
            ("decode_tok_s >= -1%", None, Metric::DecodeTokS, Comparison::AtLeast, -1.0, true),
            (
                "slope_mib_per_token<=0.1",
                None,
                Metric::SlopeMibPerToken,
                Comparison::AtMost,
                0.1,
                false,
            ),
            (
                " driver_frees_per_step == 0 ",
                None,
                Metric::DriverFreesPerStep,
                Comparison::Equal,
                0.0,
                false,
            ),
            ("base.load_ms < 2e3", Some("base"), Metric::LoadMs, Comparison::Less, 2000.0, false),
            (
                "a.b.ms_per_token > +.5 %",
                Some("a.b"),
                Metric::MsPerToken,
                Comparison::More,
                0.5,
                true,
            ),
        ];
        for (text, leg, metric, comparison, number, percent) in table {
            let bound = if percent { Bound::PercentOfBase(number) } else { Bound::Value(number) };
            let expected = Gate {
                text: text.trim().to_owned(),
                leg: leg.map(str::to_owned),
                metric,
                comparison,
                bound,
            };
            assert_eq!(parse_gate(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_gate_says_why() {
        let message = |text| parse_gate(text).unwrap_err().to_string();
        assert!(message("decode_tok_s").contains("no operator"));
        assert!(message("decode_toks >= 1").contains("did you mean `decode_tok_s`?"));
        assert!(message("decode_toks >= 1").contains("driver_frees_per_step, alloc_ms_per_step"));
        assert!(message("load_ms >= fast").contains("`fast` is no number"));
        assert!(message("load_ms >= inf").contains("`inf` is no number"));
        assert!(message("load_ms >=").contains("`` is no number"));
        assert!(message("slope_mib_per_token <= 3%").contains("bound it in MiB per token"));
        assert!(message("decode_tok_s == 3").contains("== is for counts"));
        assert!(message("driver_frees_per_step == 0%").contains("== is for counts"));
    }

    fn check(text: &str, change: Option<(f64, f64)>, values: &[f64]) -> GateResult {
        let interval = |(low, high)| Interval { low, high };
        let ends =
            values.iter().copied().reduce(f64::min).zip(values.iter().copied().reduce(f64::max));
        check_gate(
            &parse_gate(text).unwrap(),
            &Subject {
                leg: "switched",
                values,
                value_interval: ends.map(interval),
                change_pct: change.map(interval),
                noise_floor_pct: Some(0.5),
            },
        )
    }

    #[test]
    fn a_gate_passes_only_where_the_whole_interval_does() {
        let outcome = |low, high| check("decode_tok_s >= -1%", Some((low, high)), &[]).outcome;
        assert_eq!(outcome(-0.9, 3.0), GateOutcome::Passed);
        assert_eq!(outcome(-1.0, 3.0), GateOutcome::Passed);
        assert_eq!(outcome(-1.1, 3.0), GateOutcome::NotShown);
        assert_eq!(outcome(-9.0, -1.1), GateOutcome::Failed);
        assert_eq!(check("decode_tok_s >= -1%", None, &[]).outcome, GateOutcome::NotMeasured);
    }

    #[test]
    fn a_plain_number_bounds_the_metric_itself() {
        let outcome = |values: &[f64]| check("slope_mib_per_token <= 0.1", None, values).outcome;
        assert_eq!(outcome(&[0.01, 0.02]), GateOutcome::Passed);
        assert_eq!(outcome(&[0.01, 6.02]), GateOutcome::NotShown);
        assert_eq!(outcome(&[6.04]), GateOutcome::Failed);
        assert_eq!(outcome(&[]), GateOutcome::NotMeasured);
        let reason = check("slope_mib_per_token <= 0.1", None, &[6.04]).reason;
        assert_eq!(reason, "95 % interval 6.0400 to 6.0400");
    }

    #[test]
    fn a_count_that_must_be_zero_is_zero_in_every_run() {
        let result = |values: &[f64]| check("driver_frees_per_step == 0", None, values);
        assert_eq!(result(&[0.0; 5]).outcome, GateOutcome::Passed);
        assert_eq!(result(&[0.0, 0.0, 0.02]).outcome, GateOutcome::Failed);
        assert_eq!(result(&[0.0, 0.0, 0.02]).reason, "1 of 3 runs differ from 0");
        assert_eq!(result(&[]).outcome, GateOutcome::NotMeasured);
    }

    #[test]
    fn a_bound_below_the_noise_floor_is_warned_of() {
        let warning = |text| check(text, Some((0.0, 0.0)), &[]).warning;
        assert!(warning("decode_tok_s >= -0.1%").unwrap().contains("cannot be met honestly"));
        assert_eq!(warning("decode_tok_s >= -1%"), None);
        assert_eq!(warning("decode_tok_s >= 0"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = parse_gate(&text);
        }

        #[test]
        fn a_rendered_gate_is_read_back(metric in 0_usize..Metric::ALL.len(), bound in -1e6..1e6) {
            let metric = Metric::ALL[metric];
            let gate = parse_gate(&format!("{} <= {bound}", metric.name())).unwrap();
            prop_assert_eq!((gate.metric, gate.bound), (metric, Bound::Value(bound)));
        }
    }
}
