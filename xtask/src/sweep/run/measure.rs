//! Cell by cell through a session, and what is left to say at the end.
//!
//! The order of writing is what makes a kill at any moment harmless: the launch is on disk before
//! it happens, the end with its row before the CSV and the record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use formats::cell_report::CellReport;

use super::output::Output;
use super::prepare::Prepared;
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::classify::{Classification, ExitKind};
use crate::cell::executor::Executor;
use crate::cell::grid::Cell;
use crate::cell::guard::{Admission, Guard};
use crate::cell::journal::{CellEnd, CellLaunch, CellState, Entry, SweepEnd, parse_journal};
use crate::cell::outcome::CellOutcome;
use crate::cell::row::{Row, parse_csv, render_header, render_row};
use crate::cell::runner::Measured;
use crate::cell::session::{End, Finder, LaunchNote, Ledger, Session};
use crate::cell::spec::report_path;
use crate::oom_record::render_prune_command;
use crate::sweep::args::Args;
use crate::sweep::eta::{Durations, render_duration};
use crate::sweep::table::render_summary;
use crate::sys::progress::Progress;
use crate::sys::{clock, files, git, terminal};

/// The key of measured cells in counts.
const MEASURED: &str = "measured";

struct Sweep<'a, E> {
    root: &'a Path,
    prepared: &'a Prepared,
    session: Session<E>,
    book: Book<'a>,
    /// A folder for reports, which goes with the sweep.
    scratch: tempfile::TempDir,
    retry_lost: bool,
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
    guard: Guard,
    executor: impl Executor,
) -> anyhow::Result<Outcome> {
    let book = Book {
        prepared,
        progress: Progress::start(prepared.grid.cell_count()),
        durations: read_durations(root, &prepared.settings.hardware),
        counts: BTreeMap::new(),
        rows: output.earlier.rows(),
        done_cells: 0,
        output,
    };
    let shown_path = book.output.shown_path(root);
    let commit = git::read_git_state(root).commit;
    let finder = Finder { commit, source: shown_path.clone(), command: None };
    let mut sweep = Sweep {
        root,
        prepared,
        session: Session::new(executor, guard, finder),
        book,
        scratch: files::create_scratch(&root.join("target/sweep"), "run-")?,
        retry_lost: args.retry_lost,
    };
    sweep.book.progress.log(&format!("sweep: writing `{shown_path}`"));
    let step = sweep.do_cells().hint(format!(
        "what is finished is on disk; when the cause is gone, go on with `cargo xtask sweep --resume \
         {shown_path}`"
    ))?;
    sweep.finish(step, args, &shown_path)
}

impl<E: Executor> Sweep<'_, E> {
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
                    reason: "the host was lost during it; --retry-lost launches it again"
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

    fn run_cell(&mut self, cell: Cell<'_>) -> anyhow::Result<Step> {
        let standing = self.book.render_standing(self.session.guard());
        let status = format!("{} @ {}{standing}", cell.name(), cell.len);
        self.book.progress.set_status(self.book.done_cells, &status);
        let report = report_path(self.root, self.scratch.path());
        let spec = self.prepared.spec_of(self.root, Some(cell), &report);
        let end =
            self.session.run(cell, &spec, None, &mut Entries { book: &mut self.book, cell })?;
        if end.was_interrupted() {
            return Ok(Step::Stop);
        }
        self.tell(cell, &end);
        let End::Ran(outcome) = end else { return Ok(Step::Next) };
        let is_last = self.book.done_cells == self.prepared.grid.cell_count();
        let pause = self.prepared.cooldown(self.was_hard(&outcome));
        let may_go_on = is_last || self.session.executor().pause(pause).is_some();
        Ok(if may_go_on { Step::Next } else { Step::Stop })
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

    /// Whether a cell left the machine in need of a longer pause.
    fn was_hard(&self, outcome: &CellOutcome) -> bool {
        let ended_badly = matches!(
            outcome.classification,
            Some(Classification::Oom | Classification::FailTimeout)
        ) || matches!(outcome.end.exit, ExitKind::Signal(_));
        let half = self.prepared.host.memory_bytes.map(|bytes| bytes / 2);
        let took_much =
            outcome.end.rss_peak_bytes.zip(half).is_some_and(|(peak, half)| peak > half);
        ended_badly || took_much
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
                 `{named}`; `device = \"cpu\"` in the definition says so"
            ));
        }
    }

    /// A cell that runs although the record holds it shows that the record is stale.
    fn hint_stale_record(&self, cell: Cell<'_>) {
        let name = cell.name();
        if let Some((_, line)) = self.session.guard().record().blocking(&name, cell.len) {
            self.book.progress.log(&format!(
                "hint: `{line}` is stale: {name} ran at {} tokens; `{}` drops it",
                cell.len,
                render_prune_command(&name)
            ));
        }
    }

    /// Closes the journal and says how it went.
    fn finish(self, step: Step, args: &Args, shown_path: &str) -> anyhow::Result<Outcome> {
        let interrupted = step == Step::Stop;
        let Book { mut output, progress, prepared, rows, counts, .. } = self.book;
        output.journal.append(&Entry::SweepEnd(SweepEnd {
            time: clock::now_utc(),
            interrupted,
            counts: counts.clone(),
        }))?;
        drop(progress);
        let table = parse_csv(&format!("{}{rows}", render_header()))
            .map_err(|error| anyhow::anyhow!("the rows of this sweep are not CSV: {error}"))?;
        terminal::log(&render_summary(&prepared.grid, &table));
        terminal::data(shown_path);
        if interrupted {
            terminal::log(&format!(
                "sweep: interrupted; go on with `cargo xtask sweep --resume {shown_path}`"
            ));
            return Ok(Outcome::Interrupted);
        }
        let is_violation =
            |key: &str| key.starts_with("FAIL:") || (args.strict && key.starts_with("SKIP:"));
        let violated = counts.keys().any(|key| is_violation(key));
        Ok(if violated { Outcome::Violation } else { Outcome::Done })
    }
}

/// What is written down of a sweep: its files, its counts, and how long cells take.
struct Book<'a> {
    prepared: &'a Prepared,
    output: Output,
    progress: Progress,
    durations: Durations,
    counts: BTreeMap<String, u64>,
    /// Everything below the CSV's header.
    rows: String,
    done_cells: usize,
}

impl Book<'_> {
    /// The one place where a cell becomes a row: first in the journal, then in the CSV.
    fn keep(&mut self, cell: Cell<'_>, end: &End, launched: bool) -> anyhow::Result<()> {
        let class = end.classification();
        let outcome = match end {
            End::Ran(outcome) => Some(outcome.as_ref()),
            _ => None,
        };
        let row = (!end.was_interrupted())
            .then(|| self.output.scrub.text(&self.render_row(cell, class, outcome)));
        let numbers = outcome.and_then(|outcome| outcome.numbers.as_ref().ok());
        self.output.journal.append(&Entry::CellEnd(Box::new(CellEnd {
            time: clock::now_utc(),
            model: cell.name(),
            prompt_target_len: cell.len,
            classification: class,
            row: row.clone(),
            launched: launched || outcome.is_some(),
            reason: render_reason(end),
            evidence: outcome.filter(|_| row.is_some()).map(CellOutcome::evidence),
            process: outcome.map(CellOutcome::process_note),
            report: numbers
                .filter(|_| row.is_some())
                .and_then(|numbers| numbers.report_json.clone()),
        })))?;
        let Some(row) = row else { return Ok(()) };
        self.output.csv.append(&row)?;
        self.rows.push_str(&row);
        if let Some(outcome) = outcome {
            self.durations.note(&cell.name(), cell.len, outcome.end.wall.as_secs_f64() * 1e3);
        }
        self.count(class);
        Ok(())
    }

    /// A row's line. What a cell that was not measured cannot know (the engine's version) is what
    /// the runner said of itself, or empty.
    fn render_row(
        &self,
        cell: Cell<'_>,
        class: Option<Classification>,
        outcome: Option<&CellOutcome>,
    ) -> String {
        let measured = match (class, outcome.map(|outcome| &outcome.numbers)) {
            (None, Some(Ok(numbers))) => numbers.measured,
            _ => Measured::default(),
        };
        let engine = outcome.and_then(report_of).map(|report| &report.engine);
        let version = engine.and_then(|engine| engine.version.clone());
        let build = engine.and_then(|engine| engine.build_type.clone());
        let prepared = self.prepared;
        render_row(&Row {
            model: cell.name(),
            model_path: cell.model.tracked_path.clone(),
            measured,
            date: clock::today(),
            hardware: prepared.target.hardware.clone(),
            engine_version: version.or_else(|| prepared.engine_version.clone()).unwrap_or_default(),
            build_type: build
                .or_else(|| prepared.runner.build.as_ref().map(|_| "release".to_owned()))
                .unwrap_or_default(),
            max_tokens: prepared.config.max_tokens,
            prompt: String::new(),
            prompt_target_len: cell.len,
            classification: class,
        })
    }

    fn count(&mut self, class: Option<Classification>) {
        let key = class.map_or(MEASURED, Classification::token);
        *self.counts.entry(key.to_owned()).or_default() += 1;
        self.done_cells += 1;
    }

    /// Cells done, counts by class, and the time that is left.
    fn render_standing(&self, guard: &Guard) -> String {
        let counts: Vec<String> =
            self.counts.iter().map(|(key, count)| format!("{count} {key}")).collect();
        let grid = &self.prepared.grid;
        let left: Vec<(String, u64)> = grid
            .cells()
            .skip(self.done_cells)
            .filter(|cell| guard.admit(*cell) == Admission::Launch)
            .map(|cell| (cell.name(), cell.len))
            .collect();
        let eta = self.durations.estimate(left.iter().map(|(name, len)| (name.as_str(), *len)));
        let eta = eta.map(|left| format!(", {} left", render_duration(left))).unwrap_or_default();
        let total = grid.cell_count();
        let eta = if self.done_cells < total { eta } else { String::new() };
        format!(" — {}/{total}: {}{eta}", self.done_cells, counts.join(", "))
    }
}

/// One cell's lines in the book.
struct Entries<'b, 'a> {
    book: &'b mut Book<'a>,
    cell: Cell<'b>,
}

impl Ledger for Entries<'_, '_> {
    fn note_launch(&mut self, note: LaunchNote) -> anyhow::Result<()> {
        let LaunchNote { time, boot, command, environment } = note;
        let set = |(name, value): (String, Option<String>)| Some((name, value?));
        self.book.output.journal.append(&Entry::CellLaunch(CellLaunch {
            time,
            model: self.cell.name(),
            prompt_target_len: self.cell.len,
            command: tracked_command(&command, self.cell),
            environment: environment.into_iter().filter_map(set).collect(),
            boot: Some(boot),
        }))
    }

    fn note_end(&mut self, end: &End) -> anyhow::Result<()> {
        self.book.keep(self.cell, end, false)
    }
}

/// A command line without the user's own paths: a model outside the workspace shows its name alone.
fn tracked_command(command: &[String], cell: Cell<'_>) -> Vec<String> {
    command.iter().map(|arg| arg.replace(&cell.model.path, &cell.model.tracked_path)).collect()
}

fn report_of(outcome: &CellOutcome) -> Option<&CellReport> {
    outcome.numbers.as_ref().ok()?.report.as_ref()
}

/// Why a cell has no numbers, where no process says so.
fn render_reason(end: &End) -> Option<String> {
    match end {
        End::Refused { reason, .. } | End::NotStarted(reason) => Some(reason.clone()),
        End::Faked(_) => Some("faked".to_owned()),
        End::Ran(outcome) if !outcome.was_interrupted() => None,
        End::Ran(_) | End::Interrupted => Some("interrupted".to_owned()),
    }
}

/// What became of a cell, as the terminal shows it.
fn render_end(cell: Cell<'_>, end: &End) -> String {
    let class = end.classification();
    let tag = match class {
        None => "done",
        Some(Classification::FailMissingModel) => "miss",
        Some(class) if class.is_failure() => "fail",
        Some(Classification::Oom) if matches!(end, End::Ran(_)) => "oom ",
        Some(_) => "skip",
    };
    let said = match end {
        End::Ran(outcome) => match &outcome.numbers {
            Ok(numbers) if class.is_none() => render_measured(&numbers.measured),
            _ => outcome.describe(),
        },
        _ => render_reason(end).unwrap_or_default(),
    };
    let said = match class {
        None => said,
        Some(class) => format!("{class}: {said}"),
    };
    let took = match end {
        End::Ran(outcome) => format!(" ({:.1} s)", outcome.end.wall.as_secs_f64()),
        _ => String::new(),
    };
    format!("[{tag}] {} @ {}: {said}{took}", cell.name(), cell.len)
}

fn render_measured(measured: &Measured) -> String {
    let speed =
        |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.2} tok/s"));
    let parts: Vec<String> =
        [speed("prefill", measured.prefill_tok_s), speed("decode", measured.decode_tok_s)]
            .into_iter()
            .flatten()
            .collect();
    parts.join(", ")
}

/// How long cells took in earlier sweeps on this hardware.
fn read_durations(root: &Path, hardware: &str) -> Durations {
    let mut durations = Durations::default();
    let journals: Vec<PathBuf> = files::list_files(&root.join("benchmarks"))
        .into_iter()
        .filter(|path| path.to_string_lossy().ends_with(".csv.journal.jsonl"))
        .collect();
    for path in journals {
        let Ok(text) = files::read_text(&path) else { continue };
        let journal = parse_journal(&text);
        if journal.start().is_none_or(|start| start.settings.hardware != hardware) {
            continue;
        }
        for end in journal.cell_ends() {
            if let Some(process) = &end.process {
                durations.note(&end.model, end.prompt_target_len, process.wall_ms);
            }
        }
    }
    durations
}
