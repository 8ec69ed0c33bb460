//! What a run does next, as a function of the frozen document and the samples so far: a run that was
//! interrupted continues exactly where it was.

use std::collections::BTreeMap;

use super::compose::{Composed, plan_rungs};
use super::document::{Action, Document, OracleCheck, Order};
use super::judge::{Phase, Standing, is_measured, launches};
use super::oracle::{Shot, Trial, find_command, find_shot, item_trials, rung_trials};
use super::sample::{LaunchRecord, Record, Slot, launches_in};
use crate::stats::schedule::plan_block;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Launch(Launch),
    Command(CommandStep),
    Finished,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) slot: Slot,
    pub(crate) label: String,
    pub(crate) items: Vec<String>,
    pub(crate) prompt_tokens: u64,
    pub(crate) steps: u64,
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandStep {
    pub(crate) oracle: String,
    pub(crate) item: Option<String>,
    pub(crate) command: Vec<String>,
    pub(crate) items: Vec<String>,
}

/// How many times a disturbed launch is repeated before it counts as it is.
pub(crate) const MAX_REJECTED: usize = 2;

pub(crate) fn count_rejected(records: &[Record], slot: &Slot) -> usize {
    let is_it = |launch: &&LaunchRecord| launch.slot == *slot && launch.rejected.is_some();
    launches_in(records).filter(is_it).count()
}

pub(crate) fn plan_step(document: &Document, standing: &Standing, records: &[Record]) -> Step {
    let step = match standing.phase {
        Phase::ItemOracles => plan_trials(document, &item_trials(document), records),
        Phase::RungOracles => {
            let items_of = |id: &str| {
                let rung = standing.ladder.iter().find(|rung| rung.id == id);
                rung.map(|rung| rung.items.clone()).unwrap_or_default()
            };
            plan_trials(document, &rung_trials(document, items_of), records)
        }
        Phase::Ladder { round } => plan_ladder(document, &standing.ladder, round, records),
        Phase::Decided { .. } | Phase::NotShown { .. } | Phase::Undecided { .. } => None,
    };
    step.unwrap_or(Step::Finished)
}

fn plan_trials(document: &Document, trials: &[Trial<'_>], records: &[Record]) -> Option<Step> {
    for trial in trials {
        if let OracleCheck::Command { command, .. } = &trial.oracle.check
            && find_command(records, trial).is_none()
        {
            return Some(Step::Command(CommandStep {
                oracle: trial.oracle.id.clone(),
                item: trial.item.map(str::to_owned),
                command: command.clone(),
                items: trial.candidate.clone(),
            }));
        }
        let shots = trial.shots(document);
        if let Some(shot) = shots.into_iter().find(|shot| find_shot(records, shot).is_none()) {
            return Some(Step::Launch(Launch {
                slot: Slot::Oracle { shot: shot.key() },
                label: format!("oracle {}: {}", trial.oracle.id, shot.key()),
                items: shot.items,
                prompt_tokens: shot.prompt_tokens,
                steps: shot.steps,
                args: shot.args,
            }));
        }
    }
    None
}

/// The launches of one round, in order.
fn plan_order(document: &Document, ladder: &[Composed], round: u32) -> Vec<(Composed, u64)> {
    let rungs: Vec<&Composed> = ladder.iter().filter(|rung| is_measured(rung)).collect();
    let repeats = 1..=document.protocol.repeats;
    match document.protocol.order {
        Order::Sequential => rungs
            .iter()
            .flat_map(|rung| repeats.clone().map(|repeat| ((*rung).clone(), repeat)))
            .collect(),
        Order::Interleaved => repeats
            .flat_map(|repeat| {
                let seed = document.protocol.seed.wrapping_add(u64::from(round - 1));
                let block = plan_block(rungs.len(), seed, repeat as usize - 1);
                let rungs = &rungs;
                block.into_iter().map(move |at| (rungs[at].clone(), repeat))
            })
            .collect(),
    }
}

fn plan_ladder(
    document: &Document,
    ladder: &[Composed],
    round: u32,
    records: &[Record],
) -> Option<Step> {
    let (rung, repeat) = plan_order(document, ladder, round)
        .into_iter()
        .find(|(rung, repeat)| is_missing(records, round, rung, *repeat))?;
    let again = if round > 1 { format!(", round {round}") } else { String::new() };
    Some(Step::Launch(Launch {
        label: format!("rung {} {repeat}/{}{again}", rung.name, document.protocol.repeats),
        slot: Slot::Ladder { round, rung: rung.id, repeat },
        items: rung.items,
        prompt_tokens: document.protocol.prompt_tokens,
        steps: document.protocol.steps,
        args: Vec::new(),
    }))
}

/// Whether a launch is still to be made. A rung that crashed is not launched again: next time it may
/// take the machine down.
fn is_missing(records: &[Record], round: u32, rung: &Composed, repeat: u64) -> bool {
    let done = launches(records, round, &rung.id);
    let crashed = done.iter().any(|launch| launch.failed.is_some());
    let slot = Slot::Ladder { round, rung: rung.id.clone(), repeat };
    !crashed && !done.iter().any(|launch| launch.slot == slot)
}

/// The launches of a whole run, one more pass over the ladder included where a rule may ask for it.
pub(crate) fn count_launches(document: &Document) -> u64 {
    let ladder = plan_rungs(document, &[]);
    let rungs = ladder.iter().filter(|rung| is_measured(rung)).count() as u64;
    let again = document.rules.iter().any(|rule| matches!(rule.action, Action::Drop(_)));
    let passes = if again { 2 } else { 1 };
    all_shots(document).len() as u64 + passes * rungs * document.protocol.repeats
}

/// What the oracles are expected to take, in minutes: each launch once, by the longest estimate of
/// those that share it, else by `launch_min`; and the commands that have an estimate.
pub(crate) fn estimate_oracles_min(document: &Document, launch_min: f64) -> f64 {
    let items_of = |id: &str| document.rung(id).map(|rung| rung.items.clone()).unwrap_or_default();
    let (of_items, of_rungs) = (item_trials(document), rung_trials(document, items_of));
    let mut shots: BTreeMap<String, f64> = BTreeMap::new();
    let mut commands_min = 0.0;
    for trial in of_items.iter().chain(&of_rungs) {
        if let OracleCheck::Command { .. } = trial.oracle.check {
            commands_min += trial.oracle.estimate_min.unwrap_or(0.0);
        }
        for shot in trial.shots(document) {
            let each = trial.oracle.estimate_min.unwrap_or(launch_min);
            let known = shots.entry(shot.key()).or_insert(each);
            *known = known.max(each);
        }
    }
    commands_min + shots.values().sum::<f64>()
}

/// The launches of the ladder, one more pass included where a rule may ask for it.
pub(crate) fn count_rung_launches(document: &Document) -> u64 {
    count_launches(document) - all_shots(document).len() as u64
}

/// How many launches are left, as far as can be told: a rule may still ask for another pass.
pub(crate) fn count_left(document: &Document, standing: &Standing, records: &[Record]) -> usize {
    let shots = all_shots(document);
    let missing_shots = shots.values().filter(|shot| find_shot(records, shot).is_none()).count();
    let round = match standing.phase {
        Phase::Ladder { round } => round,
        Phase::ItemOracles | Phase::RungOracles => 1,
        Phase::Decided { .. } | Phase::NotShown { .. } | Phase::Undecided { .. } => return 0,
    };
    let missing = plan_order(document, &standing.ladder, round)
        .iter()
        .filter(|(rung, repeat)| is_missing(records, round, rung, *repeat))
        .count();
    match standing.phase {
        Phase::Ladder { .. } => missing,
        _ => missing_shots + missing,
    }
}

/// The launches for oracles, by their key: those that ask for the same share one.
fn all_shots(document: &Document) -> BTreeMap<String, Shot> {
    let items_of = |id: &str| document.rung(id).map(|rung| rung.items.clone()).unwrap_or_default();
    item_trials(document)
        .iter()
        .chain(&rung_trials(document, items_of))
        .flat_map(|trial| trial.shots(document))
        .map(|shot| (shot.key(), shot))
        .collect()
}

#[cfg(test)]
mod tests;
