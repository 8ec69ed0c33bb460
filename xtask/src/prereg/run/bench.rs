//! A run on disk: its samples, its journal, and step after step until nothing is left.
//!
//! Each step is on disk before the next. No figure is shown before every rung is in.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::launch::{Ended, Launcher};
use super::verify::Checked;
use super::{Ladder, version_of};
use crate::cell::classify::Classification;
use crate::cell::executor::Executor;
use crate::cell::quiet::QuietRule;
use crate::cell::session::{LaunchNote, Unended, judge_unended};
use crate::prereg::document::Document;
use crate::prereg::judge::{Phase, Standing, is_measured, judge};
use crate::prereg::plan::{Launch, MAX_REJECTED, Step, count_left, count_rejected, plan_step};
use crate::prereg::sample::{
    Failure, LaunchRecord, Record, RunRecord, Samples, Slot, parse_samples, total_cost_s,
};
use crate::prereg::samples::file as samples_file;
use crate::stats::location::median;
use crate::sys::files::AppendFile;
use crate::sys::json_lines::JournalFile;
use crate::sys::{boot, clock, env, files, git, host, terminal};

/// How measuring ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HowEnded {
    /// Nothing is left.
    Complete,
    /// What is left does not fit the ceiling.
    AtCeiling,
    /// The guard forbids what is left.
    Refused,
    /// Somebody ended it.
    Interrupted,
}

impl HowEnded {
    pub(super) fn word(self) -> &'static str {
        match self {
            HowEnded::Complete => "complete",
            HowEnded::AtCeiling => "ceiling",
            HowEnded::Refused => "refused",
            HowEnded::Interrupted => "interrupted",
        }
    }
}

/// A run on disk: its samples and its journal.
pub(super) struct Bench {
    pub(super) records: Vec<Record>,
    file: AppendFile,
    pub(super) journal: JournalFile,
    journal_text: String,
    boot: String,
}

impl Bench {
    /// Opens a run's folder, or makes it.
    pub(super) fn open(
        root: &Path,
        folder: &Path,
        args: &impl std::fmt::Debug,
    ) -> anyhow::Result<Bench> {
        files::create_folder(folder)?;
        let (file, text, torn) = samples_file::open_samples(&folder.join("samples.jsonl"))?;
        let Samples { records, .. } = parse_samples(&text)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("`{}/samples.jsonl` is damaged", folder.display()))?;
        let journal_path = folder.join("journal.jsonl");
        let journal_text = files::read_text_if_present(&journal_path)?.unwrap_or_default();
        let journal = if files::exists(&journal_path) {
            JournalFile::open_append(&journal_path)?
        } else {
            JournalFile::create_new(&journal_path)?
        };
        let mut journal = journal.with_scrub(env::read_scrub(root));
        let facts = host::read_host_facts()?;
        let boot = boot::read_boot_id();
        let entry = json!({
            "event": "session_start",
            "time": clock::now_utc(),
            "arguments": format!("{args:?}"),
            "git": git::read_git_state(root),
            "machine": facts.hardware(),
            "kernel": facts.kernel,
            "cores": facts.cores,
            "driver": facts.gpu.and_then(|gpu| gpu.driver),
            "environment": env::read_relevant_vars(),
            "boot": boot,
            "torn_sample": torn,
        });
        journal.append(&entry)?;
        Ok(Bench { records, file, journal, journal_text, boot })
    }

    /// Writes what is being run, where that is not on disk yet.
    pub(super) fn start(
        &mut self,
        ladder: &Ladder<'_>,
        checked: &Checked,
        again: Option<&str>,
    ) -> anyhow::Result<()> {
        if self.records.iter().any(|record| matches!(record, Record::Run(_))) {
            return Ok(());
        }
        let version = checked.version()?;
        self.append(Record::Run(RunRecord {
            name: ladder.name.clone(),
            version: version.version,
            entry_sha256: version.entry_sha256.clone(),
            date: clock::today(),
            machine: checked.machine.clone(),
            commit: checked.head.clone(),
        }))?;
        if let Some(reason) = again {
            let earlier: Vec<String> = (ladder.read_runs()?.iter())
                .filter(|stored| {
                    stored.run.as_ref().is_some_and(|run| {
                        version_of(&checked.frozen, run)
                            .is_some_and(|one| one.version == version.version)
                    })
                })
                .map(|stored| stored.name.clone())
                .collect();
            // The run that is beginning is the last of them.
            let earlier = &earlier[..earlier.len().saturating_sub(1)];
            self.append(Record::Deviation {
                text: format!("run again after {}: {reason}", earlier.join(", ")),
            })?;
        }
        Ok(())
    }

    /// Adds a record; it is on disk when this returns.
    pub(super) fn append(&mut self, record: Record) -> anyhow::Result<()> {
        self.file.append(&record.render()?)?;
        self.records.push(record);
        Ok(())
    }

    /// A launch that the machine did not survive is not repeated: what it did once it may do again.
    /// One that only the harness did not survive is.
    pub(super) fn settle_lost_launch(&mut self, document: &Document) -> anyhow::Result<()> {
        let Some(lost) = find_lost_launch(&self.journal_text, &self.boot) else { return Ok(()) };
        let Step::Launch(launch) =
            plan_step(document, &judge(document, &self.records), &self.records)
        else {
            return Ok(());
        };
        if serde_json::to_value(&launch.slot)? != lost {
            return Ok(());
        }
        terminal::log(&format!(
            "prereg: the host was lost during {}; it counts as a crash",
            launch.label
        ));
        self.append(Record::Launch(LaunchRecord {
            slot: launch.slot,
            items: launch.items,
            failed: Some(Failure {
                class: Classification::FailHostLost,
                detail: "the host went down during it".to_owned(),
            }),
            rejected: None,
            disturbed: Vec::new(),
            series: [].into(),
            token_hash: None,
            files: [].into(),
            settings: Value::Null,
            cost_s: 0.0,
        }))?;
        self.append(Record::Deviation {
            text: "the host went down during a launch, whose machine time is not known".to_owned(),
        })
    }

    /// Step after step, until nothing is left.
    pub(super) fn measure<E: Executor>(
        &mut self,
        document: &Document,
        launcher: &mut Launcher<'_, E>,
    ) -> anyhow::Result<HowEnded> {
        let mut phase = None;
        loop {
            if launcher.is_interrupted() {
                return Ok(HowEnded::Interrupted);
            }
            let standing = judge(document, &self.records);
            announce(&standing, &mut phase);
            let step = plan_step(document, &standing, &self.records);
            let (items, label) = match &step {
                Step::Finished => return Ok(HowEnded::Complete),
                Step::Launch(launch) => (&launch.items, launch.label.clone()),
                Step::Command(command) => (
                    &command.items,
                    format!("oracle {}: {}", command.oracle, command.command.join(" ")),
                ),
            };
            let Some(limit) = self.left_under_ceiling(document, &step) else {
                return self.stop_at_ceiling(document);
            };
            if let Some(build) = launcher.prepare(items, &self.records)? {
                self.append(Record::Build(build))?;
                // What the build cost may leave less for the step.
                continue;
            }
            let (ended, took) = clock::time(|| match &step {
                Step::Launch(launch) => launcher.launch(launch, limit, self),
                Step::Command(command) => launcher.command(command, limit, self),
                Step::Finished => Ok(Ended::Interrupted),
            });
            match ended? {
                Ended::Kept => {}
                Ended::Interrupted => return Ok(HowEnded::Interrupted),
                Ended::Refused(why) => {
                    self.append(Record::Stopped {
                        why: format!("{label} is not launched: {why}"),
                    })?;
                    return Ok(HowEnded::Refused);
                }
            }
            if ended_at_ceiling(self.records.last()) {
                return self.stop_at_ceiling(document);
            }
            self.journal.append(&json!({ "event": "step_end", "time": clock::now_utc() }))?;
            let left = count_left(document, &judge(document, &self.records), &self.records);
            terminal::log(&format!(
                "prereg: {label}: {:.1} s; {left} launch(es) to go; {:.1} of {} min spent",
                took.as_secs_f64(),
                total_cost_s(&self.records) / 60.0,
                document.protocol.ceiling_min
            ));
        }
    }

    /// Notes a launch before it happens.
    pub(super) fn note_launch(&mut self, launch: &Launch, note: LaunchNote) -> anyhow::Result<()> {
        let entry = json!({
            "event": "launch",
            "time": note.time,
            "boot": note.boot,
            "slot": launch.slot,
            "items": launch.items,
        });
        self.journal.append(&entry)
    }

    /// Keeps what came of a launch, which had at most `limit`.
    pub(super) fn keep_launch(
        &mut self,
        document: &Document,
        launch: &Launch,
        mut record: LaunchRecord,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let had_own_limit = limit >= Duration::from_secs_f64(document.protocol.timeout_s);
        let class = record.failed.as_ref().map(|failure| failure.class);
        if !had_own_limit && class == Some(Classification::FailTimeout) {
            record.rejected = Some(AT_CEILING.to_owned());
        } else if class.is_none()
            && !record.disturbed.is_empty()
            && document.protocol.quiet == QuietRule::Required
            && count_rejected(&self.records, &record.slot) < MAX_REJECTED
        {
            record.rejected = Some(format!("it was disturbed: {}", record.disturbed.join("; ")));
            terminal::log(&format!("prereg: {} was disturbed and is made again", launch.label));
        }
        self.append(Record::Launch(record))
    }

    /// How long the next step may take under the ceiling; `None` where it does not fit.
    fn left_under_ceiling(&self, document: &Document, step: &Step) -> Option<Duration> {
        const UNLIMITED: Duration = Duration::from_secs(u32::MAX as u64);
        if self.records.iter().any(|record| matches!(record, Record::OverCeiling { .. })) {
            return Some(UNLIMITED);
        }
        let left_s = document.protocol.ceiling_min * 60.0 - total_cost_s(&self.records);
        let needed_s = match step {
            Step::Launch(launch) => self.expected_cost_s(launch),
            _ => 0.0,
        };
        // Where the log says what a launch cost, the time here is no measure of it.
        let by_log = document.protocol.cost_field.is_some();
        (left_s > 0.0 && needed_s <= left_s)
            .then(|| if by_log { UNLIMITED } else { Duration::from_secs_f64(left_s) })
    }

    /// What a launch of this kind cost so far, at the median; 0 where none has run.
    fn expected_cost_s(&self, launch: &Launch) -> f64 {
        let costs: Vec<f64> = self
            .records
            .iter()
            .filter_map(|record| match (record, &launch.slot) {
                (
                    Record::Launch(LaunchRecord { slot: Slot::Ladder { .. }, cost_s, .. }),
                    Slot::Ladder { .. },
                ) => Some(*cost_s),
                _ => None,
            })
            .collect();
        median(&costs).unwrap_or(0.0)
    }

    /// Notes that what is left does not fit, once.
    fn stop_at_ceiling(&mut self, document: &Document) -> anyhow::Result<HowEnded> {
        if !matches!(self.records.last(), Some(Record::Stopped { .. })) {
            let why = format!(
                "it stopped at {:.1} of {} min, because what is left does not fit",
                total_cost_s(&self.records) / 60.0,
                document.protocol.ceiling_min
            );
            self.append(Record::Stopped { why })?;
        }
        Ok(HowEnded::AtCeiling)
    }
}

/// Why a launch does not count that the ceiling ended rather than its own time limit.
const AT_CEILING: &str = "it was ended at the ceiling";

fn ended_at_ceiling(last: Option<&Record>) -> bool {
    matches!(last, Some(Record::Launch(launch)) if launch.rejected.as_deref() == Some(AT_CEILING))
}

/// Says which part of the run begins. What was measured is not said before every rung is in.
fn announce(standing: &Standing, before: &mut Option<Phase>) {
    if before.as_ref() == Some(&standing.phase) {
        return;
    }
    match &standing.phase {
        Phase::ItemOracles => terminal::log("prereg: oracles"),
        Phase::Ladder { .. } => {
            let names: Vec<String> = standing
                .ladder
                .iter()
                .filter(|rung| is_measured(rung))
                .map(|rung| rung.name.clone())
                .collect();
            for drop in &standing.dropped {
                terminal::log(&format!("prereg: without {}", drop.item));
            }
            terminal::log(&format!("prereg: ladder {}", names.join(", ")));
        }
        _ => {}
    }
    *before = Some(standing.phase.clone());
}

/// The slot of the last launch in the journal, if it has no end and the machine was started anew since.
fn find_lost_launch(journal: &str, boot: &str) -> Option<Value> {
    let entries: Vec<Value> =
        journal.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = entries.iter().rev().find(|entry| {
        ["launch", "step_end", "run_end"].iter().any(|event| entry["event"] == *event)
    })?;
    let was_lost = judge_unended(last["boot"].as_str(), boot) == Unended::HostLost;
    (last["event"] == "launch" && was_lost).then(|| last["slot"].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_lost_only_with_the_machine() {
        let launch = r#"{"event":"launch","boot":"aa","slot":{"stage":"ladder","rung":"C"}}"#;
        let end = r#"{"event":"step_end"}"#;
        let lost = find_lost_launch(launch, "bb").unwrap();
        assert_eq!(lost["rung"], "C");
        assert_eq!(find_lost_launch(launch, "aa"), None);
        assert_eq!(find_lost_launch(&format!("{launch}\n{end}"), "bb"), None);
        assert_eq!(find_lost_launch("", "bb"), None);
        // A torn line is no entry.
        assert!(find_lost_launch(&format!("{launch}\n{{\"event\":\"ste"), "bb").is_some());
    }
}
