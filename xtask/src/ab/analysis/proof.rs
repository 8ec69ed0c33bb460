//! Whether the legs can be compared at all: the activation proof and the same work, over all blocks.

use super::table::{Run, Table};
use crate::ab::activation::{Activation, check_activation};
use crate::ab::config::{BASE, Leg, NULL};
use crate::ab::same_work::{Work, WorkCheck, check_work};

pub(super) fn is_other_work(check: &WorkCheck) -> bool {
    matches!(check, WorkCheck::OtherPrompt | WorkCheck::OtherOutput { .. })
}

/// Base and null are the same thing: all of their runs must have done the same.
pub(super) fn check_base_work(table: &Table<'_>) -> WorkCheck {
    let works: Vec<Work> =
        table.of_leg(BASE).chain(table.of_leg(NULL)).filter_map(work_of_run).collect();
    check_work(works.first(), &works)
}

pub(super) fn work_of(table: &Table<'_>, leg: &Leg) -> WorkCheck {
    let reference = table.of_leg(BASE).find_map(work_of_run);
    let works: Vec<Work> = table.of_leg(&leg.name).filter_map(work_of_run).collect();
    check_work(reference.as_ref(), &works)
}

fn work_of_run(run: &Run<'_>) -> Option<Work> {
    run.report.as_ref().map(Work::from_report)
}

/// The proof for every block; the first block that is not active decides.
pub(super) fn activation_of(table: &Table<'_>, leg: &Leg) -> Activation {
    let mut first = None;
    for [base, run] in table.blocks_of([BASE, &leg.name]) {
        let found = check_activation(&leg.env, base.report.as_ref(), run.report.as_ref());
        if matches!(found, Activation::Inert { .. }) {
            return found;
        }
        first.get_or_insert(found);
    }
    first.unwrap_or_else(|| {
        if leg.env.is_empty() {
            Activation::NotNeeded
        } else {
            Activation::Unknown { reason: "no block holds both legs".to_owned() }
        }
    })
}
