//! Step after step, until nothing is left of a ladder. What comes next is a function of the samples.

use std::time::Duration;

use super::bench::Bench;
use super::launch::{Ended, StepLauncher};
use crate::base::count::render_count;
use crate::cell::executor::Executor;
use crate::prereg::document::Document;
use crate::prereg::judge::{Phase, Standing, is_measured, judge};
use crate::prereg::plan::{Step, count_left, plan_step};
use crate::prereg::sample::{Record, Slot, launches_in, total_cost_s};
use crate::stats::location::median;
use crate::sys::{clock, terminal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HowEnded {
    /// Nothing is left.
    Complete,
    /// What is left does not fit under the ceiling.
    AtCeiling,
    /// The guard refuses what is left.
    Refused,
    Interrupted,
}

impl HowEnded {
    /// As journals have it.
    pub(super) fn word(self) -> &'static str {
        match self {
            HowEnded::Complete => "complete",
            HowEnded::AtCeiling => "ceiling",
            HowEnded::Refused => "refused",
            HowEnded::Interrupted => "interrupted",
        }
    }
}

/// Makes every step that is left, each on disk before the next.
///
/// # Errors
/// When a program cannot be built or started, or something cannot be written.
pub(super) fn measure<E: Executor>(
    document: &Document,
    bench: &mut Bench,
    launcher: &mut StepLauncher<'_, E>,
) -> anyhow::Result<HowEnded> {
    let mut phase = None;
    loop {
        if launcher.executor().is_interrupted() {
            return Ok(HowEnded::Interrupted);
        }
        let standing = judge(document, &bench.records);
        announce(&standing, &mut phase);
        let step = plan_step(document, &standing, &bench.records);
        let (items, label) = match &step {
            Step::Finished => return Ok(HowEnded::Complete),
            Step::Launch(launch) => (&launch.items, launch.label.clone()),
            Step::Command(command) => (
                &command.items,
                format!("oracle {}: {}", command.oracle, command.command.join(" ")),
            ),
        };
        let Some(limit) = plan_limit(document, &bench.records, &step) else {
            return stop_at_ceiling(document, bench);
        };
        match launcher.prepare(items, &bench.records) {
            Err(_) if launcher.executor().is_interrupted() => return Ok(HowEnded::Interrupted),
            Err(error) => return Err(error),
            Ok(Some(build)) => {
                bench.append(Record::Build(build))?;
                // The build may leave too little time for the step.
                continue;
            }
            Ok(None) => {}
        }
        let (ended, took) = clock::time(|| match &step {
            Step::Launch(launch) => launcher.launch(launch, limit, bench),
            Step::Command(command) => launcher.command(command, limit, bench),
            Step::Finished => Ok(Ended::Kept),
        });
        match ended? {
            Ended::Kept => {}
            Ended::Interrupted => return Ok(HowEnded::Interrupted),
            Ended::Refused(why) => {
                let why = format!("{label} is not launched: {why}");
                bench.append(Record::Stopped { why })?;
                return Ok(HowEnded::Refused);
            }
        }
        if bench.was_ended_at_ceiling() {
            return stop_at_ceiling(document, bench);
        }
        bench.note_step_end()?;
        let left = count_left(document, &judge(document, &bench.records), &bench.records);
        terminal::log(&format!(
            "prereg: {label}: {:.1} s; {} to go; {:.1} of {} min spent",
            took.as_secs_f64(),
            render_count(left, "launch"),
            total_cost_s(&bench.records) / 60.0,
            document.protocol.ceiling_min
        ));
    }
}

/// How long a step may take under the ceiling; `None` where it does not fit.
fn plan_limit(document: &Document, records: &[Record], step: &Step) -> Option<Duration> {
    const UNLIMITED: Duration = Duration::from_secs(u32::MAX as u64);
    if records.iter().any(|record| matches!(record, Record::OverCeiling { .. })) {
        return Some(UNLIMITED);
    }
    let left_s = document.protocol.ceiling_min * 60.0 - total_cost_s(records);
    let needed_s = match step {
        Step::Launch(launch) => expect_cost_s(&launch.slot, records),
        Step::Command(_) | Step::Finished => 0.0,
    };
    // Where the log says what a launch cost, the time it takes here does not count.
    let is_by_log = document.protocol.cost_field.is_some();
    (left_s > 0.0 && needed_s <= left_s)
        .then(|| if is_by_log { UNLIMITED } else { Duration::from_secs_f64(left_s) })
}

/// What launches of the ladder cost so far, at the median; 0 where none has run, and for oracles.
fn expect_cost_s(slot: &Slot, records: &[Record]) -> f64 {
    let is_rung = |slot: &Slot| matches!(slot, Slot::Ladder { .. });
    let launches = launches_in(records).filter(|launch| is_rung(slot) && is_rung(&launch.slot));
    median(&launches.map(|launch| launch.cost_s).collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// Notes that what is left does not fit, once.
fn stop_at_ceiling(document: &Document, bench: &mut Bench) -> anyhow::Result<HowEnded> {
    if !matches!(bench.records.last(), Some(Record::Stopped { .. })) {
        let why = format!(
            "it stopped at {:.1} of {} min, because what is left does not fit",
            total_cost_s(&bench.records) / 60.0,
            document.protocol.ceiling_min
        );
        bench.append(Record::Stopped { why })?;
    }
    Ok(HowEnded::AtCeiling)
}

/// Says which part of the run begins. Nothing that was measured is said before every rung is in.
fn announce(standing: &Standing, before: &mut Option<Phase>) {
    if before.as_ref() == Some(&standing.phase) {
        return;
    }
    match &standing.phase {
        Phase::ItemOracles => terminal::log("prereg: oracles"),
        Phase::Ladder { .. } => {
            let rungs = standing.ladder.iter().filter(|rung| is_measured(rung));
            let names: Vec<&str> = rungs.map(|rung| rung.name.as_str()).collect();
            for drop in &standing.dropped {
                terminal::log(&format!("prereg: without {}", drop.item));
            }
            terminal::log(&format!("prereg: ladder {}", names.join(", ")));
        }
        _ => {}
    }
    *before = Some(standing.phase.clone());
}

#[cfg(test)]
mod tests;
