//! What is written down of a running sweep: the journal, the CSV, the counts, and how long cells take.
//!
//! The order of writing is what makes a kill at any moment harmless: the launch is on disk before it
//! happens, the end with its row before the CSV has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use formats::cell_report::CellReport;

use super::output::Output;
use super::prepare::Prepared;
use crate::cell::classify::Classification;
use crate::cell::grid::Cell;
use crate::cell::guard::{Admission, Guard};
use crate::cell::journal::{CellEnd, CellLaunch, Entry, Journal, Repeats, SweepEnd, parse_journal};
use crate::cell::outcome::CellOutcome;
use crate::cell::row::{Row, Table, parse_csv, render_header, render_row};
use crate::cell::runner::Measured;
use crate::cell::session::{End, LaunchNote, Ledger};
use crate::sweep::eta::{Durations, render_duration};
use crate::sweep::repeats::pick_median_of;
use crate::sweep::status::render_reason;
use crate::sweep::table::Marks;
use crate::sys::progress::Progress;
use crate::sys::{clock, files};

/// The key of measured cells in counts.
const MEASURED: &str = "measured";

pub(super) struct Book<'a> {
    prepared: &'a Prepared,
    pub(super) output: Output,
    pub(super) progress: Progress,
    durations: Durations,
    counts: BTreeMap<String, u64>,
    /// Everything below the CSV's header.
    rows: String,
    pub(super) done_cells: usize,
    marks: Marks,
}

impl<'a> Book<'a> {
    pub(super) fn open(root: &Path, prepared: &'a Prepared, output: Output) -> Book<'a> {
        Book {
            prepared,
            progress: Progress::start(prepared.grid.cell_count()),
            durations: read_durations(root, &prepared.settings.hardware),
            counts: BTreeMap::new(),
            rows: output.earlier.rows(),
            done_cells: 0,
            marks: marks_of(&output.earlier),
            output,
        }
    }

    /// The one place where a cell becomes a row: first in the journal, then in the CSV.
    pub(super) fn keep(&mut self, cell: Cell<'_>, end: &End, launched: bool) -> anyhow::Result<()> {
        self.note(cell, end, launched, None, None)
    }

    /// The row of a cell that was measured more than once: the end of the run in the middle.
    pub(super) fn keep_median(
        &mut self,
        cell: Cell<'_>,
        end: &End,
        repeats: Repeats,
    ) -> anyhow::Result<()> {
        self.note(cell, end, false, None, Some(repeats))
    }

    /// The row of a cell whose runs are all in the journal, while a kill kept the row from it. Nothing is
    /// launched: what was measured is what the row says.
    pub(super) fn keep_earlier_runs(
        &mut self,
        cell: Cell<'_>,
        runs: &[CellEnd],
    ) -> anyhow::Result<()> {
        let (median, repeats) = pick_median_of(runs);
        let run = &runs[median];
        let report: Option<CellReport> =
            run.report.clone().and_then(|json| serde_json::from_value(json).ok());
        let values = RowValues {
            class: None,
            measured: run.measured.unwrap_or_default(),
            report: report.as_ref(),
            date: clock::day_of(&run.time).unwrap_or_else(clock::today),
        };
        let row = self.output.scrub.text(&self.render_row(cell, values));
        self.output.journal.append(&Entry::CellEnd(Box::new(CellEnd {
            time: clock::now_utc(),
            row: Some(row.clone()),
            reason: Some("its runs were measured before the sweep was killed".to_owned()),
            measured: None,
            repeats: Some(repeats.clone()),
            ..run.clone()
        })))?;
        self.output.csv.append(&row)?;
        self.mark(cell, run.quiet.is_some(), Some(&repeats));
        self.rows.push_str(&row);
        self.count(None);
        Ok(())
    }

    fn mark(&mut self, cell: Cell<'_>, is_disturbed: bool, repeats: Option<&Repeats>) {
        let cell = (cell.name(), cell.len);
        if is_disturbed {
            self.marks.disturbed.insert(cell.clone());
        }
        if let Some(spread_pct) = repeats.and_then(|repeats| repeats.spread_pct) {
            self.marks.spread_pct.insert(cell, spread_pct);
        }
    }

    /// Notes an end; one that is `held` for a reason has no row and leaves its cell open, but nothing
    /// that was measured is lost.
    fn note(
        &mut self,
        cell: Cell<'_>,
        end: &End,
        launched: bool,
        held: Option<&str>,
        repeats: Option<Repeats>,
    ) -> anyhow::Result<()> {
        let class = end.classification();
        let outcome = match end {
            End::Ran(outcome) => Some(outcome.as_ref()),
            _ => None,
        };
        let row = (!end.was_interrupted() && held.is_none())
            .then(|| self.output.scrub.text(&self.render_row(cell, RowValues::of(class, outcome))));
        let numbers = outcome.and_then(CellOutcome::any_numbers);
        self.output.journal.append(&Entry::CellEnd(Box::new(CellEnd {
            time: clock::now_utc(),
            model: cell.name(),
            prompt_target_len: cell.len,
            classification: class,
            row: row.clone(),
            launched: launched || outcome.is_some(),
            reason: held.map(str::to_owned).or_else(|| render_reason(end)),
            measured: numbers
                .filter(|_| class.is_some() || held.is_some())
                .map(|numbers| numbers.measured),
            repeats: repeats.clone(),
            quiet: outcome
                .and_then(|outcome| outcome.quiet.clone())
                .filter(|quiet| !quiet.disturbances.is_empty()),
            evidence: outcome
                .filter(|_| row.is_some() || held.is_some())
                .map(CellOutcome::evidence),
            process: outcome.map(CellOutcome::process_note),
            report: numbers
                .filter(|_| row.is_some() || held.is_some())
                .and_then(|numbers| numbers.report_json.clone()),
        })))?;
        let Some(row) = row else { return Ok(()) };
        self.output.csv.append(&row)?;
        self.mark(cell, end.disturbance().is_some(), repeats.as_ref());
        self.rows.push_str(&row);
        if let Some(outcome) = outcome {
            self.durations.note(&cell.name(), cell.len, outcome.end.wall.as_secs_f64() * 1e3);
        }
        self.count(class);
        Ok(())
    }

    /// A row's line. What a cell that was not measured cannot know (the engine's version) is what
    /// the runner said of itself, or empty.
    fn render_row(&self, cell: Cell<'_>, values: RowValues<'_>) -> String {
        let RowValues { class, measured, report, date } = values;
        let engine = report.map(|report| &report.engine);
        let version = engine.and_then(|engine| engine.version.clone());
        let build = engine.and_then(|engine| engine.build_type.clone());
        let prepared = self.prepared;
        render_row(&Row {
            model: cell.name(),
            model_path: cell.model.tracked_path.clone(),
            measured,
            date,
            hardware: prepared.target.hardware.clone(),
            engine_version: version.or_else(|| prepared.engine_version.clone()).unwrap_or_default(),
            build_type: build
                .or_else(|| prepared.runner.build.as_ref().map(|_| "release".to_owned()))
                .unwrap_or_default(),
            max_tokens: prepared.max_tokens_of(Some(cell)),
            prompt: String::new(),
            prompt_target_len: cell.len,
            classification: class,
        })
    }

    pub(super) fn count(&mut self, class: Option<Classification>) {
        let key = class.map_or(MEASURED, Classification::token);
        *self.counts.entry(key.to_owned()).or_default() += 1;
        self.done_cells += 1;
    }

    /// Cells done, counts by class, and the time that is left.
    pub(super) fn render_standing(&self, guard: &Guard) -> String {
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
        let eta = eta.filter(|_| !left.is_empty());
        let eta = eta.map(|left| format!(", {} left", render_duration(left))).unwrap_or_default();
        let total = grid.cell_count();
        format!(" — {}/{total}: {}{eta}", self.done_cells, counts.join(", "))
    }

    /// Notes the end of the sweep. Returns its rows, and its cells by class.
    pub(super) fn close(
        mut self,
        interrupted: bool,
        stopped: Option<String>,
    ) -> anyhow::Result<(Table, BTreeMap<String, u64>, Marks)> {
        self.output.journal.append(&Entry::SweepEnd(SweepEnd {
            time: clock::now_utc(),
            interrupted,
            stopped,
            counts: self.counts.clone(),
        }))?;
        let table = parse_csv(&format!("{}{}", render_header(), self.rows))
            .map_err(|error| anyhow::anyhow!("the rows of this sweep are not CSV: {error}"))?;
        Ok((table, self.counts, self.marks))
    }
}

/// What a row says of its cell's end.
struct RowValues<'r> {
    class: Option<Classification>,
    measured: Measured,
    /// Where the runner wrote one.
    report: Option<&'r CellReport>,
    /// `YYYY-MM-DD`.
    date: String,
}

impl<'r> RowValues<'r> {
    fn of(class: Option<Classification>, outcome: Option<&'r CellOutcome>) -> RowValues<'r> {
        let measured = match (class, outcome.map(|outcome| &outcome.numbers)) {
            (None, Some(Ok(numbers))) => numbers.measured,
            _ => Measured::default(),
        };
        RowValues { class, measured, report: outcome.and_then(report_of), date: clock::today() }
    }
}

/// One cell's lines in the book.
pub(super) struct Entries<'b, 'a> {
    pub(super) book: &'b mut Book<'a>,
    pub(super) cell: Cell<'b>,
    /// Whether the cell is launched again if this launch was disturbed.
    pub(super) may_repeat: bool,
    /// Which of several runs it is: what it measures is held until all are there.
    pub(super) run: Option<String>,
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
        let held = match end {
            _ if self.may_repeat && end.disturbance().is_some() => Some("disturbed, and repeated"),
            End::Ran(_) if end.classification().is_none() && !end.was_interrupted() => {
                self.run.as_deref()
            }
            _ => None,
        };
        self.book.note(self.cell, end, false, held, None)
    }
}

/// What an earlier part of the sweep says of its rows.
fn marks_of(earlier: &Journal) -> Marks {
    let mut marks = Marks::default();
    for end in earlier.cell_ends() {
        if end.row.is_none() || end.classification.is_some() {
            continue;
        }
        let cell = (end.model.clone(), end.prompt_target_len);
        if end.quiet.is_some() {
            marks.disturbed.insert(cell.clone());
        }
        if let Some(spread_pct) = end.repeats.as_ref().and_then(|repeats| repeats.spread_pct) {
            marks.spread_pct.insert(cell, spread_pct);
        }
    }
    marks
}

/// A command line without the user's own paths: a model outside the workspace shows its name alone.
fn tracked_command(command: &[String], cell: Cell<'_>) -> Vec<String> {
    command.iter().map(|arg| arg.replace(&cell.model.path, &cell.model.tracked_path)).collect()
}

pub(super) fn report_of(outcome: &CellOutcome) -> Option<&CellReport> {
    outcome.numbers.as_ref().ok()?.report.as_ref()
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
