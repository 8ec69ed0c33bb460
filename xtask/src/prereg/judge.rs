//! What the samples say so far: oracles, dropped items, reads, guards, the rule that fires.
//!
//! It is a function of the frozen document and the raw samples alone, so that a report, a resumed run
//! and a run that was never interrupted come to the same end. It writes and prints nothing.

use serde::Serialize;

use super::compose::{Composed, Dropped, RungState, plan_rungs, with_dependents};
use super::document::{Action, Document};
use super::oracle::{TrialOutcome, TrialVerdict, item_trials, judge_trial, rung_trials};
use super::sample::{Record, total_cost_s};
use crate::stats::expr::Truth;

pub(crate) use names::{Conditions, Numbers, ReadsAs};
pub(crate) use round::{Round, launches};

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
    /// Everything was measured and no rule fired.
    Undecided {
        why: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Landing {
    pub(crate) land: Vec<String>,
    pub(crate) park: Vec<String>,
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
    DoesNotHold,
    /// Its condition is about what does not exist: a crashed rung, a failed read.
    DoesNotApply,
    /// It cannot be judged, so no later rule may be taken.
    CannotBeJudged,
    NotReached,
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
    let trials = item_trials(document);
    standing.trials =
        trials.iter().filter_map(|trial| judge_trial(document, trial, records)).collect();
    if standing.trials.len() < trials.len() {
        return standing;
    }
    standing.dropped = with_dependents(document, dropped_by_oracles(&standing.trials));
    standing.ladder = plan_rungs(document, &standing.dropped);

    standing.phase = Phase::RungOracles;
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
        standing.phase = Phase::Ladder { round: number };
        let Some(mut round) = round::read_round(document, &standing.ladder, records, number) else {
            return standing;
        };
        let conditions = Conditions {
            document,
            trials: &standing.trials,
            dropped: &standing.dropped,
            round: &round,
            cost_min: total_cost_s(records) / 60.0,
            reads: ReadsAs::Judged,
        };
        let (outcomes, fired) = take_rule(document, &conditions, &standing.dropped);
        round.rules = outcomes;
        standing.rounds.push(round);
        match fired {
            Ok(Some(index)) => {
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
                let landing = plan_landing(document, &rule.action, &standing.dropped);
                standing.phase = Phase::Decided { rule: rule.id.clone(), landing };
            }
            Ok(None) => {
                standing.phase =
                    Phase::Undecided { why: "no rule covers what was measured".to_owned() };
            }
            Err(why) => standing.phase = Phase::Undecided { why },
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

/// Goes through the rules in order: how each came out, and the one that fires, or why none may.
fn take_rule(
    document: &Document,
    conditions: &Conditions<'_>,
    dropped: &[Dropped],
) -> (Vec<RuleOutcome>, Result<Option<usize>, String>) {
    let mut outcomes = Vec::new();
    let mut end: Option<Result<Option<usize>, String>> = None;
    for (index, rule) in document.rules.iter().enumerate() {
        let (result, why) = if end.is_some() {
            (RuleResult::NotReached, String::new())
        } else if let Action::Drop(item) = &rule.action
            && dropped.iter().any(|drop| drop.item == *item)
        {
            (RuleResult::DoesNotApply, format!("{item} is already out"))
        } else {
            match rule.when.truth(conditions) {
                Truth::True => (RuleResult::Fired, conditions.explain(&rule.when)),
                Truth::False => (RuleResult::DoesNotHold, conditions.explain(&rule.when)),
                Truth::Void(why) => (RuleResult::DoesNotApply, why),
                Truth::Missing(why) => (RuleResult::CannotBeJudged, why),
            }
        };
        match result {
            RuleResult::Fired => end = Some(Ok(Some(index))),
            RuleResult::CannotBeJudged => {
                end = Some(Err(format!("rule `{}` cannot be judged: {why}", rule.id)));
            }
            _ => {}
        }
        outcomes.push(RuleOutcome { rule: rule.id.clone(), result, why });
    }
    (outcomes, end.unwrap_or(Ok(None)))
}

/// Which items an action lands and which it parks; one that was dropped never lands.
fn plan_landing(document: &Document, action: &Action, dropped: &[Dropped]) -> Landing {
    let is_out = |id: &str| dropped.iter().any(|drop| drop.item == id);
    let (land, park) = document.items.iter().map(|item| item.id.clone()).partition(|id| {
        !is_out(id)
            && match action {
                Action::LandAll => true,
                Action::Land(items) => items.contains(id),
                Action::Park | Action::Drop(_) => false,
            }
    });
    Landing { land, park }
}

pub(crate) fn is_measured(rung: &Composed) -> bool {
    !matches!(rung.state, RungState::Void(_))
}

#[cfg(test)]
mod tests;
