//! Block by block: check that nothing changed, wait, launch, look whether it was quiet, keep.
//!
//! The order of writing is what makes a kill at any moment harmless: `run_launch` is on disk before the
//! launch, `run_end` with everything that was seen before the next one.

use std::path::Path;
use std::time::Duration;

use super::output::SAMPLES;
use super::prepare::Prepared;
use crate::ab::analysis::check_stop;
use crate::ab::config::{BASE, Leg, NULL};
use crate::ab::samples::{
    AbEnd, AbResume, AbStart, Entry, Log, RunEnd, RunLaunch, RunStatus, Stop,
};
use crate::base::scrub::Scrub;
use crate::cell::classify::Classification;
use crate::cell::executor::Executor;
use crate::cell::grid::Cell;
use crate::cell::guard::Guard;
use crate::cell::journal::{Evidence, ProcessNote};
use crate::cell::outcome::CellOutcome;
use crate::cell::quiet::{QuietLimits, QuietNote, QuietRule};
use crate::cell::session::{
    End, Finder, LaunchNote, Ledger, Session, Unended, Watch, judge_unended,
};
use crate::stats::schedule::plan_block;
use crate::sys::json_lines::JournalFile;
use crate::sys::progress::Progress;
use crate::sys::{clock, env, files};

/// Times that a disturbed run is repeated.
const REPEATS: usize = 2;
/// How much longer the pause before a repeated run is.
const PAUSE_BEFORE_REPEAT: Duration = Duration::from_secs(1);

/// A comparison that is running.
pub(super) struct Comparison<'a, E> {
    root: &'a Path,
    prepared: Prepared,
    session: Session<E>,
    book: Book,
    /// A folder for reports, which goes with the comparison.
    scratch: tempfile::TempDir,
}

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    Interrupted,
}

impl<'a, E: Executor> Comparison<'a, E> {
    /// Opens the journal and says what is going to be done.
    pub(super) fn start(
        root: &'a Path,
        mut prepared: Prepared,
        guard: Guard,
        executor: E,
        is_quiet: bool,
    ) -> anyhow::Result<Comparison<'a, E>> {
        let path = prepared.folder.join(SAMPLES);
        let journal = if prepared.is_resumed {
            JournalFile::open_append(&path)?
        } else {
            JournalFile::create_new(&path)?
        };
        let scrub = env::read_scrub(root);
        let folder = &prepared.folder;
        let shown_folder =
            folder.strip_prefix(root).unwrap_or(folder).to_string_lossy().into_owned();
        let finder = Finder {
            commit: prepared.start.commit.clone(),
            source: format!("{shown_folder}/{SAMPLES}"),
            command: Some("ab"),
        };
        let is_resumed = prepared.is_resumed;
        let mut comparison = Comparison {
            root,
            session: Session::new(executor, guard, finder).watching_health(),
            book: Book {
                journal: journal.with_scrub(scrub.clone()),
                scrub,
                log: std::mem::take(&mut prepared.log),
                progress: Progress::start_unless(is_quiet, prepared.start.plan.max_blocks),
                shown_folder,
            },
            scratch: files::create_scratch(&root.join("target/ab"), "run-")?,
            prepared,
        };
        if is_resumed {
            comparison.book.append(Entry::AbResume(AbResume { time: clock::now_utc() }))?;
            comparison.settle_lost_launch()?;
        } else {
            let start = comparison.prepared.start.clone();
            comparison.book.append(Entry::AbStart(Box::new(start)))?;
        }
        comparison.announce();
        Ok(comparison)
    }

    /// A launch that the host did not survive is not repeated: what it did once it may do again.
    /// One that only the harness did not survive is.
    fn settle_lost_launch(&mut self) -> anyhow::Result<()> {
        let Some(lost) = self.book.log.unended.clone() else { return Ok(()) };
        if judge_unended(lost.boot.as_deref(), self.session.executor().boot_id())
            == Unended::HarnessKilled
        {
            return Ok(());
        }
        let RunLaunch { block, leg, attempt, .. } = lost;
        self.book.progress.log(&format!(
            "block {}, {leg}: the host was lost during it; it is not launched again",
            block + 1
        ));
        let slot = Slot { block, leg: &leg, attempt };
        let end = slot.failed(Classification::FailHostLost, "the host was lost during it");
        self.book.append(Entry::RunEnd(Box::new(end)))
    }

    /// What is compared.
    pub(super) fn start_entry(&self) -> &AbStart {
        &self.prepared.start
    }

    /// What was kept so far.
    pub(super) fn log(&self) -> &Log {
        &self.book.log
    }

    /// Where it is kept.
    pub(super) fn folder(&self) -> &Path {
        &self.prepared.folder
    }

    /// The same, from the workspace.
    pub(super) fn shown_folder(&self) -> &str {
        &self.book.shown_folder
    }

    /// Runs blocks until one of the reasons to stop is there.
    ///
    /// # Errors
    ///
    /// A file that changed during the run, a program that cannot be started, a full disk.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        let mut block = 0;
        let stop = loop {
            let minutes = self.log().elapsed_ms() / 60e3;
            if let Some(stop) = check_stop(self.start_entry(), self.log(), block, minutes) {
                break stop;
            }
            if self.run_block(block)? == Step::Interrupted {
                break Stop::Interrupted;
            }
            block += 1;
        };
        self.book.append(Entry::AbEnd(AbEnd { time: clock::now_utc(), stop }))?;
        self.book.progress.log(&format!("ab: {}", stop.describe()));
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
            // Without base there is nothing to compare with: no other leg is launched.
            if [BASE, NULL].iter().any(|name| self.log().failure(name).is_some()) {
                return Ok(Step::Next);
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
        self.book
            .progress
            .set_status(block, &format!("block {}, {}, try {}", block + 1, leg.name, attempt + 1));
        let plan = &self.prepared.start.plan;
        let mut pause = Duration::from_millis(plan.cooldown_ms);
        if attempt > 0 {
            pause += PAUSE_BEFORE_REPEAT;
        }
        let limits = QuietLimits { max_other_load_pct: plan.max_other_load_pct };
        // The name says whose report it is, and no two launches share one.
        let report = self.scratch.path().join(format!("{block}-{}-{attempt}.json", leg.name));
        let spec = self.prepared.spec_of(self.root, leg, &report);
        // What the model as it is runs out of memory at is known by its name; what a leg changes is
        // that leg's alone.
        let is_plain = leg.role.is_reference();
        let cell = Cell {
            model: &self.prepared.model,
            len: plan.prompt_tokens,
            variant: (!is_plain).then_some(leg.name.as_str()),
        };
        let mut entries = Entries {
            book: &mut self.book,
            slot: Slot { block, leg: &leg.name, attempt },
            quiet: plan.quiet,
            pause,
        };
        let end = self.session.run(
            cell,
            &spec,
            Some(Watch { pause, shortest: Duration::ZERO, limits }),
            &mut entries,
        )?;
        let is_interrupted = end.was_interrupted() || self.session.executor().is_interrupted();
        Ok(if is_interrupted { Step::Interrupted } else { Step::Next })
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
            let until = if plan.until_decided {
                "it is decided".to_owned()
            } else {
                format!("the interval is narrower than {} %", plan.margin_pct)
            };
            format!(
                "{} to {} blocks, until {until}{}",
                plan.min_blocks,
                plan.max_blocks,
                plan.max_minutes.map_or(String::new(), |m| format!(" or {m} minutes have passed"))
            )
        };
        self.book.progress.log(&format!(
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
        self.book.progress.set_status(block + 1, &line);
        if self.book.progress.is_plain() {
            self.book.progress.log(&line);
        }
    }
}

/// What is written down of a comparison.
struct Book {
    journal: JournalFile,
    scrub: Scrub,
    log: Log,
    progress: Progress,
    /// The comparison's folder, from the workspace.
    shown_folder: String,
}

impl Book {
    /// Keeps an entry on disk and in mind; in mind it is what a reader of the disk would have.
    fn append(&mut self, entry: Entry) -> anyhow::Result<()> {
        let entry = self.log.packed(entry);
        self.journal.append(&entry)?;
        let line = self.scrub.text(&serde_json::to_string(&entry)?);
        self.log.push(serde_json::from_str(&line)?);
        Ok(())
    }
}

/// The place of a run within a comparison.
#[derive(Debug, Clone, Copy)]
struct Slot<'a> {
    block: usize,
    leg: &'a str,
    attempt: usize,
}

impl Slot<'_> {
    /// A run without a process.
    fn failed(self, class: Classification, reason: &str) -> RunEnd {
        RunEnd {
            time: clock::now_utc(),
            block: self.block,
            leg: self.leg.to_owned(),
            attempt: self.attempt,
            status: RunStatus::Failed,
            classification: Some(class),
            evidence: Evidence { result_problem: Some(reason.to_owned()), ..Evidence::default() },
            process: ProcessNote::default(),
            pause_ms: 0.0,
            quiet: QuietNote::default(),
            measured: None,
            report: None,
            report_changes: None,
        }
    }

    /// A run whose process ended.
    fn ran(self, outcome: &CellOutcome, rule: QuietRule, pause: Duration) -> RunEnd {
        let numbers = outcome.numbers.as_ref().ok().filter(|_| outcome.classification.is_none());
        let quiet = outcome.quiet.clone().unwrap_or_default();
        let status = if outcome.was_interrupted() {
            RunStatus::Interrupted
        } else if outcome.classification.is_some() {
            RunStatus::Failed
        } else if quiet.disturbances.is_empty() || rule == QuietRule::Noted {
            RunStatus::Accepted
        } else if self.attempt < REPEATS {
            RunStatus::Rejected
        } else {
            RunStatus::Contended
        };
        RunEnd {
            time: clock::now_utc(),
            block: self.block,
            leg: self.leg.to_owned(),
            attempt: self.attempt,
            status,
            classification: outcome.classification,
            evidence: outcome.evidence(),
            process: outcome.process_note(),
            pause_ms: pause.as_secs_f64() * 1e3,
            quiet,
            measured: numbers.map(|numbers| numbers.measured),
            report: numbers.and_then(|numbers| numbers.report_json.clone()),
            report_changes: None,
        }
    }
}

/// One run's lines in the book.
struct Entries<'b> {
    book: &'b mut Book,
    slot: Slot<'b>,
    quiet: QuietRule,
    pause: Duration,
}

impl Ledger for Entries<'_> {
    fn note_launch(&mut self, note: LaunchNote) -> anyhow::Result<()> {
        let LaunchNote { time, boot, command, environment } = note;
        let Slot { block, leg, attempt } = self.slot;
        let (leg, boot) = (leg.to_owned(), Some(boot));
        let launch = RunLaunch { time, block, leg, attempt, command, environment, boot };
        self.book.append(Entry::RunLaunch(launch))
    }

    fn note_end(&mut self, end: &End) -> anyhow::Result<()> {
        let run = match end {
            End::Interrupted => return Ok(()),
            // It would fail in every leg alike, and says nothing of any.
            End::NotStarted(reason) => anyhow::bail!("{reason}"),
            End::Refused { class, reason } => self.slot.failed(*class, reason),
            End::Faked(class) => self.slot.failed(*class, "faked"),
            End::Ran(outcome) => self.slot.ran(outcome, self.quiet, self.pause),
        };
        let line = render_run(&run);
        self.book.append(Entry::RunEnd(Box::new(run)))?;
        if let Some(line) = line {
            self.book.progress.log(&line);
        }
        Ok(())
    }
}

/// What a reader must know of a run at once; `None` where it is as it should be.
fn render_run(run: &RunEnd) -> Option<String> {
    let said = match run.status {
        RunStatus::Accepted | RunStatus::Interrupted => return None,
        RunStatus::Rejected => {
            format!("rejected and repeated: {}", run.quiet.disturbances.join("; "))
        }
        RunStatus::Contended => {
            let disturbances = run.quiet.disturbances.join("; ");
            format!("disturbed in every try, kept as contended: {disturbances}")
        }
        RunStatus::Failed => {
            let class = run.classification.map_or("failed", Classification::token);
            match run.evidence.result_problem.as_ref().filter(|_| run.process.wall_ms == 0.0) {
                Some(reason) => format!("{class}: {reason}"),
                None => class.to_owned(),
            }
        }
    };
    Some(format!("block {}, {}: {said}", run.block + 1, run.leg))
}
