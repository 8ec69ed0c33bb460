//! Cell by cell through a session, and what is left to say at the end.

use std::path::Path;
use std::time::Duration;

use super::book::{Book, Entries, report_of};
use super::output::Output;
use super::prepare::Prepared;
use crate::base::count::render_count;
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::classify::Classification;
use crate::cell::executor::Executor;
use crate::cell::grid::Cell;
use crate::cell::health::{Look, Waited, Watched, await_health};
use crate::cell::journal::{CellEnd, CellState};
use crate::cell::outcome::CellOutcome;
use crate::cell::quiet::{QuietLimits, SweepQuiet};
use crate::cell::session::{End, Session, Watch};
use crate::cell::spec::report_path;
use crate::oom_record::render_prune_command;
use crate::sweep::args::Args;
use crate::sweep::repeats::{find_whole_runs, pick_median, run_name};
use crate::sweep::status::render_end;
use crate::sweep::table::render_summary;
use crate::sys::{files, terminal};

/// What is said where the machine is not fit for a cell.
pub(super) fn render_sick(sick: &str, csv: Option<&str>) -> String {
    let again = match csv {
        Some(csv) => format!("cargo xtask sweep --resume {csv}"),
        None => "the same command".to_owned(),
    };
    format!(
        "sweep: the driver is not healthy: {sick}\nhint: nothing was launched since; end what else runs on \
         the GPU, reset it (`sudo nvidia-smi --gpu-reset`) or reboot, then go on with `{again}`"
    )
}

/// How often a disturbed cell is repeated.
const REPEATS: usize = 2;
/// Load of other processes that disturbs, in percent of all processors.
const MAX_OTHER_LOAD_PCT: f64 = 10.0;
/// Load is not judged over a shorter run.
const SHORTEST_FOR_LOAD: Duration = Duration::from_secs(1);

struct Sweep<'a, E> {
    root: &'a Path,
    prepared: &'a Prepared,
    session: Session<E>,
    book: Book<'a>,
    /// A folder for reports, which goes with the sweep.
    scratch: tempfile::TempDir,
    retry_lost: bool,
    /// The machine before the first launch.
    healthy: Look,
    /// What is wrong with the machine, once that ends the sweep.
    sick: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    Stop,
}

/// Runs what is left of the grid.
pub(super) fn run(
    root: &Path,
    args: &Args,
    prepared: &Prepared,
    output: Output,
    session: Session<impl Executor>,
    healthy: Look,
) -> anyhow::Result<Outcome> {
    let shown_path = output.shown_path(root);
    let mut sweep = Sweep::begin(root, args, prepared, output, session, healthy)?;
    sweep.book.progress.log(&format!("sweep: writing `{shown_path}`"));
    let step = sweep.do_cells().hint(format!(
        "everything finished is on disk; when the cause is fixed, continue with `cargo xtask sweep \
         --resume {shown_path}`"
    ))?;
    sweep.finish(step, args, &shown_path)
}

impl<'a, E: Executor> Sweep<'a, E> {
    fn begin(
        root: &'a Path,
        args: &Args,
        prepared: &'a Prepared,
        output: Output,
        session: Session<E>,
        healthy: Look,
    ) -> anyhow::Result<Sweep<'a, E>> {
        Ok(Sweep {
            root,
            prepared,
            session,
            book: Book::open(root, prepared, output),
            scratch: files::create_scratch(&root.join("target/sweep"), "run-")?,
            retry_lost: args.retry_lost,
            healthy,
            sick: None,
        })
    }

    /// Everything that is left to do, in order.
    fn do_cells(&mut self) -> anyhow::Result<Step> {
        self.take_up_earlier()?;
        for cell in self.prepared.grid.cells() {
            if self.do_cell(cell)? == Step::Stop {
                return Ok(Step::Stop);
            }
        }
        Ok(Step::Next)
    }

    /// Knows again what the journal of a resumed sweep knew.
    fn take_up_earlier(&mut self) -> anyhow::Result<()> {
        let ends: Vec<CellEnd> = self.book.output.earlier.cell_ends().cloned().collect();
        let is_oom = |end: &&CellEnd| end.classification.is_some_and(Classification::is_true_oom);
        for end in ends.iter().filter(is_oom) {
            self.session.take_up_oom(&end.model, end.prompt_target_len);
        }
        // The kill may have come between the last cell's end and its line in the record.
        if let Some(last) = ends.last().filter(is_oom) {
            let peak = last.process.as_ref().and_then(|process| process.rss_peak_bytes);
            self.session.repair_record(&last.model, last.prompt_target_len, peak)?;
        }
        Ok(())
    }

    fn do_cell(&mut self, cell: Cell<'_>) -> anyhow::Result<Step> {
        if self.session.executor().is_interrupted() {
            return Ok(Step::Stop);
        }
        let boot = self.session.executor().boot_id().to_owned();
        let state = self.book.output.earlier.cell_state(&cell.name(), cell.len, &boot);
        match (state, self.retry_lost) {
            (CellState::Finished(class), _) => self.book.count(class),
            (CellState::LostWithRow, false) => {
                self.book.count(Some(Classification::FailHostLost));
            }
            (CellState::Lost, false) => {
                let end = End::Refused {
                    class: Classification::FailHostLost,
                    reason: "the host went down during this cell; --retry-lost launches it again"
                        .to_owned(),
                };
                self.book.keep(cell, &end, true)?;
                self.tell(cell, &end);
            }
            (CellState::Open, _) | (CellState::Lost | CellState::LostWithRow, true) => {
                return self.run_cell(cell);
            }
        }
        Ok(Step::Next)
    }

    /// Writes the row of a cell whose runs are all in the journal; whether there was one.
    fn keep_earlier_runs(&mut self, cell: Cell<'_>) -> anyhow::Result<bool> {
        let count = self.prepared.config.repeats;
        let earlier = &self.book.output.earlier;
        let Some(runs) = find_whole_runs(earlier, &cell.name(), cell.len, count) else {
            return Ok(false);
        };
        let runs: Vec<CellEnd> = runs.into_iter().cloned().collect();
        self.book.keep_earlier_runs(cell, &runs)?;
        let text =
            format!("[done] {} @ {}: its {count} runs are in the journal", cell.name(), cell.len);
        self.book.progress.log(&text);
        Ok(true)
    }

    fn run_cell(&mut self, cell: Cell<'_>) -> anyhow::Result<Step> {
        if self.keep_earlier_runs(cell)? {
            return Ok(Step::Next);
        }
        let standing = self.book.render_standing(self.session.guard());
        let status = format!("{} @ {}{standing}", cell.name(), cell.len);
        self.book.progress.set_status(self.book.done_cells, &status);
        let end = self.measure(cell)?;
        if end.was_interrupted() {
            return Ok(Step::Stop);
        }
        self.tell(cell, &end);
        let is_last = self.book.done_cells == self.prepared.grid.cell_count();
        Ok(if is_last { Step::Next } else { self.pause_after(&end) })
    }

    /// The pause after a launch; there is none after a cell that was not launched. After one that was hard,
    /// or failed, the machine must be as it was before the sweep.
    fn pause_after(&mut self, end: &End) -> Step {
        let End::Ran(outcome) = end else { return Step::Next };
        let memory_bytes = self.prepared.host.memory_bytes;
        let pause = self.prepared.cooldown(outcome.was_hard(memory_bytes));
        if self.session.executor().pause(pause).is_none() {
            return Step::Stop;
        }
        let looks = self.healthy.has_gpu() && outcome.may_have_hurt_driver(memory_bytes);
        if looks { self.await_health() } else { Step::Next }
    }

    fn await_health(&mut self) -> Step {
        let (progress, patience) = (&self.book.progress, self.prepared.config.big_cooldown);
        let tell = |text: &str| progress.log(&format!("[wait] {text}"));
        let executor = self.session.executor();
        match await_health(executor, Some(&self.healthy), Watched::Gpus, patience, tell) {
            Waited::Healthy(_) => Step::Next,
            Waited::Interrupted => Step::Stop,
            Waited::Sick(sick) => {
                self.sick = Some(sick);
                Step::Stop
            }
        }
    }

    /// Measures a cell as often as the definition says. Its row is that of the run in the middle, or the
    /// first that is none.
    fn measure(&mut self, cell: Cell<'_>) -> anyhow::Result<End> {
        let count = self.prepared.config.repeats;
        if count == 1 {
            return self.launch(cell, None);
        }
        let mut runs: Vec<End> = Vec::new();
        for number in 1..=count {
            if runs.last().is_some_and(|last| self.pause_after(last) == Step::Stop) {
                return Ok(End::Interrupted);
            }
            let end = self.launch(cell, Some(run_name(number, count)))?;
            if end.classification().is_some() || end.was_interrupted() {
                return Ok(end);
            }
            let name = run_name(number, count);
            self.book.progress.log(&format!("{}, {name}", render_end(cell, &end)));
            runs.push(end);
        }
        let (median, repeats) = pick_median(&runs);
        let end = runs.swap_remove(median);
        self.book.keep_median(cell, &end, repeats)?;
        Ok(end)
    }

    /// Launches a cell, again where it was disturbed and the definition says so.
    fn launch(&mut self, cell: Cell<'_>, run: Option<String>) -> anyhow::Result<End> {
        let quiet = self.prepared.config.quiet;
        let limits = QuietLimits { max_other_load_pct: MAX_OTHER_LOAD_PCT };
        let watch = Watch { pause: Duration::ZERO, shortest: SHORTEST_FOR_LOAD, limits };
        let watch = (quiet != SweepQuiet::Off).then_some(watch);
        let mut repeats = if quiet == SweepQuiet::Repeat { REPEATS } else { 0 };
        loop {
            let report = report_path(self.root, self.scratch.path());
            let spec = self.prepared.spec_of(self.root, Some(cell), &report);
            let may_repeat = repeats > 0;
            let mut entries = Entries { book: &mut self.book, cell, may_repeat, run: run.clone() };
            let end = self.session.run(cell, &spec, watch, &mut entries)?;
            let Some(why) = end.disturbance().filter(|_| may_repeat) else { return Ok(end) };
            self.book.progress.log(&format!(
                "[again] {} @ {}: disturbed: {why}; {} left",
                cell.name(),
                cell.len,
                render_count(repeats, "repetition")
            ));
            repeats -= 1;
            if self.pause_after(&end) == Step::Stop {
                return Ok(End::Interrupted);
            }
        }
    }

    /// Says what became of a cell, and how the sweep stands.
    fn tell(&self, cell: Cell<'_>, end: &End) {
        let progress = &self.book.progress;
        let rest = match progress.is_plain() {
            true => self.book.render_standing(self.session.guard()),
            false => String::new(),
        };
        progress.log(&format!("{}{rest}", render_end(cell, end)));
        if let End::Ran(outcome) = end {
            self.check_backend(outcome);
            if outcome.classification.is_none() {
                self.hint_stale_record(cell);
            }
        }
    }

    /// A file that is named for a GPU must not hold what the processor measured.
    fn check_backend(&self, outcome: &CellOutcome) {
        let measured = report_of(outcome).and_then(|report| report.device.backend.as_deref());
        let named = self.prepared.target.backend.name();
        if let Some(measured) = measured
            && measured != named
        {
            self.book.progress.log(&format!(
                "warning: the runner computed on `{measured}`, but this file is named for \
                 `{named}`; if that is meant, set `device = \"cpu\"` in the definition"
            ));
        }
    }

    /// A cell that runs although the record holds it shows that the record is stale.
    fn hint_stale_record(&self, cell: Cell<'_>) {
        let name = cell.name();
        if let Some((_, line)) = self.session.guard().record().blocking(&name, cell.len) {
            self.book.progress.log(&format!(
                "hint: `{line}` is stale: {name} ran at {} tokens; `{}` removes it",
                cell.len,
                render_prune_command(&name)
            ));
        }
    }

    /// Closes the journal and says how it went.
    fn finish(self, step: Step, args: &Args, shown_path: &str) -> anyhow::Result<Outcome> {
        let interrupted = step == Step::Stop;
        let (table, counts, marks) = self.book.close(interrupted, self.sick.clone())?;
        terminal::log(&render_summary(&self.prepared.grid, &table, &marks));
        if !self.prepared.runner.counts {
            terminal::log(&format!(
                "runner `{}` does not count tokens: speeds are what it says, and whether it did the work \
                 that was asked for is not known",
                self.prepared.runner.name
            ));
        }
        terminal::data(shown_path);
        if let Some(sick) = &self.sick {
            terminal::log(&render_sick(sick, Some(shown_path)));
            return Ok(Outcome::Stopped);
        }
        if interrupted {
            terminal::log(&format!(
                "sweep: interrupted; continue with `cargo xtask sweep --resume {shown_path}`"
            ));
            return Ok(Outcome::Interrupted);
        }
        let is_violation =
            |key: &str| key.starts_with("FAIL:") || (args.strict && key.starts_with("SKIP:"));
        let violated = counts.keys().any(|key| is_violation(key));
        Ok(if violated { Outcome::Violation } else { Outcome::Done })
    }
}

#[cfg(test)]
mod tests;
