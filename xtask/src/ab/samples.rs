//! `samples.jsonl`: every run of a comparison, raw, and what they say about where it stands.
//!
//! It is the comparison's journal as well: each line is on disk before the next run starts, and the
//! result follows from these lines alone.

use std::collections::BTreeMap;

use formats::cell_report::CellReport;
use serde::{Deserialize, Serialize};

use super::config::AbPlan;
use crate::cell::classify::Classification;
use crate::cell::environment::Inherited;
use crate::cell::journal::{Evidence, ProcessNote};
use crate::cell::pins::{Pins, diff_pins};
use crate::cell::quiet::QuietNote;
use crate::cell::runner::Measured;
use crate::sys::hardware::HostFacts;
use packed::{pack, unpack};

pub(crate) mod packed;

/// The `schema` number that this version writes.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Entry {
    AbStart(Box<AbStart>),
    /// It goes on after an interruption.
    AbResume(AbResume),
    RunLaunch(RunLaunch),
    RunEnd(Box<RunEnd>),
    /// No further run is needed, or wanted.
    AbEnd(AbEnd),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AbStart {
    pub(crate) schema: u32,
    pub(crate) time: String,
    /// The day, as the folder's name has it.
    pub(crate) date: String,
    pub(crate) args: Vec<String>,
    pub(crate) plan: AbPlan,
    /// Hashes of what must not change meanwhile.
    pub(crate) identity: Identity,
    pub(crate) host: HostFacts,
    pub(crate) hardware: String,
    /// Memory that the model and everything else must fit into.
    pub(crate) device_bytes: Option<u64>,
    pub(crate) commit: String,
    pub(crate) dirty: Option<bool>,
    /// Set variables that can change what is measured, in the shell; base has the legs' removed.
    pub(crate) environment: BTreeMap<String, String>,
    /// What every run inherits besides what the runner and the legs set or remove; `None` in samples that
    /// did not note it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inherited: Option<Inherited>,
}

/// SHA-256 of what must be the same in every run, in lower-case hex.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Identity {
    /// The program of base, null and test legs.
    pub(crate) program_sha256: String,
    /// The program of the baseline leg.
    pub(crate) baseline_sha256: Option<String>,
    /// The file, or the geometry that it is generated from.
    pub(crate) model_sha256: Option<String>,
    pub(crate) runner_sha256: String,
    pub(crate) config_sha256: Option<String>,
    /// The other files that the command line names.
    #[serde(skip_serializing_if = "Pins::is_empty")]
    pub(crate) pins: Pins,
}

impl Identity {
    /// What differs from `now`, in words; empty where nothing does.
    pub(crate) fn changes(&self, now: &Identity) -> Vec<String> {
        fn short(hash: Option<&str>) -> &str {
            hash.map_or("none", |hash| hash.get(..12).unwrap_or(hash))
        }
        [
            ("the program", Some(&*self.program_sha256), Some(&*now.program_sha256)),
            (
                "the baseline program",
                self.baseline_sha256.as_deref(),
                now.baseline_sha256.as_deref(),
            ),
            ("the model", self.model_sha256.as_deref(), now.model_sha256.as_deref()),
            ("the runner's definition", Some(&*self.runner_sha256), Some(&*now.runner_sha256)),
            (
                "the comparison's definition",
                self.config_sha256.as_deref(),
                now.config_sha256.as_deref(),
            ),
        ]
        .into_iter()
        .filter(|(_, then, now)| then != now)
        .map(|(what, then, now)| format!("{what} was {} and is now {}", short(then), short(now)))
        .chain(diff_pins(&self.pins, &now.pins))
        .collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AbResume {
    pub(crate) time: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunLaunch {
    pub(crate) time: String,
    /// The block, from 0.
    pub(crate) block: usize,
    pub(crate) leg: String,
    /// Counts the tries of this slot from 0.
    pub(crate) attempt: usize,
    pub(crate) command: Vec<String>,
    /// Variables that are set, and those that are removed as null.
    pub(crate) environment: BTreeMap<String, Option<String>>,
    /// Which start of the machine it was; `None` in samples that did not note it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunStatus {
    /// Measured on a quiet machine.
    Accepted,
    /// Measured on a machine that was not quiet, and to be repeated.
    Rejected,
    /// The same, but the last try: it counts, and the verdict says so.
    Contended,
    Failed,
    /// The comparison was interrupted meanwhile: it says nothing.
    Interrupted,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunEnd {
    pub(crate) time: String,
    /// The block, from 0.
    pub(crate) block: usize,
    pub(crate) leg: String,
    /// Counts the tries of this slot from 0.
    pub(crate) attempt: usize,
    pub(crate) status: RunStatus,
    /// Why there are no numbers.
    pub(crate) classification: Option<Classification>,
    pub(crate) evidence: Evidence,
    pub(crate) process: ProcessNote,
    /// How long the pause before it was, in milliseconds.
    #[serde(default)]
    pub(crate) pause_ms: f64,
    pub(crate) quiet: QuietNote,
    /// The numbers that every runner gives.
    pub(crate) measured: Option<Measured>,
    /// The cell report, whole.
    pub(crate) report: Option<serde_json::Value>,
    /// On disk, in place of the report: what it has that the first one of the comparison has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) report_changes: Option<serde_json::Value>,
}

impl RunEnd {
    /// The report's fields that this version knows.
    pub(crate) fn cell_report(&self) -> Option<CellReport> {
        serde_json::from_value(self.report.clone()?).ok()
    }

    /// Whether its slot needs no further try.
    pub(crate) fn settles_its_slot(&self) -> bool {
        match self.status {
            RunStatus::Accepted | RunStatus::Contended | RunStatus::Failed => true,
            RunStatus::Rejected | RunStatus::Interrupted => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stop {
    FixedBlocks,
    /// Every interval of the primary metric is narrower than the margin.
    NarrowEnough,
    /// Every leg is decided, by an interval that holds at every look.
    Decided,
    MaxBlocks,
    MaxMinutes,
    Inert,
    OtherWork,
    /// Base or null, or every other leg, has no numbers.
    LegsFailed,
    Interrupted,
}

impl Stop {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Stop::FixedBlocks => "the requested number of blocks is done",
            Stop::NarrowEnough => "every interval is narrower than the margin",
            Stop::Decided => "every leg is decided",
            Stop::MaxBlocks => "the maximum number of blocks is reached",
            Stop::MaxMinutes => "the time limit is reached",
            Stop::Inert => "no leg differs from base",
            Stop::OtherWork => "the legs did different work",
            Stop::LegsFailed => "legs failed",
            Stop::Interrupted => "it was interrupted",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AbEnd {
    pub(crate) time: String,
    pub(crate) stop: Stop,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Log {
    pub(crate) start: Option<AbStart>,
    /// The ends of runs, in order.
    pub(crate) runs: Vec<RunEnd>,
    /// The first report of each leg, which its later ones are packed against; the leg's own against the
    /// first of all.
    pub(crate) first_reports: Vec<(String, serde_json::Value)>,
    /// Why it stopped, if it did; a resumption takes that back.
    pub(crate) stop: Option<Stop>,
    /// Launches that have no end.
    pub(crate) lost_launches: usize,
    /// The last launch, where it has no end.
    pub(crate) unended: Option<RunLaunch>,
    /// Numbers of the lines, from 1, that do not parse: a crash may cut a line off.
    pub(crate) unreadable_lines: Vec<usize>,
}

impl Log {
    pub(crate) fn push(&mut self, entry: Entry) {
        match entry {
            Entry::AbStart(start) => self.start = Some(*start),
            Entry::AbResume(_) => self.stop = None,
            Entry::RunLaunch(launch) => {
                self.lost_launches += 1;
                self.unended = Some(launch);
            }
            Entry::RunEnd(mut run) => {
                let changes = run.report_changes.take();
                if let Some((first, changes)) = self.first_report(&run.leg).zip(changes) {
                    run.report = Some(unpack(first, &changes));
                }
                let is_known = self.first_reports.iter().any(|(leg, _)| *leg == run.leg);
                if let Some(report) = run.report.as_ref().filter(|_| !is_known) {
                    self.first_reports.push((run.leg.clone(), report.clone()));
                }
                self.unended = None;
                self.lost_launches = self.lost_launches.saturating_sub(1);
                self.runs.push(*run);
            }
            Entry::AbEnd(end) => self.stop = Some(end.stop),
        }
    }

    /// An entry as it goes to disk: a report only as what differs from the first one.
    pub(crate) fn packed(&self, entry: Entry) -> Entry {
        let mut run = match entry {
            Entry::RunEnd(run) => run,
            other => return other,
        };
        let alike = self.first_report(&run.leg).zip(run.report.as_ref());
        if let Some(changes) = alike.and_then(|(first, report)| pack(first, report)) {
            run.report = None;
            run.report_changes = Some(changes);
        }
        Entry::RunEnd(run)
    }

    /// What a leg's next report is packed against.
    fn first_report(&self, leg: &str) -> Option<&serde_json::Value> {
        let own = self.first_reports.iter().find(|(name, _)| name == leg);
        own.or(self.first_reports.first()).map(|(_, report)| report)
    }

    /// The run that settles a slot.
    pub(crate) fn settled(&self, block: usize, leg: &str) -> Option<&RunEnd> {
        self.runs.iter().find(|run| run.block == block && run.leg == leg && run.settles_its_slot())
    }

    /// How many measured runs of a slot were rejected.
    pub(crate) fn rejected(&self, block: usize, leg: &str) -> usize {
        let is_rejected = |run: &&RunEnd| {
            run.block == block && run.leg == leg && run.status == RunStatus::Rejected
        };
        self.runs.iter().filter(is_rejected).count()
    }

    /// The run in which a leg failed.
    pub(crate) fn failure(&self, leg: &str) -> Option<&RunEnd> {
        self.runs.iter().find(|run| run.leg == leg && run.status == RunStatus::Failed)
    }

    /// Time of all runs so far with the pauses before them, in milliseconds.
    pub(crate) fn elapsed_ms(&self) -> f64 {
        self.runs.iter().map(|run| run.process.wall_ms + run.pause_ms).sum()
    }
}

/// A line that does not parse is left out and named; it is never an error, since a crash may leave
/// one.
pub(crate) fn parse_samples(text: &str) -> Log {
    let mut log = Log::default();
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(entry) => log.push(entry),
            Err(_) if line.trim().is_empty() => {}
            Err(_) => log.unreadable_lines.push(index + 1),
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(block: usize, leg: &str, attempt: usize, status: RunStatus) -> Entry {
        Entry::RunEnd(Box::new(RunEnd {
            time: String::new(),
            block,
            leg: leg.to_owned(),
            attempt,
            status,
            classification: None,
            evidence: Evidence::default(),
            process: ProcessNote { wall_ms: 10.0, ..ProcessNote::default() },
            pause_ms: 1.0,
            quiet: QuietNote::default(),
            measured: Some(Measured { decode_tok_s: Some(0.1), ..Measured::default() }),
            report: None,
            report_changes: None,
        }))
    }

    #[test]
    fn a_slot_is_settled_by_the_first_run_that_counts() {
        let mut log = Log::default();
        log.push(run(0, "base", 0, RunStatus::Rejected));
        log.push(run(0, "base", 1, RunStatus::Interrupted));
        assert_eq!(log.settled(0, "base"), None);
        log.push(run(0, "base", 1, RunStatus::Contended));
        assert_eq!(log.settled(0, "base").unwrap().attempt, 1);
        assert_eq!(log.settled(0, "test"), None);
        assert_eq!((log.rejected(0, "base"), log.elapsed_ms()), (1, 33.0));
        log.push(run(0, "test", 0, RunStatus::Failed));
        assert!(log.settled(0, "test").is_some() && log.failure("test").is_some());
    }

    #[test]
    fn lines_are_read_back_and_a_torn_one_is_named() {
        let entries = [
            Entry::RunLaunch(RunLaunch { leg: "base".to_owned(), ..RunLaunch::default() }),
            run(0, "base", 0, RunStatus::Accepted),
            Entry::RunLaunch(RunLaunch::default()),
            Entry::AbEnd(AbEnd { time: String::new(), stop: Stop::Interrupted }),
            Entry::AbResume(AbResume::default()),
        ];
        let mut text = String::new();
        for entry in &entries {
            text.push_str(&serde_json::to_string(entry).unwrap());
            text.push('\n');
        }
        text.push_str("{\"event\":\"run_e");
        let log = parse_samples(&text);
        assert_eq!((log.runs.len(), log.lost_launches, log.stop), (1, 1, None));
        assert_eq!(log.unreadable_lines, [6]);
        assert_eq!(log.runs[0].measured.unwrap().decode_tok_s, Some(0.1));
    }

    /// The recorded comparison with three hundred steps a run and forty blocks.
    #[test]
    fn the_samples_of_the_smallest_model_are_less_than_a_megabyte() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = root.join("benchmarks/ab/2026-11-30-arc-candle-alloc-cache-0-tiny");
        let text = std::fs::read_to_string(folder.join("samples.jsonl")).unwrap();
        let recorded = parse_samples(&text);
        let mut log = Log::default();
        let mut packed = String::new();
        for line in text.lines() {
            let entry = log.packed(serde_json::from_str(line).unwrap());
            packed += &format!("{}\n", serde_json::to_string(&entry).unwrap());
            log.push(entry);
        }
        assert!(packed.len() < 1_000_000, "{} bytes", packed.len());
        assert!(parse_samples(&packed).runs == recorded.runs);
    }

    #[test]
    fn changes_of_identity_are_named() {
        let then = Identity {
            program_sha256: "a".repeat(64),
            model_sha256: Some("b".repeat(64)),
            ..Identity::default()
        };
        assert_eq!(then.changes(&then), [""; 0]);
        let now = Identity { program_sha256: "c".repeat(64), model_sha256: None, ..then.clone() };
        assert_eq!(
            then.changes(&now),
            [
                "the program was aaaaaaaaaaaa and is now cccccccccccc",
                "the model was bbbbbbbbbbbb and is now none"
            ]
        );
    }
}
