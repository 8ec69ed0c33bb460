//! Plays the rules through: every combination of outcomes that the conditions can tell apart.
//!
//! A read is tried at each threshold that a rule compares it with, between them and beyond them; guards
//! and oracles pass and fail; rungs run, crash and yield NaN. What never changes the result is reported.

use super::Linter;
use crate::prereg::document::Action;
use crate::stats::expr::{Expr, Truth};

use state::{Choice, MAX_STATES, Space, State};

mod state;

/// The name and the constant of a comparison of the two.
pub(super) fn threshold(clause: &Expr) -> Option<(&str, f64)> {
    let constant = |expr: &Expr| match expr {
        Expr::Number { value, .. } => Some(*value),
        Expr::Negate(inner) => match **inner {
            Expr::Number { value, .. } => Some(-value),
            _ => None,
        },
        _ => None,
    };
    let Expr::Compare(left, _, right) = clause else { return None };
    match (&**left, &**right) {
        (Expr::Name(name), other) | (other, Expr::Name(name)) => Some((name, constant(other)?)),
        _ => None,
    }
}

/// Reports contradictions, rules that cannot fire, clauses that cannot bind, outcomes without a rule.
pub(super) fn check_outcomes(linter: &mut Linter<'_>) {
    let document = linter.document;
    let space = Space::new(document, linter.noise_floor());
    let rules = &document.rules;
    let mut holds_somewhere = vec![false; rules.len()];
    let mut fires_somewhere = vec![false; rules.len()];
    let mut shown_somewhere = vec![false; rules.len()];
    let mut binds: Vec<Vec<bool>> =
        rules.iter().map(|rule| vec![false; rule.when.clauses().len()]).collect();
    let variants: Vec<Vec<[Expr; 2]>> = rules
        .iter()
        .map(|rule| {
            (0..rule.when.clauses().len())
                .map(|at| [true, false].map(|holds| rule.when.with_clause(at, holds)))
                .collect()
        })
        .collect();
    let mut uncovered: Option<Vec<String>> = None;
    let mut uncovered_crash: Option<Vec<String>> = None;
    let (states, total) = space.states();
    for choices in &states {
        let state = space.state(choices);
        if !state.is_consistent() {
            continue;
        }
        let mut fired = None;
        for (at, rule) in rules.iter().enumerate() {
            let holds = rule.when.truth(&state) == Truth::True;
            holds_somewhere[at] |= holds;
            for (clause, variants) in variants[at].iter().enumerate() {
                binds[at][clause] =
                    binds[at][clause] || clause_binds(&rule.when, clause, variants, &state, holds);
            }
            let repeated = matches!(&rule.action, Action::Drop(item) if state.is_dropped(item));
            if holds && fired.is_none() && !repeated {
                fired = Some(at);
            }
        }
        match fired {
            Some(at) => {
                fires_somewhere[at] = true;
                shown_somewhere[at] = shown_somewhere[at]
                    || !matches!(rules[at].action, Action::Land(_) | Action::LandAll)
                    || rules[at].when.truth(&state.shown()) == Truth::True;
            }
            None => {
                let slot = if state.has_crash() { &mut uncovered_crash } else { &mut uncovered };
                let told = state.describe();
                if slot.as_ref().is_none_or(|before| told.len() < before.len()) {
                    *slot = Some(told);
                }
            }
        }
    }
    for (at, rule) in rules.iter().enumerate() {
        if !holds_somewhere[at] {
            let text = format!("`{}` contradicts itself: it never holds", rule.when);
            linter.error("contradiction", &rule.id, text);
            continue;
        }
        if !fires_somewhere[at] {
            let text = "it can never fire: the rules before it take every case";
            linter.error("unreachable", &rule.id, text);
        }
        if fires_somewhere[at] && !shown_somewhere[at] {
            let text =
                "it can never land anything: wherever it holds, what it reads is within the noise";
            linter.error("never-shown", &rule.id, text);
        }
        for (clause, expr) in rule.when.clauses().iter().enumerate() {
            if rule.when.clauses().len() > 1 && !binds[at][clause] {
                let text =
                    format!("`{expr}` can never matter: the rest of the rule already says so");
                linter.error("idle-clause", &rule.id, text);
            }
        }
    }
    if let Some(told) = uncovered {
        linter.error("uncovered", "rules", format!("no rule covers: {}", told.join(", ")));
    }
    if let Some(told) = uncovered_crash {
        let text = format!("no rule covers: {}; the run would end undecided", told.join(", "));
        linter.warning("uncovered-crash", "rules", text);
    }
    if total > MAX_STATES {
        let text =
            format!("{MAX_STATES} of {total} combinations of outcomes were tried, at random");
        linter.warning("too-many-outcomes", "rules", text);
    }
}

/// Values at, between and beyond the thresholds (in billionths).
fn spread(thresholds: Option<Vec<i64>>) -> Vec<Choice> {
    let sorted: Vec<f64> =
        thresholds.unwrap_or_default().into_iter().map(|value| value as f64 / 1e9).collect();
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return vec![Choice::Value(0.0)];
    };
    let pad = (last - first).max(first.abs()).max(last.abs()).max(0.01);
    let mut values = vec![first - pad];
    for (at, value) in sorted.iter().enumerate() {
        values.push(*value);
        values.push(sorted.get(at + 1).map_or(value + pad, |next| f64::midpoint(*value, *next)));
    }
    values.into_iter().map(Choice::Value).collect()
}

/// Whether the clause matters to its rule in this state: as a part of `and`, replaced by what always
/// holds; as a part of `or`, by what never does.
fn clause_binds(
    when: &Expr,
    clause: usize,
    variants: &[Expr; 2],
    state: &State<'_>,
    holds: bool,
) -> bool {
    let at = usize::from(joined_by_or(when, clause));
    // Under `not`, `always` turns into what never holds, so both replacements are looked at.
    let negated = is_negated(when, clause);
    let at = if negated { 1 - at } else { at };
    (variants[at].truth(state) == Truth::True) != holds
}

fn path_to(when: &Expr, clause: usize) -> Vec<&Expr> {
    fn find<'a>(expr: &'a Expr, left_over: &mut usize, path: &mut Vec<&'a Expr>) -> bool {
        path.push(expr);
        let found = match expr {
            Expr::And(left, right) | Expr::Or(left, right) => {
                find(left, left_over, path) || find(right, left_over, path)
            }
            Expr::Not(inner) => find(inner, left_over, path),
            _ if *left_over == 0 => return true,
            _ => {
                *left_over -= 1;
                false
            }
        };
        if !found {
            path.pop();
        }
        found
    }
    let mut path = Vec::new();
    find(when, &mut { clause }, &mut path);
    path
}

fn is_negated(when: &Expr, clause: usize) -> bool {
    path_to(when, clause).iter().filter(|expr| matches!(expr, Expr::Not(_))).count() % 2 == 1
}

/// Whether the nearest connective is an `or`, seen through the negations around it.
fn joined_by_or(when: &Expr, clause: usize) -> bool {
    let path = path_to(when, clause);
    let nearest = path.iter().rposition(|expr| matches!(expr, Expr::And(..) | Expr::Or(..)));
    nearest.is_some_and(|at| {
        let outer = path[..at].iter().filter(|expr| matches!(expr, Expr::Not(_))).count();
        matches!(path[at], Expr::Or(..)) ^ (outer % 2 == 1)
    })
}
