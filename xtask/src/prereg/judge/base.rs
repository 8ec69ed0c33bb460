//! Whether the base can be judged by: nothing is blamed on an item where the base itself failed.
//!
//! A base that crashes, reports nothing at a metric that it is compared by, or lacks what one of its
//! oracles compares, ends the run at that launch: whatever follows would be measured against nothing.

use std::collections::BTreeSet;

use crate::prereg::compose::NULL;
use crate::prereg::document::{Document, Source, rungs_in};
use crate::prereg::metric::figure;
use crate::prereg::oracle::{Shot, Trial, find_base_gap, item_trials};
use crate::prereg::sample::{LaunchRecord, Record, Slot, launches_in};
use crate::stats::expr::{Expr, Number};

/// Why nothing can be judged by the base, in words; `None` as long as it is in order.
pub(super) fn find_base_fault(document: &Document, records: &[Record]) -> Option<String> {
    let needed = metrics_of_base(document);
    let trials = item_trials(document);
    launches_in(records)
        .filter(|launch| launch.rejected.is_none() && is_base(document, launch))
        .find_map(|launch| {
            find_fault(document, &needed, &trials, launch)
                .map(|what| format!("{}: {what}; nothing is judged by it", place(launch)))
        })
}

fn is_base(document: &Document, launch: &LaunchRecord) -> bool {
    let is_rung = match &launch.slot {
        Slot::Oracle { .. } => true,
        Slot::Ladder { rung, .. } => *rung == document.base().id || rung == NULL,
    };
    is_rung && launch.items == document.base().items
}

fn place(launch: &LaunchRecord) -> String {
    match &launch.slot {
        Slot::Oracle { shot } => format!("the base failed in the launch for oracles ({shot})"),
        Slot::Ladder { rung, repeat, .. } if rung == NULL => {
            format!("the base failed when it was measured again, launch {repeat}")
        }
        Slot::Ladder { rung, repeat, .. } => {
            format!("the base failed as rung {rung}, launch {repeat}")
        }
    }
}

fn find_fault(
    document: &Document,
    needed: &BTreeSet<&str>,
    trials: &[Trial<'_>],
    launch: &LaunchRecord,
) -> Option<String> {
    if let Some(failure) = &launch.failed {
        return Some(format!("{}: {}", failure.class, failure.detail));
    }
    let is_whole = is_whole(document, launch);
    for metric in document.metrics.iter().filter(|metric| needed.contains(metric.id.as_str())) {
        // A short launch for oracles may have no window of steps to report; but what no line of a log
        // names is a wrong name.
        let is_due = is_whole || metric.source == Source::Log;
        if is_due && !metric.optional && !launch.series.contains_key(&metric.id) {
            let why = launch.absent.get(&metric.id).map(|why| format!(": {why}"));
            return Some(format!("it reported no {}{}", metric.id, why.unwrap_or_default()));
        }
    }
    if let Slot::Oracle { shot } = &launch.slot {
        return (trials.iter())
            .filter(|trial| trial.base.is_empty())
            .filter(|trial| trial.shots(document).iter().any(|own| own.key() == *shot))
            .find_map(|trial| {
                let gap = find_base_gap(&trial.oracle.check, launch)?;
                Some(format!("oracle {} has nothing to compare with, {gap}", trial.oracle.id))
            });
    }
    let primary = document.primary().filter(|read| rungs_in(&read.value).contains(&base(document)));
    let metric = primary.and_then(|read| document.metric(&read.metric))?;
    let series = launch.series.get(&metric.id)?;
    match figure(series, document.protocol.discard_steps, metric.statistic) {
        Number::Known(_) => None,
        Number::Void(why) | Number::Missing(why) => {
            Some(format!("{} has no value: {why}", metric.id))
        }
    }
}

fn base(document: &Document) -> &str {
    &document.base().id
}

/// Whether a launch has the prompt and the steps of the ladder.
fn is_whole(document: &Document, launch: &LaunchRecord) -> bool {
    let whole = Shot {
        items: Vec::new(),
        prompt_tokens: document.protocol.prompt_tokens,
        steps: document.protocol.steps,
        args: Vec::new(),
    };
    match &launch.slot {
        Slot::Ladder { .. } => true,
        Slot::Oracle { shot } => *shot == whole.key(),
    }
}

/// The metrics that a read, a guard or a rule asks of the base.
fn metrics_of_base(document: &Document) -> BTreeSet<&str> {
    let base = base(document);
    let formulas = (document.reads.iter().map(|read| (Some(&read.metric), &read.value)))
        .chain(document.guards.iter().map(|guard| (Some(&guard.metric), &guard.value)))
        .chain(document.rules.iter().map(|rule| (None, &rule.when)));
    let mut needed = BTreeSet::new();
    for (own, formula) in formulas {
        formula.walk(&mut |expr| match (expr, own) {
            (Expr::Name(rung), Some(metric)) if rung == base => {
                needed.insert(metric.as_str());
            }
            (Expr::Call(function, args), _) if function == "value" && args[1] == base => {
                needed.insert(args[0].as_str());
            }
            _ => {}
        });
    }
    needed
}

#[cfg(test)]
mod tests;
