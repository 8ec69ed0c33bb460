//! A run on disk: its samples and its journal.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::verify::Checked;
use super::{Ladder, SAMPLES, version_of};
use crate::cell::classify::Classification;
use crate::cell::quiet::QuietRule;
use crate::cell::session::{LaunchNote, Unended, judge_unended};
use crate::prereg::document::Document;
use crate::prereg::judge::judge;
use crate::prereg::plan::{Launch, MAX_REJECTED, Step, count_rejected, plan_step};
use crate::prereg::sample::file::open_samples;
use crate::prereg::sample::{Failure, Judging, LaunchRecord, Record, hash_line, run_in};
use crate::sys::files::AppendFile;
use crate::sys::json_lines::JournalFile;
use crate::sys::{boot, clock, env, files, git, host, terminal};

/// Why a launch that was ended by the ceiling, not by its own time limit, does not count.
const AT_CEILING: &str = "it was ended at the ceiling";

/// A run on disk.
pub(super) struct Bench {
    pub(super) records: Vec<Record>,
    samples: AppendFile,
    /// Hash of the last line of the samples.
    last_sha256: Option<String>,
    journal: JournalFile,
    /// What the journal held when the run was opened.
    earlier_journal: String,
}

impl Bench {
    /// Opens a run's folder, or creates it.
    pub(super) fn open(
        root: &Path,
        folder: &Path,
        args: &impl std::fmt::Debug,
    ) -> anyhow::Result<Bench> {
        files::create_folder(folder)?;
        let (file, samples) = open_samples(&folder.join(SAMPLES))?;
        let journal_path = folder.join("journal.jsonl");
        let earlier_journal = files::read_text_if_present(&journal_path)?;
        let journal = match &earlier_journal {
            Some(_) => JournalFile::open_append(&journal_path)?,
            None => JournalFile::create_new(&journal_path)?,
        };
        let facts = host::read_host_facts()?;
        let mut bench = Bench {
            records: samples.records,
            samples: file,
            last_sha256: samples.last_sha256,
            journal: journal.with_scrub(env::read_scrub(root)),
            earlier_journal: earlier_journal.unwrap_or_default(),
        };
        bench.journal.append(&json!({
            "event": "session_start",
            "time": clock::now_utc(),
            "arguments": format!("{args:?}"),
            "git": git::read_git_state(root),
            "machine": facts.hardware(),
            "kernel": facts.kernel,
            "cores": facts.cores,
            "driver": facts.gpu.and_then(|gpu| gpu.driver),
            "environment": env::read_relevant_vars(),
            "boot": boot::read_boot_id(),
            "torn_sample": Some(samples.torn).filter(|torn| !torn.is_empty()),
        }))?;
        Ok(bench)
    }

    /// Writes what is being run, where that is not on disk yet.
    pub(super) fn start(
        &mut self,
        ladder: &Ladder<'_>,
        checked: &Checked,
        again: Option<&str>,
    ) -> anyhow::Result<()> {
        if run_in(&self.records).is_some() {
            return Ok(());
        }
        let version = checked.version()?.version;
        self.append(Record::Run(checked.run_record(&ladder.name)?))?;
        let Some(reason) = again else { return Ok(()) };
        let is_of_this_version = |run: &_| {
            version_of(&checked.frozen, run).is_some_and(|found| found.version == version)
        };
        let mut earlier: Vec<String> = (ladder.read_runs()?.into_iter())
            .filter(|stored| stored.run.as_ref().is_some_and(is_of_this_version))
            .map(|stored| stored.name)
            .collect();
        // The last of them is the run that is beginning.
        earlier.pop();
        let text = format!("run again after {}: {reason}", earlier.join(", "));
        self.append(Record::Deviation { text })
    }

    /// Adds a record; it is on disk when this returns.
    pub(super) fn append(&mut self, record: Record) -> anyhow::Result<()> {
        let previous = match Judging::of(&self.records) {
            Judging::WithNoise => self.last_sha256.as_deref(),
            Judging::ByValue => None,
        };
        let line = record.render(previous)?;
        self.samples.append(&line)?;
        self.last_sha256 = Some(hash_line(&line));
        self.records.push(record);
        Ok(())
    }

    pub(super) fn note_step_end(&mut self) -> anyhow::Result<()> {
        self.journal.append(&json!({ "event": "step_end", "time": clock::now_utc() }))
    }

    /// Notes how this session of the run ended.
    pub(super) fn note_run_end(&mut self, how: &str) -> anyhow::Result<()> {
        let entry = json!({ "event": "run_end", "time": clock::now_utc(), "how": how });
        self.journal.append(&entry)
    }

    /// Settles a launch that has no end in the journal, by the present `boot`. One that took the
    /// machine down is a crash and is not repeated: it may do so again. One that was cut off with the
    /// harness alone says nothing, and is launched again.
    pub(super) fn settle_lost_launch(
        &mut self,
        document: &Document,
        boot: &str,
    ) -> anyhow::Result<()> {
        let Some(lost) = find_lost_launch(&self.earlier_journal, boot) else { return Ok(()) };
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
            failed: Some(Failure {
                class: Classification::FailHostLost,
                detail: "the host went down during it".to_owned(),
            }),
            ..LaunchRecord::new(launch.slot, launch.items)
        }))?;
        self.append(Record::Deviation {
            text: "the host went down during a launch, whose machine time is not known".to_owned(),
        })
    }

    /// Notes a launch before it happens.
    pub(super) fn note_launch(&mut self, launch: &Launch, note: LaunchNote) -> anyhow::Result<()> {
        self.journal.append(&json!({
            "event": "launch",
            "time": note.time,
            "boot": note.boot,
            "slot": launch.slot,
            "items": launch.items,
        }))
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
            terminal::log(&format!("prereg: {} was disturbed and is launched again", launch.label));
        }
        self.append(Record::Launch(record))
    }

    /// Whether the last launch was ended at the ceiling.
    pub(super) fn was_ended_at_ceiling(&self) -> bool {
        matches!(
            self.records.last(),
            Some(Record::Launch(launch)) if launch.rejected.as_deref() == Some(AT_CEILING)
        )
    }
}

/// The slot of the journal's last launch, if it has no end and the machine was restarted since.
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
        // A torn line is not an entry.
        assert!(find_lost_launch(&format!("{launch}\n{{\"event\":\"ste"), "bb").is_some());
    }
}
