//! The small language of conditions: the gates of a comparison, the reads, guards, rules and
//! expectations of a ladder.
//!
//! It owns parsing, type checking, three-way evaluation and what it means to meet a bar
//! ([`Relation::holds`]); it knows nothing of legs, rungs or rules. Names are resolved by whoever
//! evaluates, through [`Names`].
//!
//! ```text
//! condition := conjunction ("or" conjunction)*
//! conjunction := negation ("and" negation)*
//! negation := "not" negation | comparison
//! comparison := sum ((">=" | "<=" | ">" | "<" | "==" | "!=") sum)?
//! sum := product (("+" | "-") product)*
//! product := factor (("*" | "/") factor)*
//! factor := ("-" | "+") factor | number ["%"] | name | name "(" name ("," name)* ")" | "(" condition ")"
//! ```

use std::fmt;

pub(crate) use parse::{parse_condition, parse_number};

mod parse;

/// How far two numbers may differ, relative to the larger, and still be the same number to a
/// comparison: a bar of 2 % is met by 2.04 over 2.00, whatever binary fractions make of it.
const SAME_WITHIN: f64 = 1e-12;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    /// A constant; a percentage is kept as its fraction.
    Number {
        value: f64,
        /// Whether it was written with `%`, so that it is shown that way.
        percent: bool,
    },
    /// A name that stands for a number, or for a condition.
    Name(String),
    /// A function of names, for example `guard(vram)`.
    Call(String, Vec<String>),
    Negate(Box<Expr>),
    Arithmetic(Box<Expr>, Operator, Box<Expr>),
    Compare(Box<Expr>, Relation, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    /// A condition that always (or never) holds.
    Constant(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// How two numbers are compared, wherever a bar is written: in a gate, a rule, a guard, a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    AtLeast,
    AtMost,
    Above,
    Below,
    Equal,
    Unequal,
}

impl Relation {
    /// Whether it holds between two finite numbers. The only place that decides at a bar.
    pub(crate) fn holds(self, left: f64, right: f64) -> bool {
        let same = (left - right).abs() <= SAME_WITHIN * left.abs().max(right.abs());
        match self {
            Relation::AtLeast => same || left > right,
            Relation::AtMost => same || left < right,
            Relation::Above => !same && left > right,
            Relation::Below => !same && left < right,
            Relation::Equal => same,
            Relation::Unequal => !same,
        }
    }
}

/// A number that an expression asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Number {
    Known(f64),
    /// It cannot exist, for the reason given: a crashed rung, a read that its guard failed. No
    /// comparison with it holds, nor does the comparison's opposite.
    Void(String),
    /// It should exist and does not, for the reason given. What depends on it cannot be judged.
    Missing(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Truth {
    True,
    False,
    /// It does not apply, for the reason given.
    Void(String),
    /// It cannot be judged, for the reason given.
    Missing(String),
}

impl Truth {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
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

    /// The value of a constant such as `1e-3`, `5 %` or `-2`, and whether it is a percentage.
    pub(crate) fn constant(&self) -> Option<(f64, bool)> {
        match self {
            Expr::Number { value, percent } => Some((*value, *percent)),
            Expr::Negate(inner) => inner.constant().map(|(value, percent)| (-value, percent)),
            _ => None,
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
            _ => Number::Missing(format!("`{self}` is not a number")),
        }
    }

    /// The truth of a checked expression.
    pub(crate) fn truth(&self, names: &dyn Names) -> Truth {
        match self {
            Expr::Constant(holds) => Truth::from_bool(*holds),
            Expr::Call(function, args) => names.call_truth(function, args),
            Expr::Compare(left, relation, right) => {
                match (left.number(names), right.number(names)) {
                    (Number::Known(left), Number::Known(right)) => {
                        Truth::from_bool(relation.holds(left, right))
                    }
                    (Number::Missing(why), _) | (_, Number::Missing(why)) => Truth::Missing(why),
                    (Number::Void(why), _) | (_, Number::Void(why)) => Truth::Void(why),
                }
            }
            Expr::And(left, right) => left.truth(names).and(right.truth(names)),
            Expr::Or(left, right) => left.truth(names).or(right.truth(names)),
            Expr::Not(inner) => inner.truth(names).opposite(),
            _ => Truth::Missing(format!("`{self}` is not a condition")),
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

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Relation::AtLeast => ">=",
            Relation::AtMost => "<=",
            Relation::Above => ">",
            Relation::Below => "<",
            Relation::Equal => "==",
            Relation::Unequal => "!=",
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
            Expr::Compare(left, relation, right) => {
                write!(f, "{} {relation} {}", part(left, 4), part(right, 4))
            }
            Expr::And(left, right) => write!(f, "{} and {}", part(left, own), part(right, own)),
            Expr::Or(left, right) => write!(f, "{} or {}", part(left, own), part(right, own)),
            Expr::Not(inner) => write!(f, "not {}", part(inner, own)),
        }
    }
}

#[cfg(test)]
mod tests;
