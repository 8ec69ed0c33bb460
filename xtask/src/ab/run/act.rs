//! Block by block: check that nothing changed, wait, launch, look whether it was quiet, keep.
//!
//! The order of writing is what makes a kill at any moment harmless: `run_launch` is on disk before the
//! launch, `run_end` with everything that was seen before the next one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::output::SAMPLES;
use super::prepare::{Prepared, vars_of};
use crate::ab::analysis::check_stop;
use crate::ab::config::{Leg, Role};
use crate::ab::samples::{
    AbEnd, AbResume, AbStart, Entry, Log, RunEnd, RunLaunch, RunStatus, Stop,
};
use crate::base::scrub::Scrub;
use crate::cell::classify::Classification;
use crate::cell::quiet::file::read_host_sample;
use crate::cell::quiet::{QuietLimits, QuietNote, QuietRule, Stretch, check_quiet};
use crate::cell::run::{CellLaunch, CellOutcome, command_of, run_cell};
use crate::cell::runner::Runner;
use crate::oom_record::{OomEntry, RECORD_PATH, file as record_file};
use crate::stats::schedule::plan_block;
use crate::sys::interrupt::Interrupt;
use crate::sys::json_lines::JournalFile;
use crate::sys::progress::Progress;
use crate::sys::{clock, env, files};

/// Times that a disturbed run is repeated.
const REPEATS: usize = 2;
/// How much longer the pause before a repeated run is.
const PAUSE_BEFORE_REPEAT: Duration = Duration::from_secs(1);

/// A comparison that is running.
pub(super) struct Comparison<'a> {
    root: &'a Path,
    prepared: Prepared,
    interrupt: Interrupt,
    journal: JournalFile,
    scrub: Scrub,
    progress: Progress,
    /// A folder for reports, which goes with the comparison.
    scratch: tempfile::TempDir,
}

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    Interrupted,
}

impl<'a> Comparison<'a> {
    /// Opens the journal and says what is going to be done.
    pub(super) fn start(
        root: &'a Path,
        prepared: Prepared,
        interrupt: Interrupt,
    ) -> anyhow::Result<Comparison<'a>> {
        let path = prepared.folder.join(SAMPLES);
        let journal = if prepared.is_resumed {
            JournalFile::open_append(&path)?
        } else {
            JournalFile::create_new(&path)?
        };
        let scrub = env::read_scrub(root);
        let is_resumed = prepared.is_resumed;
        let mut comparison = Comparison {
            root,
            interrupt,
            journal: journal.with_scrub(scrub.clone()),
            scrub,
            progress: Progress::start(prepared.start.plan.max_blocks),
            scratch: files::create_scratch(&root.join("target/ab"), "run-")?,
            prepared,
        };
        let first = if is_resumed {
            Entry::AbResume(AbResume { time: clock::now_utc() })
        } else {
            Entry::AbStart(Box::new(comparison.prepared.start.clone()))
        };
        comparison.append(first)?;
        comparison.announce();
        Ok(comparison)
    }

    /// What is compared.
    pub(super) fn start_entry(&self) -> &AbStart {
        &self.prepared.start
    }

    /// What was kept so far.
    pub(super) fn log(&self) -> &Log {
        &self.prepared.log
    }

    /// Where it is kept.
    pub(super) fn folder(&self) -> &Path {
        &self.prepared.folder
    }

    /// The same, from the workspace.
    pub(super) fn shown_folder(&self) -> String {
        let folder = &self.prepared.folder;
        folder.strip_prefix(self.root).unwrap_or(folder).to_string_lossy().into_owned()
    }

    /// Runs blocks until one of the reasons to stop is there.
    ///
    /// # Errors
    ///
    /// A file that changed in the middle, a program that cannot be started, a full disk.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        let mut block = 0;
        let stop = loop {
            let minutes = self.prepared.log.elapsed_ms() / 60e3;
            if let Some(stop) = check_stop(self.start_entry(), self.log(), block, minutes) {
                break stop;
            }
            if self.run_block(block)? == Step::Interrupted {
                break Stop::Interrupted;
            }
            block += 1;
        };
        self.append(Entry::AbEnd(AbEnd { time: clock::now_utc(), stop }))?;
        self.progress.log(&format!("ab: {}", stop.describe()));
        Ok(())
    }

    fn run_block(&mut self, block: usize) -> anyhow::Result<Step> {
        let legs = self.start_entry().plan.legs.clone();
        for index in plan_block(legs.len(), self.start_entry().plan.seed, block) {
            let leg = &legs[index];
            // A leg that has failed would fail again, and one that ran out of memory must not be
            // launched again.
            if self.log().failure(&leg.name).is_none()
                && self.run_slot(block, leg)? == Step::Interrupted
            {
                return Ok(Step::Interrupted);
            }
        }
        self.report_block(block, &legs);
        Ok(Step::Next)
    }

    /// Tries until a run counts.
    fn run_slot(&mut self, block: usize, leg: &Leg) -> anyhow::Result<Step> {
        while self.log().settled(block, &leg.name).is_none() {
            let attempt = self.log().rejected(block, &leg.name);
            if self.run_once(block, leg, attempt)? == Step::Interrupted {
                return Ok(Step::Interrupted);
            }
        }
        Ok(Step::Next)
    }

    fn run_once(&mut self, block: usize, leg: &Leg, attempt: usize) -> anyhow::Result<Step> {
        for watched in &mut self.prepared.watched {
            watched.check()?;
        }
        let Some(before) = self.pause(attempt) else { return Ok(Step::Interrupted) };
        self.progress
            .set_status(block, &format!("block {}, {}, try {}", block + 1, leg.name, attempt + 1));
        let runner = self.runner_of(leg).clone();
        let launch = self.launch_of(&runner, block, leg, attempt);
        let (command, mut environment) = command_of(&launch);
        let mut shown: BTreeMap<String, Option<String>> = std::mem::take(&mut environment)
            .into_iter()
            .map(|(name, value)| (name, Some(value)))
            .collect();
        shown.extend(launch.env.iter().cloned());
        self.append(Entry::RunLaunch(RunLaunch {
            time: clock::now_utc(),
            block,
            leg: leg.name.clone(),
            attempt,
            command,
            environment: shown,
        }))?;

        let start = before.end;
        let (outcome, wall) = clock::time(|| run_cell(&launch, self.interrupt));
        let outcome = outcome?;
        let during = Stretch { start, end: read_host_sample(), wall, own: outcome.end.cpu };
        let limits = QuietLimits { max_other_load_pct: self.start_entry().plan.max_other_load_pct };
        let quiet = check_quiet(&before, &during, limits);
        let pause_ms = before.wall.as_secs_f64() * 1e3;
        let end = RunEnd { pause_ms, ..self.end_of(block, leg, attempt, &outcome, quiet) };
        self.finish_run(leg, end)
    }

    /// The pause before a run, watched: load within it is load before the run. `None` where a signal
    /// ended it.
    fn pause(&self, attempt: usize) -> Option<Stretch> {
        let mut pause = Duration::from_millis(self.start_entry().plan.cooldown_ms);
        if attempt > 0 {
            pause += PAUSE_BEFORE_REPEAT;
        }
        let start = read_host_sample();
        let (may_go_on, wall) = clock::time(|| self.interrupt.sleep(pause));
        let end = read_host_sample();
        may_go_on.then_some(Stretch { start, end, wall, own: Duration::ZERO })
    }

    fn runner_of(&self, leg: &Leg) -> &Runner {
        match (leg.role, &self.prepared.baseline_runner) {
            (Role::Baseline, Some(runner)) => runner,
            _ => &self.prepared.runner,
        }
    }

    fn launch_of<'b>(
        &self,
        runner: &'b Runner,
        block: usize,
        leg: &Leg,
        attempt: usize,
    ) -> CellLaunch<'b>
    where
        'a: 'b,
    {
        let plan = &self.start_entry().plan;
        let value_of = |name: &str| {
            leg.env.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        // The name says whose report it is, and no two launches share one.
        let report = self.scratch.path().join(format!("{block}-{}-{attempt}.json", leg.name));
        CellLaunch {
            root: self.root,
            runner,
            vars: vars_of(plan, &self.prepared.model, &report.to_string_lossy()),
            // Every variable that any leg sets is removed unless this leg sets it, whatever the
            // shell has.
            env: plan
                .variables()
                .into_iter()
                .map(|name| (name.to_owned(), value_of(name)))
                .collect(),
            timeout: Duration::from_secs_f64(plan.timeout_s),
            memory_limit_bytes: None,
        }
    }

    fn end_of(
        &self,
        block: usize,
        leg: &Leg,
        attempt: usize,
        outcome: &CellOutcome,
        quiet: QuietNote,
    ) -> RunEnd {
        let numbers = outcome.numbers.as_ref().ok().filter(|_| outcome.classification.is_none());
        let status = if outcome.was_interrupted() {
            RunStatus::Interrupted
        } else if outcome.classification.is_some() {
            RunStatus::Failed
        } else if quiet.disturbances.is_empty() || self.start_entry().plan.quiet == QuietRule::Noted
        {
            RunStatus::Accepted
        } else if attempt < REPEATS {
            RunStatus::Rejected
        } else {
            RunStatus::Contended
        };
        RunEnd {
            time: clock::now_utc(),
            block,
            leg: leg.name.clone(),
            attempt,
            status,
            classification: outcome.classification,
            evidence: outcome.evidence(),
            process: outcome.process_note(),
            pause_ms: 0.0,
            quiet,
            measured: numbers.map(|numbers| numbers.measured),
            report: numbers.and_then(|numbers| numbers.report_json.clone()),
        }
    }

    /// Keeps a run and says what it showed.
    fn finish_run(&mut self, leg: &Leg, end: RunEnd) -> anyhow::Result<Step> {
        let status = end.status;
        let is_base_oom =
            end.classification == Some(Classification::Oom) && status == RunStatus::Failed;
        let line = match status {
            RunStatus::Accepted => None,
            RunStatus::Rejected => Some(format!(
                "block {}, {}: rejected and repeated: {}",
                end.block + 1,
                leg.name,
                end.quiet.disturbances.join("; ")
            )),
            RunStatus::Contended => Some(format!(
                "block {}, {}: disturbed in every try, kept as contended: {}",
                end.block + 1,
                leg.name,
                end.quiet.disturbances.join("; ")
            )),
            RunStatus::Failed => Some(format!(
                "block {}, {}: {}",
                end.block + 1,
                leg.name,
                end.classification.map_or("failed", Classification::token)
            )),
            RunStatus::Interrupted => None,
        };
        let peak = end.process.rss_peak_bytes;
        self.append(Entry::RunEnd(Box::new(end)))?;
        if let Some(line) = line {
            self.progress.log(&line);
        }
        // What base ran out of memory at, a sweep would as well; a leg's variables say nothing of it.
        if is_base_oom && matches!(leg.role, Role::Base | Role::Null) {
            self.append_oom(peak)?;
        }
        Ok(match status {
            RunStatus::Interrupted => Step::Interrupted,
            _ if self.interrupt.is_set() => Step::Interrupted,
            _ => Step::Next,
        })
    }

    fn append_oom(&self, peak_bytes: Option<u64>) -> anyhow::Result<()> {
        let start = self.start_entry();
        let entry = OomEntry {
            model: self.prepared.model.name.clone(),
            prompt_target_len: start.plan.prompt_tokens,
            date: clock::today(),
            commit: start.commit.clone(),
            peak_bytes,
            source_csv: format!("{}/{SAMPLES}", self.shown_folder()),
        };
        record_file::append_entry(&self.root.join(RECORD_PATH), &entry)
    }

    /// Keeps an entry on disk and in mind; in mind it is what a reader of the disk would have.
    fn append(&mut self, entry: Entry) -> anyhow::Result<()> {
        self.journal.append(&entry)?;
        let line = self.scrub.text(&serde_json::to_string(&entry)?);
        self.prepared.log.push(serde_json::from_str(&line)?);
        Ok(())
    }

    fn announce(&self) {
        let plan = &self.start_entry().plan;
        let legs: Vec<String> = plan
            .legs
            .iter()
            .map(|leg| {
                let env: Vec<String> =
                    leg.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
                if env.is_empty() {
                    leg.name.clone()
                } else {
                    format!("{} ({})", leg.name, env.join(" "))
                }
            })
            .collect();
        let blocks = if plan.min_blocks == plan.max_blocks {
            format!("{} blocks", plan.min_blocks)
        } else {
            format!(
                "{} to {} blocks, until the interval is narrower than {} %{}",
                plan.min_blocks,
                plan.max_blocks,
                plan.margin_pct,
                plan.max_minutes.map_or(String::new(), |m| format!(" or {m} minutes have passed"))
            )
        };
        self.progress.log(&format!(
            "ab: {} on {}, {} prompt tokens, {} generated; {blocks}; seed {}; writing `{}`",
            legs.join(", "),
            plan.model,
            plan.prompt_tokens,
            plan.max_tokens,
            plan.seed,
            self.shown_folder()
        ));
    }

    fn report_block(&self, block: usize, legs: &[Leg]) {
        let speeds: Vec<String> = legs
            .iter()
            .map(|leg| {
                let speed = self
                    .log()
                    .settled(block, &leg.name)
                    .and_then(|run| run.measured?.decode_tok_s)
                    .map_or("—".to_owned(), |speed| format!("{speed:.2}"));
                format!("{} {speed}", leg.name)
            })
            .collect();
        let line = format!("block {}: {} tok/s", block + 1, speeds.join(", "));
        self.progress.set_status(block + 1, &line);
        if self.progress.is_plain() {
            self.progress.log(&line);
        }
    }
}
