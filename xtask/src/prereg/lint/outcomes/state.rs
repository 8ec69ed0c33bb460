//! The combinations of outcomes, and what names mean in one of them.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

use super::{spread, threshold};
use crate::prereg::document::{Document, Read, rungs_in};
use crate::prereg::judge::reads_of;
use crate::prereg::numbers::{is_fraction, neutral, percent};
use crate::stats::expr::{Expr, Names, Number, Relation, Truth};

/// How many combinations are tried; beyond that, as many drawn at random.
pub(super) const MAX_STATES: u64 = 40_000;

/// Something that the conditions can tell apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Variable {
    /// A read, or another number, by name or call.
    Number(String),
    Guard(String),
    Oracle(String),
    Dropped(String),
    Rung(String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Choice {
    Value(f64),
    Yes,
    No,
    Ran,
    Crashed,
    NotFinite,
}

/// Everything that the conditions of a document can tell apart.
pub(super) struct Space<'a> {
    document: &'a Document,
    variables: Vec<(Variable, Vec<Choice>)>,
    /// Reads with the same formula over the same metric are one variable.
    same_as: BTreeMap<&'a str, &'a str>,
    floor: Option<f64>,
}

pub(super) struct State<'a> {
    space: &'a Space<'a>,
    choices: BTreeMap<&'a Variable, Choice>,
    /// Whether reads that are no more than noise count as no effect.
    is_shown: bool,
}

impl<'a> Space<'a> {
    /// `floor`: the noise that is known, as a fraction of the base.
    pub(super) fn new(document: &'a Document, floor: Option<f64>) -> Space<'a> {
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
                        "value" | "lower" | "upper" => Variable::Number(expr.to_string()),
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
        let rules_reads = document.rules.iter().flat_map(|rule| reads_of(&rule.when));
        let read_ids: Vec<String> = rules_reads.map(str::to_owned).collect();
        // What is no more than noise is tried, and what is more.
        for read in document.reads.iter().filter(|read| read_ids.contains(&read.id)) {
            if let (Some(floor), Some(neutral)) = (floor, noisy_neutral(document, read)) {
                let name = same_as.get(read.id.as_str()).copied().unwrap_or(&read.id);
                let bars = thresholds.entry(name.to_owned()).or_default();
                for side in [-1.0, 1.0] {
                    let turn = ((neutral + side * floor) * 1e9).round();
                    // Where every bar lies beyond the noise, what meets it does as well.
                    let is_inside = |bar: &i64| {
                        let apart = side * (*bar as f64 / 1e9 - neutral);
                        (0.0..floor).contains(&apart)
                    };
                    if bars.iter().any(is_inside) {
                        bars.insert(turn as i64);
                    }
                }
            }
        }
        for guard in &document.guards {
            if guard.fails.iter().any(|read| read_ids.contains(read)) {
                variables.insert(Variable::Guard(guard.id.clone()));
            }
        }
        for read in document.reads.iter().filter(|read| read_ids.contains(&read.id)) {
            for rung in rungs_in(&read.value) {
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
        Space { document, variables, same_as, floor }
    }

    /// Every combination, or a fixed random choice of them, and how many there are.
    pub(super) fn states(&self) -> (Vec<Vec<usize>>, u64) {
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

    pub(super) fn state<'s>(&'s self, choices: &[usize]) -> State<'s> {
        let choices = self
            .variables
            .iter()
            .zip(choices)
            .map(|((variable, values), at)| (variable, values[*at]))
            .collect();
        State { space: self, choices, is_shown: false }
    }
}

/// What a read would be without any effect, where the noise of the primary read's metric is its own.
fn noisy_neutral(document: &Document, read: &Read) -> Option<f64> {
    let primary = document.primary()?;
    (read.metric == primary.metric).then(|| neutral(&read.value)).flatten()
}

impl State<'_> {
    /// The same with no effect in place of every read that is no more than noise.
    pub(super) fn shown(&self) -> State<'_> {
        State { space: self.space, choices: self.choices.clone(), is_shown: true }
    }

    /// The value of a read as rules see it.
    fn seen(&self, read: &str, value: f64) -> f64 {
        let document = self.space.document;
        let neutral = document.read(read).and_then(|read| noisy_neutral(document, read));
        match (self.is_shown, self.space.floor, neutral) {
            (true, Some(floor), Some(neutral))
                if Relation::AtMost.holds((value - neutral).abs(), floor) =>
            {
                neutral
            }
            _ => value,
        }
    }

    /// The ends of an interval lie on either side of its read.
    fn has_ordered_ends(&self) -> bool {
        let value = |name: String| match self.get(&Variable::Number(name)) {
            Some(Choice::Value(value)) => Some(value),
            _ => None,
        };
        self.space.document.reads.iter().all(|read| {
            let ends = ["lower", "upper"].map(|end| value(format!("{end}({})", read.id)));
            let known = [ends[0], value(read.id.clone()), ends[1]];
            known.into_iter().flatten().is_sorted()
        })
    }

    fn get(&self, variable: &Variable) -> Option<Choice> {
        self.choices.get(variable).copied()
    }

    pub(super) fn is_dropped(&self, item: &str) -> bool {
        self.get(&Variable::Dropped(item.to_owned())) == Some(Choice::Yes)
    }

    pub(super) fn has_crash(&self) -> bool {
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
    pub(super) fn is_consistent(&self) -> bool {
        let document = self.space.document;
        let failed = self.get(&Variable::Number("failed_oracles".to_owned()));
        let surviving = match self.get(&Variable::Number("surviving_items".to_owned())) {
            Some(Choice::Value(count)) => Some(count as usize),
            _ => None,
        };
        if self.nothing_survives() && self.has_crash() {
            return false;
        }
        if !self.has_ordered_ends() {
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
    pub(super) fn describe(&self) -> Vec<String> {
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
                    let of = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
                    let read = of.unwrap_or(name);
                    let is_read = self.space.document.read(read).is_some();
                    if is_read && matches!(self.number(read), Number::Void(_)) {
                        continue;
                    }
                    match self.space.document.read(read) {
                        Some(read) if is_fraction(&read.value) => {
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
            if let Some(why) = rungs_in(&read.value).iter().find_map(|rung| self.void(rung)) {
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
            Some(Choice::Value(value)) => Number::Known(self.seen(name, value)),
            _ => Number::Missing(format!("`{name}` was not tried")),
        }
    }

    fn call_number(&self, function: &str, args: &[String]) -> Number {
        if let [read] = args
            && let Number::Void(why) = self.number(read)
        {
            return Number::Void(why);
        }
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
                let rungs = guard.map(|guard| rungs_in(&guard.value)).unwrap_or_default();
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
