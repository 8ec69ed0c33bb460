//! Cell by cell: gate, launch, classify, write; and what is left to say at the end.
//!
//! The order of writing is what makes a kill at any moment harmless: `cell_launch` is on disk before
//! the launch, `cell_end` with the row before the record and the CSV.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::output::Output;
use super::prepare::Prepared;
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::classify::{Classification, ExitKind};
use crate::cell::grid::Cell;
use crate::cell::guard::Admission;
use crate::cell::journal::{CellEnd, CellLaunch, CellState, Entry, SweepEnd, parse_journal};
use crate::cell::row::{Row, parse_csv, render_header, render_row};
use crate::cell::run::{CellOutcome, report_path, run_cell};
use crate::cell::runner::Measured;
use crate::oom_record::{OomEntry, RECORD_PATH, file as record_file};
use crate::sweep::args::Args;
use crate::sweep::eta::{Durations, render_duration};
use crate::sweep::table::render_summary;
use crate::sys::interrupt::Interrupt;
use crate::sys::progress::Progress;
use crate::sys::{clock, files, git, terminal};

/// The key of measured cells in counts.
const MEASURED: &str = "measured";

/// A sweep that is running.
struct Sweep<'a> {
    root: &'a Path,
    prepared: Prepared,
    output: Output,
    interrupt: Interrupt,
    progress: Progress,
    /// A folder for reports, which goes with the sweep.
    scratch: tempfile::TempDir,
    commit: String,
    durations: Durations,
    counts: BTreeMap<String, u64>,
    /// Everything below the CSV's header.
    rows: String,
    retry_lost: bool,
    done_cells: usize,
}

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    Stop,
}

/// Runs what is left of the grid.
pub(super) fn run(
    root: &Path,
    args: &Args,
    prepared: Prepared,
    output: Output,
    interrupt: Interrupt,
) -> anyhow::Result<Outcome> {
    let mut sweep = Sweep {
        root,
        interrupt,
        progress: Progress::start(prepared.grid.cell_count()),
        scratch: files::create_scratch(&root.join("target/sweep"), "run-")?,
        commit: git::read_git_state(root).commit,
        durations: read_durations(root, &prepared.settings.hardware),
        counts: BTreeMap::new(),
        rows: output.earlier.rows(),
        retry_lost: args.retry_lost,
        done_cells: 0,
        prepared,
        output,
    };
    sweep.progress.log(&format!("sweep: writing `{}`", sweep.shown_path()));
    let step = sweep.do_cells().hint(format!(
        "what is finished is on disk; when the cause is gone, go on with `cargo xtask sweep --resume \
         {}`",
        sweep.shown_path()
    ))?;
    sweep.finish(step, args)
}

impl Sweep<'_> {
    /// Everything that is left to do, in order.
    fn do_cells(&mut self) -> anyhow::Result<Step> {
        self.take_up_earlier()?;
        let grid = self.prepared.grid.clone();
        for cell in grid.cells() {
            if self.do_cell(cell)? == Step::Stop {
                return Ok(Step::Stop);
            }
        }
        Ok(Step::Next)
    }

    /// Knows again what the journal of a resumed sweep knew.
    fn take_up_earlier(&mut self) -> anyhow::Result<()> {
        let ends: Vec<CellEnd> = self.output.earlier.cell_ends().cloned().collect();
        for end in &ends {
            if end.classification.is_some_and(Classification::is_true_oom) {
                self.prepared.gate.note_true_oom(&end.model, end.prompt_target_len);
            }
        }
        // The kill may have come between the last cell's end and its line in the record.
        let Some(last) = ends.last() else { return Ok(()) };
        if last.classification.is_some_and(Classification::is_true_oom) {
            let source = self.source_csv();
            let is_recorded = self.prepared.record.entries().any(|(entry, _)| {
                entry.model == last.model
                    && entry.prompt_target_len == last.prompt_target_len
                    && entry.source_csv == source
            });
            if !is_recorded {
                let peak = last.process.as_ref().and_then(|process| process.rss_peak_bytes);
                self.append_record(&last.model, last.prompt_target_len, peak)?;
            }
        }
        Ok(())
    }

    fn do_cell(&mut self, cell: Cell<'_>) -> anyhow::Result<Step> {
        if self.interrupt.is_set() {
            return Ok(Step::Stop);
        }
        let state = self.output.earlier.cell_state(&cell.model.name, cell.len);
        match (state, self.retry_lost) {
            (CellState::Finished(class), _) => {
                self.count(class);
                return Ok(Step::Next);
            }
            (CellState::LostWithRow, false) => {
                self.count(Some(Classification::FailHostLost));
                return Ok(Step::Next);
            }
            (CellState::Lost, false) => {
                let reason = "the host or the harness was lost during it; --retry-lost launches it \
                              again";
                let class = Classification::FailHostLost;
                return self.end_without_launch(cell, class, reason, true);
            }
            (CellState::Open, _) | (CellState::Lost | CellState::LostWithRow, true) => {}
        }
        match self.prepared.gate.admit(cell) {
            Admission::Launch => self.launch(cell),
            Admission::Fake(class) => self.end_without_launch(cell, class, "faked", false),
            Admission::Refuse { class, reason } => {
                self.end_without_launch(cell, class, &reason, false)
            }
        }
    }

    /// Writes the row of a cell that is not launched now.
    fn end_without_launch(
        &mut self,
        cell: Cell<'_>,
        class: Classification,
        reason: &str,
        launched: bool,
    ) -> anyhow::Result<Step> {
        let end = CellEnd {
            classification: Some(class),
            row: Some(self.row(cell, Some(class), Measured::default(), None)),
            launched,
            reason: Some(reason.to_owned()),
            ..self.end_of(cell)
        };
        let tag = match class {
            Classification::FailMissingModel => "miss",
            class if class.is_failure() => "fail",
            _ => "skip",
        };
        let (name, len) = (&cell.model.name, cell.len);
        self.end_cell(cell, end, &format!("[{tag}] {name} @ {len}: {class}: {reason}"))?;
        Ok(Step::Next)
    }

    fn launch(&mut self, cell: Cell<'_>) -> anyhow::Result<Step> {
        self.show_status(cell);
        let report = report_path(self.root, self.scratch.path());
        let (launch, command) = self.prepared.launch_of(self.root, Some(cell), &report);
        let (_, environment) = crate::cell::run::command_of(&launch);
        self.output.journal.append(&Entry::CellLaunch(CellLaunch {
            time: clock::now_utc(),
            model: cell.model.name.clone(),
            prompt_target_len: cell.len,
            command: tracked_command(&command, cell),
            environment,
        }))?;
        let outcome = match run_cell(&launch, self.interrupt) {
            Ok(outcome) => outcome,
            Err(error) => {
                let reason = format!("{error:#}");
                return self.end_without_launch(cell, Classification::FailBench, &reason, false);
            }
        };
        if outcome.was_interrupted() {
            let end = CellEnd {
                launched: true,
                reason: Some("interrupted".to_owned()),
                process: Some(outcome.process_note()),
                ..self.end_of(cell)
            };
            self.output.journal.append(&Entry::CellEnd(Box::new(end)))?;
            return Ok(Step::Stop);
        }
        self.end_launched(cell, &outcome)?;
        let pause = self.prepared.cooldown(self.was_hard(&outcome));
        let may_go_on =
            self.done_cells == self.prepared.grid.cell_count() || self.interrupt.sleep(pause);
        Ok(if may_go_on { Step::Next } else { Step::Stop })
    }

    fn end_launched(&mut self, cell: Cell<'_>, outcome: &CellOutcome) -> anyhow::Result<()> {
        let wall_ms = outcome.end.wall.as_secs_f64() * 1e3;
        self.durations.note(&cell.model.name, cell.len, wall_ms);
        let class = outcome.classification;
        let numbers = outcome.numbers.as_ref().ok();
        let measured = match (class, numbers) {
            (None, Some(numbers)) => numbers.measured,
            _ => Measured::default(),
        };
        let row = self.row(cell, class, measured, numbers.and_then(|n| n.report.as_ref()));
        let end = CellEnd {
            classification: class,
            row: Some(row),
            launched: true,
            evidence: Some(outcome.evidence()),
            process: Some(outcome.process_note()),
            report: numbers.and_then(|numbers| numbers.report_json.clone()),
            ..self.end_of(cell)
        };
        self.check_backend(numbers.and_then(|numbers| numbers.report.as_ref()));
        let text = match class {
            None => render_measured(&measured),
            Some(class) => format!("{class}: {}", render_evidence(outcome)),
        };
        let tag = match class {
            None => "done",
            Some(Classification::Oom) => "oom ",
            Some(_) => "fail",
        };
        let line = format!(
            "[{tag}] {} @ {}: {text} ({:.1} s)",
            cell.model.name,
            cell.len,
            outcome.end.wall.as_secs_f64()
        );
        self.end_cell(cell, end, &line)?;
        if class.is_none() {
            self.hint_stale_record(cell);
        }
        Ok(())
    }

    /// The one place where a cell becomes a row: journal, record, CSV, in this order.
    fn end_cell(&mut self, cell: Cell<'_>, mut end: CellEnd, line: &str) -> anyhow::Result<()> {
        let row = end.row.take().map(|row| self.output.scrub.text(&row)).unwrap_or_default();
        end.row = Some(row.clone());
        let class = end.classification;
        let peak = end.process.as_ref().and_then(|process| process.rss_peak_bytes);
        self.output.journal.append(&Entry::CellEnd(Box::new(end)))?;
        if class.is_some_and(Classification::is_true_oom) {
            self.prepared.gate.note_true_oom(&cell.model.name, cell.len);
            self.append_record(&cell.model.name, cell.len, peak)?;
        }
        self.output.csv.append(&row)?;
        self.rows.push_str(&row);
        self.count(class);
        let rest = if self.progress.is_plain() { self.render_standing() } else { String::new() };
        self.progress.log(&format!("{line}{rest}"));
        Ok(())
    }

    fn append_record(&self, model: &str, len: u64, peak: Option<u64>) -> anyhow::Result<()> {
        let entry = OomEntry {
            model: model.to_owned(),
            prompt_target_len: len,
            date: clock::today(),
            commit: self.commit.clone(),
            peak_bytes: peak,
            source_csv: self.source_csv(),
        };
        record_file::append_entry(&self.root.join(RECORD_PATH), &entry)
    }

    /// The CSV's path, as the record has it.
    fn source_csv(&self) -> String {
        let path = &self.output.csv_path;
        path.strip_prefix(self.root).unwrap_or(path).to_string_lossy().into_owned()
    }

    fn shown_path(&self) -> String {
        self.source_csv()
    }

    fn end_of(&self, cell: Cell<'_>) -> CellEnd {
        CellEnd {
            time: clock::now_utc(),
            model: cell.model.name.clone(),
            prompt_target_len: cell.len,
            ..CellEnd::default()
        }
    }

    /// A row's line. What a cell that was not measured cannot know (the engine's version) is what
    /// the runner said of itself, or empty.
    fn row(
        &self,
        cell: Cell<'_>,
        classification: Option<Classification>,
        measured: Measured,
        report: Option<&formats::cell_report::CellReport>,
    ) -> String {
        let engine = report.map(|report| &report.engine);
        let version = engine.and_then(|engine| engine.version.clone());
        let build = engine.and_then(|engine| engine.build_type.clone());
        render_row(&Row {
            model: cell.model.name.clone(),
            model_path: cell.model.tracked_path.clone(),
            measured,
            date: clock::today(),
            hardware: self.prepared.target.hardware.clone(),
            engine_version: version
                .or_else(|| self.prepared.engine_version.clone())
                .unwrap_or_default(),
            build_type: build
                .or_else(|| self.prepared.runner.build.as_ref().map(|_| "release".to_owned()))
                .unwrap_or_default(),
            max_tokens: self.prepared.config.max_tokens,
            prompt: String::new(),
            prompt_target_len: cell.len,
            classification,
        })
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
    fn check_backend(&self, report: Option<&formats::cell_report::CellReport>) {
        let measured = report.and_then(|report| report.device.backend.as_deref());
        let named = self.prepared.target.backend.name();
        if let Some(measured) = measured
            && measured != named
        {
            self.progress.log(&format!(
                "warning: the runner computed on `{measured}`, but this file is named for \
                 `{named}`; `device = \"cpu\"` in the definition says so"
            ));
        }
    }

    /// A cell that runs although the record holds it shows that the record is stale.
    fn hint_stale_record(&self, cell: Cell<'_>) {
        let name = &cell.model.name;
        if let Some((_, line)) = self.prepared.record.blocking(name, cell.len) {
            let word = if name.contains([' ', '\'', '"', '*', '$']) {
                format!("'{}'", name.replace('\'', "'\\''"))
            } else {
                name.clone()
            };
            self.progress.log(&format!(
                "hint: `{line}` is stale: {name} ran at {} tokens; `cargo xtask oom-record prune \
                 --model {word}` drops it",
                cell.len
            ));
        }
    }

    fn count(&mut self, class: Option<Classification>) {
        let key = class.map_or(MEASURED, Classification::token);
        *self.counts.entry(key.to_owned()).or_default() += 1;
        self.done_cells += 1;
    }

    fn show_status(&self, cell: Cell<'_>) {
        let standing = self.render_standing();
        let status = format!("{} @ {}{standing}", cell.model.name, cell.len);
        self.progress.set_status(self.done_cells, &status);
    }

    /// Cells done, counts by class, and the time that is left.
    fn render_standing(&self) -> String {
        let counts: Vec<String> =
            self.counts.iter().map(|(key, count)| format!("{count} {key}")).collect();
        let left = self
            .prepared
            .grid
            .cells()
            .skip(self.done_cells)
            .filter(|cell| self.prepared.gate.admit(*cell) == Admission::Launch);
        let names: Vec<(String, u64)> =
            left.map(|cell| (cell.model.name.clone(), cell.len)).collect();
        let eta = self.durations.estimate(names.iter().map(|(name, len)| (name.as_str(), *len)));
        let eta = eta.map(|left| format!(", {} left", render_duration(left))).unwrap_or_default();
        let total = self.prepared.grid.cell_count();
        let eta = if self.done_cells < total { eta } else { String::new() };
        format!(" — {}/{total}: {}{eta}", self.done_cells, counts.join(", "))
    }

    /// Closes the journal and says how it went.
    fn finish(mut self, step: Step, args: &Args) -> anyhow::Result<Outcome> {
        let interrupted = step == Step::Stop;
        self.output.journal.append(&Entry::SweepEnd(SweepEnd {
            time: clock::now_utc(),
            interrupted,
            counts: self.counts.clone(),
        }))?;
        let shown_path = self.shown_path();
        let Sweep { progress, prepared, rows, counts, .. } = self;
        drop(progress);
        let table = parse_csv(&format!("{}{rows}", render_header()))
            .map_err(|error| anyhow::anyhow!("the rows of this sweep are no CSV: {error}"))?;
        terminal::log(&render_summary(&prepared.grid, &table));
        terminal::data(&shown_path);
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

/// A command line without the user's own paths: a model outside the workspace shows its name alone.
fn tracked_command(command: &[String], cell: Cell<'_>) -> Vec<String> {
    command.iter().map(|arg| arg.replace(&cell.model.path, &cell.model.tracked_path)).collect()
}

/// What decided, in words.
fn render_evidence(outcome: &CellOutcome) -> String {
    use crate::cell::classify::DecidedBy;
    let end = &outcome.end;
    let exit = match end.exit {
        ExitKind::Code(code) => format!("exit code {code}"),
        ExitKind::Signal(signal) => format!("signal {signal}"),
    };
    let last_line = || end.stderr.last_lines(1).pop().map(|line| format!(": {line}"));
    match outcome.decided_by {
        DecidedBy::Pattern => {
            let line = end.pattern.as_ref().map(|found| found.line.as_str()).unwrap_or_default();
            format!("{exit}, and the output says `{line}`")
        }
        DecidedBy::Sigkill => {
            let kills = end.cgroup_oom_kills.filter(|&kills| kills > 0);
            let kernel = kills.map(|n| format!(", kernel OOM kills in this cgroup: {n}"));
            format!("{exit}, not sent by the harness{}", kernel.unwrap_or_default())
        }
        DecidedBy::Timeout => format!("{exit}, its time was up"),
        DecidedBy::NoResult | DecidedBy::Result => {
            outcome.numbers.as_ref().err().cloned().unwrap_or_default()
        }
        DecidedBy::Failure => format!("{exit}{}", last_line().unwrap_or_default()),
    }
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
