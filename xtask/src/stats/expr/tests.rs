use proptest::prelude::*;

use super::*;

struct Table;

impl Names for Table {
    fn number(&self, name: &str) -> Number {
        match name {
            "A" => Number::Known(2.251),
            "C" => Number::Known(2.415),
            "crashed" => Number::Void("C crashed".to_owned()),
            other => Number::Missing(format!("no {other}")),
        }
    }

    fn call_number(&self, _: &str, _: &[String]) -> Number {
        Number::Known(1.0)
    }

    fn call_truth(&self, function: &str, _: &[String]) -> Truth {
        Truth::from_bool(function == "yes")
    }
}

impl Signature for Table {
    fn check_name(&self, name: &str) -> Result<(), String> {
        if name == "Z" { Err("no `Z`".to_owned()) } else { Ok(()) }
    }

    fn check_call(&self, _: &str, _: &[String]) -> Result<Kind, String> {
        Ok(Kind::Condition)
    }
}

fn truth(text: &str) -> Truth {
    parse_condition(text).unwrap().truth(&Table)
}

#[test]
fn arithmetic_follows_the_usual_precedence() {
    let number = |text: &str| parse_condition(text).unwrap().number(&Table);
    assert_eq!(number("1 + 2 * 3"), Number::Known(7.0));
    assert_eq!(number("(1 + 2) * 3"), Number::Known(9.0));
    assert_eq!(number("8 / 2 / 2"), Number::Known(2.0));
    assert_eq!(number("1 - 2 - 3"), Number::Known(-4.0));
    assert_eq!(number("-(2 - 5)"), Number::Known(3.0));
    let Number::Known(read) = number("(A - C) / A") else { panic!() };
    assert!((read - -0.072_856_508_218_57).abs() < 1e-12, "{read}");
}

#[test]
fn division_by_zero_cannot_be_judged() {
    assert!(matches!(truth("1 / 0 > 1"), Truth::Missing(_)));
}

#[test]
fn a_percentage_is_a_fraction_and_is_shown_as_written() {
    let expr = parse_condition("(A - C) / A >= 5 %").unwrap();
    assert_eq!(expr.to_string(), "(A - C) / A >= 5 %");
    assert_eq!(parse_number("2%").unwrap(), 0.02);
    assert_eq!(parse_number("-1e-3").unwrap(), -0.001);
    assert_eq!(parse_number("+.5 %").unwrap(), 0.005);
    assert_eq!(parse_number("A").unwrap_err(), "`A` is not a constant");
    assert_eq!(parse_condition("7 %").unwrap().to_string(), "7 %");
}

#[test]
fn a_bar_is_met_exactly_despite_binary_fractions() {
    // 2.04 / 2.00 − 1 is 0.020000000000000018 in binary.
    assert_eq!(truth("(2.04 - 2) / 2 <= 2 %"), Truth::True);
    assert_eq!(truth("(2.04 - 2) / 2 > 2 %"), Truth::False);
    assert_eq!(truth("(2.041 - 2) / 2 > 2 %"), Truth::True);
    assert_eq!(truth("(2.1 - 2) / 2 >= 5 %"), Truth::True);
}

#[test]
fn what_crashed_satisfies_no_comparison_nor_its_opposite() {
    for text in ["crashed >= 5 %", "crashed < 5 %", "not (crashed >= 5 %)"] {
        assert_eq!(truth(text), Truth::Void("C crashed".to_owned()), "{text}");
    }
    assert_eq!(truth("crashed > 1 or yes(x)"), Truth::True);
    assert_eq!(truth("crashed > 1 and no(x)"), Truth::False);
}

#[test]
fn what_is_missing_weighs_more_than_what_does_not_apply() {
    assert_eq!(truth("crashed > 1 and gone > 1"), Truth::Missing("no gone".to_owned()));
    assert_eq!(truth("gone > 1 or crashed > 1"), Truth::Missing("no gone".to_owned()));
    assert_eq!(truth("gone > 1 or yes(x)"), Truth::True);
}

#[test]
fn types_and_names_are_checked() {
    let check = |text: &str| parse_condition(text).unwrap().check(&Table);
    assert_eq!(check("A > 1 and yes(x)"), Ok(Kind::Condition));
    assert_eq!(check("A + 1"), Ok(Kind::Number));
    assert_eq!(check("A and yes(x)").unwrap_err(), "`A` is a number, where a condition is needed");
    assert_eq!(
        check("yes(x) + 1").unwrap_err(),
        "`yes(x)` is a condition, where a number is needed"
    );
    assert_eq!(check("Z > 1").unwrap_err(), "no `Z`");
}

#[test]
fn errors_say_where() {
    let error = |text: &str| parse_condition(text).unwrap_err();
    assert_eq!(error("A >"), "expected a number or a name at the end");
    assert_eq!(error("A > 1)"), "unexpected `)` in `A > 1)` at column 6");
    assert_eq!(error("A ; 1"), "unexpected `;` in `A ; 1` at column 3");
    assert_eq!(error("f(1)"), "expected a name at column 3, found `1`");
    assert_eq!(error("A and or B"), "expected a number or a name at column 7, found `or`");
    assert_eq!(error("A => 1"), "`=>` at column 3 is not an operator; did you mean `>=`?");
    assert_eq!(error("A = 1"), "`=` at column 3 is not an operator; did you mean `==`?");
    assert_eq!(error("A ≤ 1"), "`≤` at column 3 is not an operator; did you mean `<=`?");
    assert_eq!(error("A > 3ms"), "`3ms` at column 5 is not a number: numbers have no unit");
    assert_eq!(error("A > 1.2.3"), "`1.2.3` at column 5 is not a number");
    assert_eq!(error("1e999"), "`1e999` at column 1 is too large");
    assert!(error(&"(".repeat(10_000)).contains("nested"));
}

#[test]
fn a_clause_is_replaced_by_its_index() {
    let expr = parse_condition("A > 1 and (C < 2 or not yes(x))").unwrap();
    let clauses: Vec<String> = expr.clauses().iter().map(ToString::to_string).collect();
    assert_eq!(clauses, ["A > 1", "C < 2", "yes(x)"]);
    assert_eq!(expr.with_clause(1, true).to_string(), "A > 1 and (always or not yes(x))");
    assert_eq!(expr.with_clause(2, false).to_string(), "A > 1 and (C < 2 or not never)");
}

fn any_condition() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        (0u32..2000).prop_map(|n| format!("{}", f64::from(n) / 8.0)),
        (0u32..100).prop_map(|n| format!("{n} %")),
        "[A-Z][a-z]{0,3}".prop_map(|name| name),
    ];
    let sum = number.prop_recursive(3, 12, 2, |inner| {
        (inner.clone(), prop_oneof!["\\+", "-", "\\*", "/"], inner)
            .prop_map(|(left, sign, right)| format!("({left} {sign} {right})"))
    });
    let comparison = (sum.clone(), prop_oneof![">=", "<=", ">", "<", "=="], sum)
        .prop_map(|(left, sign, right)| format!("{left} {sign} {right}"));
    comparison.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(l, r)| format!("({l}) and ({r})")),
            (inner.clone(), inner.clone()).prop_map(|(l, r)| format!("({l}) or ({r})")),
            inner.prop_map(|inner| format!("not ({inner})")),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_shown_reads_as_the_same(text in any_condition()) {
        let expr = parse_condition(&text).unwrap();
        let shown = expr.to_string();
        let again = parse_condition(&shown).unwrap();
        // `a and (b and c)` loses its brackets, which changes the tree and not the meaning.
        prop_assert_eq!(again.to_string(), shown);
        prop_assert_eq!(again.truth(&Table), expr.truth(&Table));
    }

    #[test]
    fn no_text_is_more_than_an_error(text in "[A-Za-z0-9%()<>=!&|+*/,. -]{0,60}|\\PC{0,40}") {
        let _ = parse_condition(&text);
    }
}
