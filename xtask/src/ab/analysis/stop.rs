//! When a comparison has enough blocks, or none that could help.

use super::proof::{activation_of, check_base_work, is_other_work, work_of};
use super::table::Table;
use crate::ab::activation::Activation;
use crate::ab::config::{BASE, Leg, NULL};
use crate::ab::samples::{AbStart, Log, Stop};
use crate::stats::verdict::{Verdict, judge, margin_interval};

/// Whether the comparison may end after `blocks` whole blocks, and why.
///
/// `elapsed_minutes` counts the runs alone.
pub(crate) fn check_stop(
    start: &AbStart,
    log: &Log,
    blocks: usize,
    elapsed_minutes: f64,
) -> Option<Stop> {
    let plan = &start.plan;
    let compared: Vec<&Leg> = plan.legs.iter().filter(|leg| !leg.role.is_reference()).collect();
    let has_failed = |leg: &str| log.failure(leg).is_some();
    if [BASE, NULL].into_iter().any(has_failed) || compared.iter().all(|leg| has_failed(&leg.name))
    {
        return Some(Stop::LegsFailed);
    }
    // The first block shows whether there is anything to compare. Blocks come in mirrored pairs:
    // stopping within one would leave a drift in.
    let ends_a_pair = blocks.is_multiple_of(2);
    if blocks == 0 || (blocks > 1 && !ends_a_pair && blocks < plan.max_blocks) {
        return None;
    }
    let table = Table::new(start, log);
    let live: Vec<&Leg> = compared.into_iter().filter(|leg| !has_failed(&leg.name)).collect();
    let is_inert = |leg: &&Leg| matches!(activation_of(&table, leg), Activation::Inert { .. });
    if live.iter().all(is_inert) {
        return Some(Stop::Inert);
    }
    let base_work = check_base_work(&table);
    let base_differs = is_other_work(&base_work);
    let all_differ = live.iter().all(|leg| is_other_work(&work_of(&table, leg)));
    if (base_differs || all_differ) && !plan.allow_different_output {
        return Some(Stop::OtherWork);
    }
    // The next pair would take about as long as those so far.
    let next_end = elapsed_minutes * (1.0 + 2.0 / blocks as f64);
    let is_late = ends_a_pair && plan.max_minutes.is_some_and(|minutes| next_end > 1.1 * minutes);
    if blocks < plan.min_blocks {
        return is_late.then_some(Stop::MaxMinutes);
    }
    if plan.min_blocks == plan.max_blocks {
        return (blocks >= plan.max_blocks).then_some(Stop::FixedBlocks);
    }
    if plan.until_decided {
        let is_decided = |leg: &&Leg| judge_primary(&table, leg) != Some(Verdict::Unresolved);
        if ends_a_pair && live.iter().all(is_decided) {
            return Some(Stop::Decided);
        }
    }
    let narrow = |leg: &&Leg| {
        let effect = table.effect(&leg.name, plan.primary);
        effect.is_some_and(|effect| {
            let base: Vec<f64> =
                table.pairs(&leg.name, plan.primary).iter().map(|pair| pair.0).collect();
            let same = margin_interval(table.margin(plan.primary), effect.scale, &base);
            effect.center.interval.width() <= same.high
        })
    };
    if ends_a_pair && !plan.until_decided && live.iter().all(narrow) {
        return Some(Stop::NarrowEnough);
    }
    if is_late {
        return Some(Stop::MaxMinutes);
    }
    (blocks >= plan.max_blocks).then_some(Stop::MaxBlocks)
}

/// What the primary metric says of a leg so far; `None` where it says nothing and never may.
fn judge_primary(table: &Table<'_>, leg: &Leg) -> Option<Verdict> {
    let metric = table.plan().primary;
    let effect = table.effect(&leg.name, metric)?;
    let floor = table.floor(metric, effect.scale)?;
    let base: Vec<f64> = table.pairs(&leg.name, metric).iter().map(|pair| pair.0).collect();
    let same = margin_interval(table.margin(metric), effect.scale, &base);
    Some(judge(&effect, floor, same, metric.better()).verdict)
}
