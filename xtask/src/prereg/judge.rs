//! What the samples say so far: oracles, dropped items, reads, guards, the rule that fires.
//!
//! It is a function of the frozen document and the raw samples alone, so that a report, a resumed run
//! and a run that was never interrupted come to the same end. It writes and prints nothing.

use serde::Serialize;

use super::compose::{Composed, Dropped, RungState, plan_rungs, with_dependents};
use super::document::{Action, Document, Landed, Rule};
use super::numbers::{amount, is_fraction, percent};
use super::oracle::{TrialOutcome, TrialVerdict, item_trials, judge_trial, rung_trials};
use super::sample::{Judging, Record, total_cost_s};
use crate::stats::expr::{Expr, Number, Truth};

pub(crate) use names::{Conditions, Numbers, ReadsAs};
pub(crate) use round::{Round, launches};

mod base;
mod certainty;
mod names;
mod round;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Standing {
    /// Every trial that could be judged, in order.
    pub(crate) trials: Vec<TrialOutcome>,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) ladder: Vec<Composed>,
    /// Passes over the ladder that are complete, with what was judged.
    pub(crate) rounds: Vec<Round>,
    pub(crate) phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(crate) enum Phase {
    ItemOracles,
    RungOracles,
    /// A pass over the ladder is under way.
    Ladder {
        round: u32,
    },
    Decided {
        rule: String,
        landing: Landing,
    },
    /// A rule that lands something holds, but rests on a read that is no more than noise.
    NotShown {
        rule: String,
        why: String,
    },
    /// Everything was measured and no rule fired, or nothing can be judged.
    Undecided {
        why: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Landing {
    pub(crate) land: Vec<String>,
    pub(crate) park: Vec<String>,
    /// Of each item that lands under a condition, what that came to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) told: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RuleOutcome {
    pub(crate) rule: String,
    pub(crate) result: RuleResult,
    pub(crate) why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleResult {
    Fired,
    /// It holds and would land something, but rests on a read that is no more than noise.
    NotShown,
    DoesNotHold,
    /// Its condition is about what does not exist: a crashed rung, a failed read.
    DoesNotApply,
    /// It cannot be judged, so no later rule may be taken.
    CannotBeJudged,
    NotReached,
}

impl Phase {
    /// Whether nothing is left to measure.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Phase::Decided { .. } | Phase::NotShown { .. } | Phase::Undecided { .. })
    }
}

impl Standing {
    pub(crate) fn last_round(&self) -> Option<&Round> {
        self.rounds.last()
    }
}

pub(crate) fn judge(document: &Document, records: &[Record]) -> Standing {
    let mut standing = Standing {
        trials: Vec::new(),
        dropped: Vec::new(),
        ladder: plan_rungs(document, &[]),
        rounds: Vec::new(),
        phase: Phase::ItemOracles,
    };
    let judging = Judging::of(records);
    let fault = match judging {
        Judging::WithNoise => base::find_base_fault(document, records),
        Judging::ByValue => None,
    };
    if let Some(why) = &fault {
        standing.phase = Phase::Undecided { why: why.clone() };
    }
    let open = |phase: Phase| match &fault {
        Some(why) => Phase::Undecided { why: why.clone() },
        None => phase,
    };
    let trials = item_trials(document);
    standing.trials =
        trials.iter().filter_map(|trial| judge_trial(document, trial, records)).collect();
    if standing.trials.len() < trials.len() {
        return standing;
    }
    standing.dropped = with_dependents(document, dropped_by_oracles(&standing.trials));
    standing.ladder = plan_rungs(document, &standing.dropped);

    standing.phase = open(Phase::RungOracles);
    let ladder = standing.ladder.clone();
    let items_of = |id: &str| {
        ladder.iter().find(|rung| rung.id == id).map(|rung| rung.items.clone()).unwrap_or_default()
    };
    let trials = rung_trials(document, items_of);
    let outcomes: Vec<TrialOutcome> =
        trials.iter().filter_map(|trial| judge_trial(document, trial, records)).collect();
    let complete = outcomes.len() == trials.len();
    standing.trials.extend(outcomes);
    if !complete {
        return standing;
    }

    for number in 1.. {
        standing.phase = open(Phase::Ladder { round: number });
        let Some(mut round) =
            round::read_round(document, &standing.ladder, records, number, judging)
        else {
            return standing;
        };
        if fault.is_some() {
            standing.rounds.push(round);
            return standing;
        }
        let conditions = Conditions {
            document,
            trials: &standing.trials,
            dropped: &standing.dropped,
            round: &round,
            cost_min: total_cost_s(records) / 60.0,
            reads: ReadsAs::Judged,
        };
        let (outcomes, fired) = take_rule(document, &conditions, &standing.dropped);
        let landing = match fired {
            Taken::Fired(at) => {
                plan_landing(&document.rules[at].action, &conditions, &standing.dropped)
            }
            _ => Landing::default(),
        };
        round.rules = outcomes;
        standing.rounds.push(round);
        match fired {
            Taken::Fired(index) => {
                let rule = &document.rules[index];
                if let Action::Drop(item) = &rule.action {
                    standing.dropped.push(Dropped {
                        item: item.clone(),
                        after_round: number,
                        why: format!("rule `{}`", rule.id),
                    });
                    standing.dropped = with_dependents(document, standing.dropped);
                    standing.ladder = plan_rungs(document, &standing.dropped);
                    continue;
                }
                standing.phase = Phase::Decided { rule: rule.id.clone(), landing };
            }
            Taken::NotShown { index, why } => {
                let rule = document.rules[index].id.clone();
                standing.phase = Phase::NotShown { rule, why };
            }
            Taken::None => {
                standing.phase =
                    Phase::Undecided { why: "no rule covers what was measured".to_owned() };
            }
            Taken::CannotBeJudged(why) => standing.phase = Phase::Undecided { why },
        }
        break;
    }
    standing
}

fn dropped_by_oracles(trials: &[TrialOutcome]) -> Vec<Dropped> {
    let mut dropped: Vec<Dropped> = Vec::new();
    for trial in trials.iter().filter(|trial| trial.verdict == TrialVerdict::Failed) {
        if let Some(item) = &trial.item
            && !dropped.iter().any(|drop| drop.item == *item)
        {
            dropped.push(Dropped {
                item: item.clone(),
                after_round: 0,
                why: format!(
                    "oracle {} measured {}; its bound is {}",
                    trial.oracle, trial.measured, trial.bound
                ),
            });
        }
    }
    dropped
}

/// What the rules come to.
enum Taken {
    Fired(usize),
    NotShown { index: usize, why: String },
    CannotBeJudged(String),
    None,
}

/// Goes through the rules in order: how each came out, and the one that fires, or why none may.
fn take_rule(
    document: &Document,
    conditions: &Conditions<'_>,
    dropped: &[Dropped],
) -> (Vec<RuleOutcome>, Taken) {
    let mut outcomes = Vec::new();
    let mut end: Option<Taken> = None;
    for (index, rule) in document.rules.iter().enumerate() {
        let (result, why) = if end.is_some() {
            (RuleResult::NotReached, String::new())
        } else if let Action::Drop(item) = &rule.action
            && dropped.iter().any(|drop| drop.item == *item)
        {
            (RuleResult::DoesNotApply, format!("{item} is already out"))
        } else {
            match rule.when.truth(conditions) {
                Truth::True => match find_unshown(rule, conditions) {
                    Some(why) => (RuleResult::NotShown, why),
                    None => (RuleResult::Fired, conditions.explain(&rule.when)),
                },
                Truth::False => (RuleResult::DoesNotHold, conditions.explain(&rule.when)),
                Truth::Void(why) => (RuleResult::DoesNotApply, why),
                Truth::Missing(why) => (RuleResult::CannotBeJudged, why),
            }
        };
        match result {
            RuleResult::Fired => end = Some(Taken::Fired(index)),
            RuleResult::NotShown => end = Some(Taken::NotShown { index, why: why.clone() }),
            RuleResult::CannotBeJudged => {
                let why = format!("rule `{}` cannot be judged: {why}", rule.id);
                end = Some(Taken::CannotBeJudged(why));
            }
            _ => {}
        }
        outcomes.push(RuleOutcome { rule: rule.id.clone(), result, why });
    }
    (outcomes, end.unwrap_or(Taken::None))
}

/// Why a rule that holds is not shown, in words; `None` where it lands nothing, or holds as well
/// without the reads that are no more than noise.
fn find_unshown(rule: &Rule, conditions: &Conditions<'_>) -> Option<String> {
    if !matches!(rule.action, Action::LandAll | Action::Land(_)) {
        return None;
    }
    let shown = Conditions { reads: ReadsAs::Shown, ..*conditions };
    if rule.when.truth(&shown) == Truth::True {
        return None;
    }
    let reads = reads_of(&rule.when);
    let unshown = conditions.round.reads.iter().filter(|read| reads.contains(&read.id.as_str()));
    let told: Vec<String> = unshown
        .filter_map(|read| {
            let formula = &conditions.document.read(&read.id)?.value;
            let show = |value| if is_fraction(formula) { percent(value) } else { amount(value) };
            let why = read.within_noise(show)?;
            let Number::Known(value) = read.value.0 else { return None };
            Some(format!("{} = {} is within the noise, {why}", read.id, show(value)))
        })
        .collect();
    Some(told.join("; "))
}

/// The reads that a condition uses, each once.
pub(crate) fn reads_of(condition: &Expr) -> Vec<&str> {
    let mut reads = condition.names();
    condition.walk(&mut |expr| {
        if let Expr::Call(function, args) = expr
            && ["lower", "upper"].contains(&function.as_str())
            && !reads.contains(&args[0].as_str())
        {
            reads.push(&args[0]);
        }
    });
    reads
}

/// Which items an action lands and which it parks; one that was dropped never lands.
fn plan_landing(action: &Action, conditions: &Conditions<'_>, dropped: &[Dropped]) -> Landing {
    let is_out = |id: &str| dropped.iter().any(|drop| drop.item == id);
    let mut told = Vec::new();
    let mut lands = |landed: &Landed| {
        let Some(condition) = &landed.only_if else { return true };
        let holds = condition.truth(conditions) == Truth::True;
        told.push(format!("{landed}: {}", conditions.explain(condition)));
        holds
    };
    let (land, park) =
        conditions.document.items.iter().map(|item| item.id.clone()).partition(|id| {
            !is_out(id)
                && match action {
                    Action::LandAll => true,
                    Action::Land(items) => {
                        items.iter().find(|landed| landed.item == *id).is_some_and(&mut lands)
                    }
                    Action::Park | Action::Drop(_) => false,
                }
        });
    Landing { land, park, told }
}

pub(crate) fn is_measured(rung: &Composed) -> bool {
    !matches!(rung.state, RungState::Void(_))
}

#[cfg(test)]
mod tests;
