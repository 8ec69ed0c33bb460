//! How numbers read in reports and messages.

use crate::stats::expr::{Expr, Names, Number, Operator, Relation, Truth};

/// A number as people write it: `1e-3` rather than `0.001`, and never `1e0`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-2..1e6).contains(&size) {
        format!("{value:e}")
    } else {
        format!("{value}")
    }
}

/// A number with at least four significant digits, and whole numbers whole.
pub(crate) fn amount(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e15 {
        return format!("{value}");
    }
    let before_point = if size >= 1.0 { size.log10().floor() as i32 + 1 } else { 0 };
    let decimals = if size < 1e-4 {
        9
    } else {
        (4 - before_point).max(1) as usize + usize::from(size < 0.1) * 2
    };
    format!("{value:.decimals$}")
}

/// A fraction as a percentage with its sign: `+1.90 %`, `−7.29 %`.
pub(crate) fn percent(value: f64) -> String {
    let value = value * 100.0;
    // Rounding first, so that −0.001 does not read as −0.00.
    let rounded = (value * 100.0).round() / 100.0;
    let sign = if rounded < 0.0 { "−" } else { "+" };
    format!("{sign}{:.2} %", rounded.abs())
}

/// Whether a formula is a ratio, so that its value reads best as a percentage.
pub(crate) fn is_fraction(formula: &Expr) -> bool {
    matches!(formula, Expr::Arithmetic(_, Operator::Divide, _))
        || matches!(formula, Expr::Arithmetic(_, Operator::Subtract, one)
            if matches!(**one, Expr::Number { value, .. } if value == 1.0))
}

/// What a formula over rungs yields where all of them are alike: 0 for a relative change, 1 for a ratio.
/// `None` where that depends on their size.
pub(crate) fn neutral(formula: &Expr) -> Option<f64> {
    let at = |size: f64| match formula.number(&Alike(size)) {
        Number::Known(value) => Some(value),
        Number::Void(_) | Number::Missing(_) => None,
    };
    let (one, ten) = (at(1.0)?, at(10.0)?);
    let is_scale_free = Relation::Equal.holds(one, ten);
    // A plain difference yields 0 as well, and has the metric's unit.
    (is_scale_free && is_fraction(formula)).then_some(one)
}

/// Every rung reads the same.
struct Alike(f64);

impl Names for Alike {
    fn number(&self, _: &str) -> Number {
        Number::Known(self.0)
    }

    fn call_number(&self, _: &str, _: &[String]) -> Number {
        Number::Known(self.0)
    }

    fn call_truth(&self, function: &str, _: &[String]) -> Truth {
        Truth::Missing(format!("no condition `{function}` here"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::expr::parse_condition;

    #[test]
    fn amounts_keep_four_digits() {
        for (value, shown) in [
            (2.251, "2.251"),
            (42_940.0, "42940"),
            (12.345_67, "12.35"),
            (1234.56, "1234.6"),
            (0.968, "0.9680"),
            (0.0, "0"),
        ] {
            assert_eq!(amount(value), shown);
        }
    }

    #[test]
    fn what_a_formula_yields_of_equals_is_known_where_its_size_does_not_matter() {
        let of = |text: &str| neutral(&parse_condition(text).unwrap());
        assert_eq!(of("(A - C) / A"), Some(0.0));
        assert_eq!(of("B / A"), Some(1.0));
        assert_eq!(of("B / A - 1"), Some(0.0));
        assert_eq!(of("(C - value(lifetime, A)) / value(lifetime, A)"), Some(0.0));
        assert_eq!(of("A - B"), None);
        assert_eq!(of("B"), None);
    }

    #[test]
    fn a_percentage_has_a_sign_and_no_negative_zero() {
        assert_eq!(percent(0.019), "+1.90 %");
        assert_eq!(percent(-0.0729), "−7.29 %");
        assert_eq!(percent(-0.00001), "+0.00 %");
    }
}
