//! The transfer check: a decided ladder's reads once more, on another machine.
//!
//! It owns the reduced ladder that is measured there, and the comparison with what decided. It never
//! changes a decision.

use std::collections::BTreeMap;

use minijinja::context;
use serde::Serialize;

use super::compose::RungState;
use super::document::{Document, NullRung, OnDrop, Transfer, rungs_in};
use super::judge::{Numbers, Standing, judge};
use super::numbers::{is_fraction, percent};
use super::sample::{Record, RunRecord, run_in, total_cost_s};
use crate::base::page::render_page;
use crate::stats::expr::{Number, Truth};

/// `result.json` of a transfer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TransferResult {
    pub(crate) decided_by: RunRecord,
    pub(crate) measured_on: String,
    /// `YYYY-MM-DD`
    pub(crate) date: String,
    /// Each read: there (where it was decided) and here; `None` where there is no value.
    pub(crate) reads: BTreeMap<String, (Option<f64>, Option<f64>)>,
    /// Whether the expectation held; `None` where that cannot be told.
    pub(crate) held: Option<bool>,
    pub(crate) why_open: Option<String>,
    pub(crate) cost_min: f64,
}

fn transfer_of(document: &Document) -> Result<&Transfer, String> {
    document.transfer.as_ref().ok_or_else(|| "the document has no [transfer]".to_owned())
}

/// The ladder of a transfer: the rungs of its reads as they were decided on, without oracles or rules.
///
/// # Errors
/// When the document has no transfer, or a rung that it reads did not run.
pub(crate) fn plan_transfer(document: &Document, standing: &Standing) -> Result<Document, String> {
    let transfer = transfer_of(document)?;
    let mut plan = document.clone();
    plan.reads.retain(|read| transfer.reads.contains(&read.id));
    let used: Vec<String> =
        plan.reads.iter().flat_map(|read| rungs_in(&read.value)).map(str::to_owned).collect();
    for rung in &standing.ladder {
        if let (true, RungState::Void(why)) = (used.contains(&rung.id), &rung.state) {
            return Err(format!("rung {} did not run: {why}", rung.name));
        }
    }
    plan.rungs.retain(|rung| used.contains(&rung.id) || rung.id == document.base().id);
    for rung in &mut plan.rungs {
        // As it was decided on: without the items that were dropped meanwhile.
        if let Some(composed) = standing.ladder.iter().find(|composed| composed.id == rung.id) {
            rung.items.clone_from(&composed.items);
        }
        rung.on_drop = OnDrop::Recompose;
    }
    for item in &mut plan.items {
        item.oracles.clear();
    }
    plan.oracles.clear();
    plan.guards.clear();
    plan.rules.clear();
    plan.expectations.clear();
    plan.protocol.repeats = transfer.repeats;
    plan.protocol.steps = transfer.steps.unwrap_or(plan.protocol.steps);
    plan.protocol.null_rung = NullRung::Refused("a transfer measures only its reads".to_owned());
    Ok(plan)
}

pub(crate) fn summarize_transfer(
    document: &Document,
    plan: &Document,
    (run, there): (&RunRecord, &Standing),
    records: &[Record],
) -> Result<TransferResult, String> {
    let transfer = transfer_of(document)?;
    let here = judge(plan, records);
    let read = |standing: &Standing, id: &str| match standing.last_round() {
        Some(round) => round
            .reads
            .iter()
            .find(|read| read.id == id)
            .map_or(Number::Missing(format!("no read `{id}`")), |read| read.value.0.clone()),
        None => Number::Missing("no pass over the ladder is complete".to_owned()),
    };
    let names = Numbers(|name: &str| match name.split_once('.') {
        Some(("here", id)) => read(&here, id),
        Some(("there", id)) => read(there, id),
        _ => Number::Missing(format!("no read `{name}`")),
    });
    let known = |number: &Number| match number {
        Number::Known(value) => Some(*value),
        _ => None,
    };
    let (held, why_open) = match transfer.expect.truth(&names) {
        Truth::True => (Some(true), None),
        Truth::False => (Some(false), None),
        Truth::Void(why) | Truth::Missing(why) => (None, Some(why)),
    };
    let measured = run_in(records).map(|run| (run.machine.clone(), run.date.clone()));
    let (measured_on, date) = measured.unwrap_or_default();
    Ok(TransferResult {
        decided_by: run.clone(),
        measured_on,
        date,
        reads: transfer
            .reads
            .iter()
            .map(|id| (id.clone(), (known(&read(there, id)), known(&read(&here, id)))))
            .collect(),
        held,
        why_open,
        cost_min: total_cost_s(records) / 60.0,
    })
}

pub(crate) fn render_transfer(
    name: &str,
    document: &Document,
    result: &TransferResult,
) -> anyhow::Result<String> {
    let reads: Vec<_> = result
        .reads
        .iter()
        .map(|(id, (there, here))| {
            let is_fraction = document.read(id).is_some_and(|read| is_fraction(&read.value));
            let show = |value: &Option<f64>| match value {
                Some(value) if is_fraction => percent(*value),
                Some(value) => value.to_string(),
                None => "none".to_owned(),
            };
            context! { id, there => show(there), here => show(here) }
        })
        .collect();
    let transfer = document.transfer.as_ref();
    render_page(
        include_str!("transfer.md.j2"),
        context! {
            name,
            result,
            reads,
            expect => transfer.map(|transfer| transfer.expect.to_string()),
            text => transfer.map(|transfer| &transfer.text),
        },
    )
}
