//! Plays the rules through: every combination of outcomes that the conditions can tell apart.
//!
//! A read is tried at each threshold that a rule compares it with, between them and beyond them; guards
//! and oracles pass and fail; rungs run, crash and yield NaN. What never changes the result is reported.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

use super::super::document::{Action, Document};
use super::super::expr::{Expr, Names, Number, Truth};
use super::super::judge::percent;
use super::Linter;

/// How many combinations are tried; beyond that, as many drawn at random.
const MAX_STATES: u64 = 40_000;

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

/// Something that the conditions can tell apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Variable {
    /// A read, or another number, by name or call.
    Number(String),
    /// Whether a guard passes.
    Guard(String),
    /// Whether an oracle passes.
    Oracle(String),
    /// Whether an item is out.
    Dropped(String),
    /// How a rung ran.
    Rung(String),
}

/// A value of a variable.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Choice {
    Value(f64),
    Yes,
    No,
    Ran,
    Crashed,
    NotFinite,
}

struct Space<'a> {
    document: &'a Document,
    variables: Vec<(Variable, Vec<Choice>)>,
    /// Reads with the same formula over the same metric are one variable.
    same_as: BTreeMap<&'a str, &'a str>,
}

struct State<'a> {
    space: &'a Space<'a>,
    choices: BTreeMap<&'a Variable, Choice>,
}

/// Reports contradictions, rules that cannot fire, clauses that cannot bind, outcomes without a rule.
pub(super) fn check_outcomes(linter: &mut Linter<'_>) {
    let document = linter.document;
    let space = Space::new(document);
    let rules = &document.rules;
    let mut holds_somewhere = vec![false; rules.len()];
    let mut fires_somewhere = vec![false; rules.len()];
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
            Some(at) => fires_somewhere[at] = true,
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
        for (clause, expr) in rule.when.clauses().iter().enumerate() {
            if rule.when.clauses().len() > 1 && !binds[at][clause] {
                let text = format!("`{expr}` can never bind: the rest of the rule says as much");
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

impl<'a> Space<'a> {
    fn new(document: &'a Document) -> Space<'a> {
        let mut same_as: BTreeMap<&str, &str> = BTreeMap::new();
        for (at, read) in document.reads.iter().enumerate() {
            let twin = document.reads[..at]
                .iter()
                .find(|other| other.metric == read.metric && other.value == read.value);
            if let Some(twin) = twin {
                same_as.insert(&read.id, &twin.id);
            }
        }
        let mut variables: BTreeSet<Variable> = BTreeSet::new();
        let mut thresholds: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        for rule in &document.rules {
            rule.when.walk(&mut |expr| match expr {
                Expr::Name(name) => {
                    let name = same_as.get(name.as_str()).copied().unwrap_or(name);
                    variables.insert(Variable::Number(name.to_owned()));
                }
                Expr::Call(function, args) => {
                    let arg = args.first().cloned().unwrap_or_default();
                    variables.insert(match function.as_str() {
                        "guard" => Variable::Guard(arg),
                        "oracle" => Variable::Oracle(arg),
                        "dropped" => Variable::Dropped(arg),
                        "value" => Variable::Number(expr.to_string()),
                        _ => Variable::Rung(arg),
                    });
                }
                Expr::Compare(left, _, right) => {
                    // Every constant of the comparison is where some number in it may turn.
                    let (mut constants, mut names) = (Vec::new(), Vec::new());
                    for side in [left, right] {
                        side.walk(&mut |inner| match inner {
                            Expr::Number { value, .. } => constants.extend([*value, -*value]),
                            Expr::Name(name) => names.push(
                                same_as.get(name.as_str()).copied().unwrap_or(name).to_owned(),
                            ),
                            Expr::Call(..) => names.push(inner.to_string()),
                            _ => {}
                        });
                    }
                    if let Some((_, constant)) = threshold(expr) {
                        constants = vec![constant];
                    }
                    for name in names {
                        thresholds
                            .entry(name)
                            .or_default()
                            .extend(constants.iter().map(|value| (value * 1e9).round() as i64));
                    }
                }
                _ => {}
            });
        }
        // A guard can fail a read without any rule naming it, and any rung of a read can crash.
        let read_ids: Vec<String> = variables
            .iter()
            .filter_map(|variable| match variable {
                Variable::Number(name) => Some(name.clone()),
                _ => None,
            })
            .collect();
        for guard in &document.guards {
            if guard.fails.iter().any(|read| read_ids.contains(read)) {
                variables.insert(Variable::Guard(guard.id.clone()));
            }
        }
        for read in document.reads.iter().filter(|read| read_ids.contains(&read.id)) {
            for rung in read.value.names() {
                variables.insert(Variable::Rung(rung.to_owned()));
            }
        }
        let choices = |variable: &Variable| match variable {
            Variable::Number(name) if name == "surviving_items" => {
                (0..=document.items.len()).map(|n| Choice::Value(n as f64)).collect()
            }
            Variable::Number(name) if name == "failed_oracles" => {
                (0..=document.oracles.len().min(3)).map(|n| Choice::Value(n as f64)).collect()
            }
            Variable::Number(name) => {
                spread(thresholds.get(name).map(|set| set.iter().copied().collect()))
            }
            Variable::Rung(_) => vec![Choice::Ran, Choice::Crashed, Choice::NotFinite],
            _ => vec![Choice::Yes, Choice::No],
        };
        let variables = variables.into_iter().map(|v| (v.clone(), choices(&v))).collect();
        Space { document, variables, same_as }
    }

    /// Every combination, or a fixed random choice of them, and how many there are.
    fn states(&self) -> (Vec<Vec<usize>>, u64) {
        let total = self
            .variables
            .iter()
            .fold(1_u64, |total, (_, choices)| total.saturating_mul(choices.len() as u64));
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let state = |mut number: u64| {
            self.variables
                .iter()
                .map(|(_, choices)| {
                    let at = (number % choices.len() as u64) as usize;
                    number /= choices.len() as u64;
                    at
                })
                .collect()
        };
        let states = if total <= MAX_STATES {
            (0..total).map(state).collect()
        } else {
            (0..MAX_STATES)
                .map(|_| {
                    (self.variables.iter())
                        .map(|(_, choices)| rng.next_u32() as usize % choices.len())
                        .collect()
                })
                .collect()
        };
        (states, total)
    }

    fn state<'s>(&'s self, choices: &[usize]) -> State<'s> {
        let choices = self
            .variables
            .iter()
            .zip(choices)
            .map(|((variable, values), at)| (variable, values[*at]))
            .collect();
        State { space: self, choices }
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

impl State<'_> {
    fn get(&self, variable: &Variable) -> Option<Choice> {
        self.choices.get(variable).copied()
    }

    fn is_dropped(&self, item: &str) -> bool {
        self.get(&Variable::Dropped(item.to_owned())) == Some(Choice::Yes)
    }

    fn has_crash(&self) -> bool {
        self.choices.values().any(|choice| matches!(choice, Choice::Crashed | Choice::NotFinite))
    }

    fn is_unstable(&self, rung: &str) -> bool {
        matches!(
            self.get(&Variable::Rung(rung.to_owned())),
            Some(Choice::Crashed | Choice::NotFinite)
        )
    }

    fn nothing_survives(&self) -> bool {
        let surviving = self.get(&Variable::Number("surviving_items".to_owned()));
        surviving == Some(Choice::Value(0.0))
    }

    /// Why a rung has no figures, if so.
    fn void(&self, rung: &str) -> Option<String> {
        if self.nothing_survives() {
            return Some("no item survives".to_owned());
        }
        self.is_unstable(rung).then(|| format!("{rung} is unstable"))
    }

    /// An oracle that an item failed has dropped the item, and the like.
    fn is_consistent(&self) -> bool {
        let document = self.space.document;
        let failed = self.get(&Variable::Number("failed_oracles".to_owned()));
        let surviving = match self.get(&Variable::Number("surviving_items".to_owned())) {
            Some(Choice::Value(count)) => Some(count as usize),
            _ => None,
        };
        if self.nothing_survives() && self.has_crash() {
            return false;
        }
        let dropped = document.items.iter().filter(|item| self.is_dropped(&item.id)).count();
        if surviving.is_some_and(|count| count + dropped > document.items.len()) {
            return false;
        }
        if failed == Some(Choice::Value(0.0))
            && document
                .oracles
                .iter()
                .any(|o| self.get(&Variable::Oracle(o.id.clone())) == Some(Choice::No))
        {
            return false;
        }
        document.items.iter().all(|item| {
            let fails = item
                .oracles
                .iter()
                .any(|oracle| self.get(&Variable::Oracle(oracle.clone())) == Some(Choice::No));
            let out = self.get(&Variable::Dropped(item.id.clone()));
            !(fails && (out == Some(Choice::No) || surviving == Some(document.items.len())))
        })
    }

    /// The state in words, without what is as it should be.
    fn describe(&self) -> Vec<String> {
        let mut told = Vec::new();
        for (variable, choice) in &self.choices {
            told.push(match (variable, choice) {
                // Some item surviving is the ordinary case, and how many is rarely the point.
                (Variable::Number(name), Choice::Value(value))
                    if name == "surviving_items" && *value > 0.0 =>
                {
                    continue;
                }
                (Variable::Number(name), Choice::Value(value)) => {
                    let is_read = self.space.document.read(name).is_some();
                    if is_read && matches!(self.number(name), Number::Void(_)) {
                        continue;
                    }
                    match self.space.document.read(name) {
                        Some(read) if super::super::judge::is_fraction(&read.value) => {
                            format!("{name} = {}", percent(*value))
                        }
                        _ => format!("{name} = {value}"),
                    }
                }
                (Variable::Guard(name), Choice::No) => format!("guard {name} fails"),
                (Variable::Oracle(name), Choice::No) => format!("oracle {name} fails"),
                (Variable::Dropped(name), Choice::Yes) => format!("{name} is dropped"),
                (Variable::Rung(name), Choice::Crashed) => format!("{name} crashes"),
                (Variable::Rung(name), Choice::NotFinite) => format!("{name} yields NaN"),
                _ => continue,
            });
        }
        told
    }
}

impl Names for State<'_> {
    fn number(&self, name: &str) -> Number {
        let document = self.space.document;
        if let Some(read) = document.read(name) {
            if let Some(why) = read.value.names().iter().find_map(|rung| self.void(rung)) {
                return Number::Void(why);
            }
            for guard in document.guards.iter().filter(|guard| guard.fails.contains(&read.id)) {
                if self.get(&Variable::Guard(guard.id.clone())) == Some(Choice::No) {
                    return Number::Void(format!("guard {} fails", guard.id));
                }
            }
        }
        if name == "noise" && self.nothing_survives() {
            return Number::Void("no item survives".to_owned());
        }
        let name = self.space.same_as.get(name).copied().unwrap_or(name);
        match self.get(&Variable::Number(name.to_owned())) {
            Some(Choice::Value(value)) => Number::Known(value),
            _ => Number::Missing(format!("`{name}` was not tried")),
        }
    }

    fn call_number(&self, function: &str, args: &[String]) -> Number {
        if let Some(why) = args.get(1).and_then(|rung| self.void(rung)) {
            return Number::Void(why);
        }
        self.number(&Expr::Call(function.to_owned(), args.to_vec()).to_string())
    }

    fn call_truth(&self, function: &str, args: &[String]) -> Truth {
        let arg = args.first().cloned().unwrap_or_default();
        let rung = self.get(&Variable::Rung(arg.clone()));
        let is = |variable: Variable| Truth::from_bool(self.get(&variable) == Some(Choice::Yes));
        match function {
            "guard" => {
                let guard = self.space.document.guards.iter().find(|guard| guard.id == arg);
                let rungs = guard.map(|guard| guard.value.names()).unwrap_or_default();
                match rungs.iter().find_map(|rung| self.void(rung)) {
                    Some(why) => Truth::Void(why),
                    None => is(Variable::Guard(arg)),
                }
            }
            "oracle" => is(Variable::Oracle(arg)),
            "dropped" => is(Variable::Dropped(arg)),
            "crashed" => Truth::from_bool(rung == Some(Choice::Crashed)),
            "nan" => Truth::from_bool(rung == Some(Choice::NotFinite)),
            _ => Truth::from_bool(rung != Some(Choice::Ran)),
        }
    }
}
