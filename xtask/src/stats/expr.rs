//! The small language in which a ladder's reads, guards, rules and expectations are written.
//!
//! It owns parsing, type checking and three-way evaluation; it knows nothing of rungs or rules. Names
//! are resolved by whoever evaluates, through [`Names`].
//!
//! ```text
//! condition := conjunction ("or" conjunction)*
//! conjunction := negation ("and" negation)*
//! negation := "not" negation | comparison
//! comparison := sum ((">=" | "<=" | ">" | "<" | "==" | "!=") sum)?
//! sum := product (("+" | "-") product)*
//! product := factor (("*" | "/") factor)*
//! factor := "-" factor | number ["%"] | name | name "(" name ("," name)* ")" | "(" condition ")"
//! ```

use std::fmt;

pub(crate) use parse::{parse_condition, parse_number};

mod parse;

/// How far two numbers may differ, relative to the larger, and still be the same number to a
/// comparison: a bar of 2 % is met by 2.04 over 2.00, whatever binary fractions make of it.
const SAME_WITHIN: f64 = 1e-12;

/// An expression, as parsed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    /// A constant; a percentage is kept as its fraction.
    Number {
        /// The value.
        value: f64,
        /// Whether it was written with `%`, so that it is shown that way.
        percent: bool,
    },
    /// A name that stands for a number, or for a condition.
    Name(String),
    /// A function of names, for example `guard(vram)`.
    Call(String, Vec<String>),
    /// The negative of a number.
    Negate(Box<Expr>),
    /// Arithmetic on two numbers.
    Arithmetic(Box<Expr>, Operator, Box<Expr>),
    /// A comparison of two numbers.
    Compare(Box<Expr>, Comparison, Box<Expr>),
    /// Both conditions.
    And(Box<Expr>, Box<Expr>),
    /// Either condition.
    Or(Box<Expr>, Box<Expr>),
    /// The opposite of a condition.
    Not(Box<Expr>),
    /// A condition that always (or never) holds.
    Constant(bool),
}

/// An arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `<`
    Below,
    /// `==`
    Equal,
    /// `!=`
    Unequal,
}

impl Comparison {
    /// Whether the comparison holds between two finite numbers.
    pub(crate) fn holds(self, left: f64, right: f64) -> bool {
        let same = (left - right).abs() <= SAME_WITHIN * left.abs().max(right.abs());
        match self {
            Comparison::AtLeast => same || left > right,
            Comparison::AtMost => same || left < right,
            Comparison::Above => !same && left > right,
            Comparison::Below => !same && left < right,
            Comparison::Equal => same,
            Comparison::Unequal => !same,
        }
    }
}

/// A number that an expression asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Number {
    /// It was measured.
    Known(f64),
    /// It cannot exist, for the reason given: a crashed rung, a read that its guard failed. No
    /// comparison with it holds, nor does the comparison's opposite.
    Void(String),
    /// It should exist and does not, for the reason given. What depends on it cannot be judged.
    Missing(String),
}

/// Whether a condition holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It does not apply, for the reason given.
    Void(String),
    /// It cannot be judged, for the reason given.
    Missing(String),
}

impl Truth {
    /// The truth of a plain condition.
    pub(crate) fn from_bool(holds: bool) -> Truth {
        if holds { Truth::True } else { Truth::False }
    }

    /// The opposite; what does not apply or cannot be judged stays so.
    pub(crate) fn opposite(self) -> Truth {
        match self {
            Truth::True => Truth::False,
            Truth::False => Truth::True,
            other => other,
        }
    }

    /// Both. A false side decides, whatever the other is; else what cannot be judged weighs most.
    pub(crate) fn and(self, other: Truth) -> Truth {
        match (self, other) {
            (Truth::False, _) | (_, Truth::False) => Truth::False,
            (Truth::Missing(why), _) | (_, Truth::Missing(why)) => Truth::Missing(why),
            (Truth::Void(why), _) | (_, Truth::Void(why)) => Truth::Void(why),
            (Truth::True, Truth::True) => Truth::True,
        }
    }

    /// Either. A true side decides.
    pub(crate) fn or(self, other: Truth) -> Truth {
        self.opposite().and(other.opposite()).opposite()
    }
}

/// What names mean where an expression is evaluated.
pub(crate) trait Names {
    /// The number that `name` stands for.
    fn number(&self, name: &str) -> Number;
    /// The number of a call that [`Signature`] declares a number.
    fn call_number(&self, function: &str, args: &[String]) -> Number;
    /// The truth of a call that [`Signature`] declares a condition.
    fn call_truth(&self, function: &str, args: &[String]) -> Truth;
}

/// What an expression yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number.
    Number,
    /// A condition.
    Condition,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Number => "a number",
            Kind::Condition => "a condition",
        })
    }
}

/// The names and functions that may be used in one place, for the type check.
pub(crate) trait Signature {
    /// Checks a name, which always stands for a number.
    fn check_name(&self, name: &str) -> Result<(), String>;
    /// Checks a call and says what it yields.
    fn check_call(&self, function: &str, args: &[String]) -> Result<Kind, String>;
}

impl Expr {
    /// Checks names and types, and says what the expression yields.
    pub(crate) fn check(&self, signature: &dyn Signature) -> Result<Kind, String> {
        let expect = |expr: &Expr, kind: Kind| match expr.check(signature)? {
            found if found == kind => Ok(()),
            found => Err(format!("`{expr}` is {found}, where {kind} is needed")),
        };
        match self {
            Expr::Number { .. } => Ok(Kind::Number),
            Expr::Constant(_) => Ok(Kind::Condition),
            Expr::Name(name) => signature.check_name(name).map(|()| Kind::Number),
            Expr::Call(function, args) => signature.check_call(function, args),
            Expr::Negate(inner) => expect(inner, Kind::Number).map(|()| Kind::Number),
            Expr::Arithmetic(left, _, right) => {
                expect(left, Kind::Number)?;
                expect(right, Kind::Number).map(|()| Kind::Number)
            }
            Expr::Compare(left, _, right) => {
                expect(left, Kind::Number)?;
                expect(right, Kind::Number).map(|()| Kind::Condition)
            }
            Expr::And(left, right) | Expr::Or(left, right) => {
                expect(left, Kind::Condition)?;
                expect(right, Kind::Condition).map(|()| Kind::Condition)
            }
            Expr::Not(inner) => expect(inner, Kind::Condition).map(|()| Kind::Condition),
        }
    }

    /// The number of a checked expression.
    pub(crate) fn number(&self, names: &dyn Names) -> Number {
        match self {
            Expr::Number { value, .. } => Number::Known(*value),
            Expr::Name(name) => names.number(name),
            Expr::Call(function, args) => names.call_number(function, args),
            Expr::Negate(inner) => match inner.number(names) {
                Number::Known(value) => Number::Known(-value),
                other => other,
            },
            Expr::Arithmetic(left, operator, right) => {
                arithmetic(left.number(names), *operator, right.number(names))
            }
            _ => Number::Missing(format!("`{self}` is no number")),
        }
    }

    /// The truth of a checked expression.
    pub(crate) fn truth(&self, names: &dyn Names) -> Truth {
        match self {
            Expr::Constant(holds) => Truth::from_bool(*holds),
            Expr::Call(function, args) => names.call_truth(function, args),
            Expr::Compare(left, comparison, right) => {
                match (left.number(names), right.number(names)) {
                    (Number::Known(left), Number::Known(right)) => {
                        Truth::from_bool(comparison.holds(left, right))
                    }
                    (Number::Missing(why), _) | (_, Number::Missing(why)) => Truth::Missing(why),
                    (Number::Void(why), _) | (_, Number::Void(why)) => Truth::Void(why),
                }
            }
            Expr::And(left, right) => left.truth(names).and(right.truth(names)),
            Expr::Or(left, right) => left.truth(names).or(right.truth(names)),
            Expr::Not(inner) => inner.truth(names).opposite(),
            _ => Truth::Missing(format!("`{self}` is no condition")),
        }
    }

    /// Every clause of a condition: its comparisons and its calls, left to right.
    pub(crate) fn clauses(&self) -> Vec<&Expr> {
        match self {
            Expr::And(left, right) | Expr::Or(left, right) => {
                [left.clauses(), right.clauses()].concat()
            }
            Expr::Not(inner) => inner.clauses(),
            other => vec![other],
        }
    }

    /// The condition with its `index`-th clause (as [`Expr::clauses`] counts) replaced by a constant.
    pub(crate) fn with_clause(&self, index: usize, holds: bool) -> Expr {
        fn replace(expr: &Expr, left_over: &mut Option<usize>, holds: bool) -> Expr {
            match expr {
                Expr::And(left, right) => {
                    let left = replace(left, left_over, holds);
                    Expr::And(Box::new(left), Box::new(replace(right, left_over, holds)))
                }
                Expr::Or(left, right) => {
                    let left = replace(left, left_over, holds);
                    Expr::Or(Box::new(left), Box::new(replace(right, left_over, holds)))
                }
                Expr::Not(inner) => Expr::Not(Box::new(replace(inner, left_over, holds))),
                clause => match left_over {
                    Some(0) => {
                        *left_over = None;
                        Expr::Constant(holds)
                    }
                    Some(n) => {
                        *n -= 1;
                        clause.clone()
                    }
                    None => clause.clone(),
                },
            }
        }
        replace(self, &mut Some(index), holds)
    }

    /// Calls `visit` for this expression and everything within it.
    pub(crate) fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        match self {
            Expr::Negate(inner) | Expr::Not(inner) => inner.walk(visit),
            Expr::Arithmetic(left, _, right)
            | Expr::Compare(left, _, right)
            | Expr::And(left, right)
            | Expr::Or(left, right) => {
                left.walk(visit);
                right.walk(visit);
            }
            Expr::Number { .. } | Expr::Name(_) | Expr::Call(..) | Expr::Constant(_) => {}
        }
    }

    /// The names that it uses as numbers, each once, in the order of their first use.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        self.walk(&mut |expr| {
            if let Expr::Name(name) = expr
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        });
        names
    }
}

fn arithmetic(left: Number, operator: Operator, right: Number) -> Number {
    let (left, right) = match (left, right) {
        (Number::Known(left), Number::Known(right)) => (left, right),
        (Number::Missing(why), _) | (_, Number::Missing(why)) => return Number::Missing(why),
        (Number::Void(why), _) | (_, Number::Void(why)) => return Number::Void(why),
    };
    let value = match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
    };
    if value.is_finite() {
        Number::Known(value)
    } else {
        Number::Missing(format!("{left} {} {right} has no value", operator.sign()))
    }
}

impl Operator {
    fn sign(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::AtLeast => ">=",
            Comparison::AtMost => "<=",
            Comparison::Above => ">",
            Comparison::Below => "<",
            Comparison::Equal => "==",
            Comparison::Unequal => "!=",
        })
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strength = |expr: &Expr| match expr {
            Expr::Or(..) => 0,
            Expr::And(..) => 1,
            Expr::Not(_) => 2,
            Expr::Compare(..) => 3,
            Expr::Arithmetic(_, Operator::Add | Operator::Subtract, _) => 4,
            Expr::Arithmetic(..) => 5,
            _ => 6,
        };
        let own = strength(self);
        // The right side of `-` and `/` needs its brackets even at the same strength.
        let part = |expr: &Expr, least: i32| {
            if strength(expr) < least { format!("({expr})") } else { expr.to_string() }
        };
        match self {
            Expr::Number { value, percent: false } => write!(f, "{value}"),
            Expr::Number { value, percent: true } => {
                // The shortest decimal that reads as this percentage: 0.07 is `7 %`, not 7.000…01.
                let shown = (value * 100.0 * 1e9).round() / 1e9;
                write!(f, "{shown} %")
            }
            Expr::Name(name) => f.write_str(name),
            Expr::Call(function, args) => write!(f, "{function}({})", args.join(", ")),
            Expr::Constant(holds) => f.write_str(if *holds { "always" } else { "never" }),
            Expr::Negate(inner) => write!(f, "-{}", part(inner, 6)),
            Expr::Arithmetic(left, operator, right) => {
                write!(f, "{} {} {}", part(left, own), operator.sign(), part(right, own + 1))
            }
            Expr::Compare(left, comparison, right) => {
                write!(f, "{} {comparison} {}", part(left, 4), part(right, 4))
            }
            Expr::And(left, right) => write!(f, "{} and {}", part(left, own), part(right, own)),
            Expr::Or(left, right) => write!(f, "{} or {}", part(left, own), part(right, own)),
            Expr::Not(inner) => write!(f, "not {}", part(inner, own)),
        }
    }
}

#[cfg(test)]
mod tests;
