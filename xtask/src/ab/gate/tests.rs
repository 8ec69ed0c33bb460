use proptest::prelude::*;

use super::*;
use crate::stats::expr::{Names, Number, Truth};

#[test]
fn gates_are_parsed() {
    use Bound::{Change, Value};
    let table = [
        ("decode_tok_s >= -1%", None, Metric::DecodeTokS, Relation::AtLeast, Change(-0.01)),
        ("slope_mib_per_token<=0.1", None, Metric::SlopeMibPerToken, Relation::AtMost, Value(0.1)),
        (
            " driver_frees_per_step == 0 ",
            None,
            Metric::DriverFreesPerStep,
            Relation::Equal,
            Value(0.0),
        ),
        ("base.load_ms < 2e3", Some("base"), Metric::LoadMs, Relation::Below, Value(2000.0)),
        (
            "a.b.ms_per_token > +.5 %",
            Some("a.b"),
            Metric::MsPerToken,
            Relation::Above,
            Change(0.005),
        ),
        // To the language `-` is a minus and `1mib` a broken number; to a leg both are a name.
        ("no-cache.load_ms <= 9", Some("no-cache"), Metric::LoadMs, Relation::AtMost, Value(9.0)),
        ("1mib.load_ms <= 9", Some("1mib"), Metric::LoadMs, Relation::AtMost, Value(9.0)),
    ];
    for (text, leg, metric, relation, bound) in table {
        let leg = leg.map(str::to_owned);
        let expected = Gate { text: text.trim().to_owned(), leg, metric, relation, bound };
        assert_eq!(parse_gate(text), Ok(expected), "{text}");
    }
}

#[test]
fn a_text_that_is_not_a_gate_says_why() {
    let message = |text| parse_gate(text).unwrap_err().to_string();
    assert!(message("decode_tok_s").contains("there is no operator"));
    assert!(
        message("decode_toks >= 1")
            .contains("no metric `decode_toks`, did you mean `decode_tok_s`?")
    );
    assert!(message("decode_toks >= 1").contains("driver_frees_per_step, alloc_ms_per_step"));
    assert!(message("tok/s >= 1").contains("no metric `tok / s`"));
    assert!(message("load_ms >= fast").contains("`fast` is not a number"));
    assert!(message("load_ms >= inf").contains("`inf` is not a number"));
    assert!(message("load_ms >=").contains("expected a number or a name at the end"));
    assert!(message("load_ms => 3").contains("did you mean `>=`?"));
    assert!(message("load_ms = 3").contains("did you mean `==`?"));
    assert!(message("rss_peak_mib <= 64MiB").contains("`64MiB` at column 17 is not a number"));
    assert!(message("load_ms > 1 and load_ms < 3").contains("give each condition a gate"));
    assert!(message("slope_mib_per_token <= 3%").contains("bound it in MiB per token"));
    assert!(message("decode_tok_s == 3").contains("== is for counts"));
    assert!(message("driver_frees_per_step != 0%").contains("!= is for counts"));
}

fn check(text: &str, change: Option<(f64, f64)>, values: &[f64]) -> GateResult {
    let interval = |(low, high)| Interval { low, high };
    let ends = values.iter().copied().reduce(f64::min).zip(values.iter().copied().reduce(f64::max));
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
    let reason = check("decode_tok_s >= -1%", Some((-9.0, -1.125)), &[]).reason;
    assert_eq!(reason, "95 % interval -9.00 to -1.12 %");
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
    let unequal = check("driver_frees_per_step != 0", None, &[0.0, 1.0]);
    assert_eq!((unequal.outcome, &*unequal.reason), (GateOutcome::Failed, "1 of 2 runs have 0"));
}

/// A ladder's read of a given value.
struct Read(f64);

impl Names for Read {
    fn number(&self, _: &str) -> Number {
        Number::Known(self.0)
    }

    fn call_number(&self, _: &str, _: &[String]) -> Number {
        unreachable!("the rules here call nothing")
    }

    fn call_truth(&self, _: &str, _: &[String]) -> Truth {
        unreachable!("the rules here call nothing")
    }
}

#[test]
fn a_gate_and_a_ladders_rule_decide_alike_at_the_bar() {
    // Binary fractions put each of these a little beside its bar: 0.1 + 0.2 is above 0.3, 2.04 / 2
    // less one is above 2 %, 1.1 * 3 is above 3.3, 1 less 0.9 is below 0.1.
    let bars =
        [(0.1 + 0.2, "0.3"), (2.04 / 2.0 - 1.0, "2 %"), (1.1 * 3.0, "3.3"), (1.0 - 0.9, "10%")];
    for (value, bar) in bars {
        for (operator, holds) in [(">=", true), ("<=", true), (">", false), ("<", false)] {
            let rule = parse_condition(&format!("read {operator} {bar}")).unwrap();
            let truth = rule.truth(&Read(value));
            assert_eq!(truth, Truth::from_bool(holds), "rule: {value} {operator} {bar}");
            let change = (100.0 * value, 100.0 * value);
            let gate = check(&format!("load_ms {operator} {bar}"), Some(change), &[value]);
            let passed = gate.outcome == GateOutcome::Passed;
            assert_eq!(passed, holds, "gate: {value} {operator} {bar}");
        }
    }
}

#[test]
fn a_bound_below_the_noise_floor_is_warned_of() {
    let warning = |text| check(text, Some((-2.0, 2.0)), &[]).warning;
    assert!(warning("decode_tok_s >= -0.1%").unwrap().contains("cannot be met honestly"));
    assert_eq!(warning("decode_tok_s >= -1%"), None);
    assert_eq!(warning("decode_tok_s >= 0"), None);
    // What was shown in spite of the noise was met.
    assert_eq!(check("decode_tok_s >= -0.1%", Some((0.0, 0.0)), &[]).warning, None);
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
