//! The journal of a sweep: its entries, and what they say about where the sweep stands.
//!
//! Pure: it defines the lines of `<csv>.journal.jsonl`, reads them back, and replays them. The row
//! of a cell is in its `cell_end`, and that is on disk before the CSV has it; so a CSV can always be
//! completed from its journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cell::classify::{Classification, DecidedBy, StopReason};
use crate::cell::evidence::{Grade, Survived};
use crate::cell::grid::Order;
use crate::cell::health::Look;
use crate::cell::length::Length;
use crate::cell::quiet::{QuietNote, SweepQuiet};
use crate::cell::runner::Measured;
use crate::cell::session::{Unended, judge_unended};
use crate::cell::variants::Variant;
use crate::sys::hardware::HostFacts;

use request::{Device, Request};

pub(crate) mod request;

/// The journal beside a CSV.
pub(crate) fn journal_path(csv: &Path) -> PathBuf {
    let mut name = csv.as_os_str().to_owned();
    name.push(".journal.jsonl");
    name.into()
}

/// The `schema` number that this version writes.
pub(crate) const SCHEMA: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Entry {
    SweepStart(Box<SweepStart>),
    CellLaunch(CellLaunch),
    /// A cell is done, launched or not.
    CellEnd(Box<CellEnd>),
    SweepEnd(SweepEnd),
}

/// What is measured, where and from what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SweepStart {
    pub(crate) time: String,
    pub(crate) schema: u32,
    /// Whether it goes on with an earlier start.
    pub(crate) resumed: bool,
    pub(crate) args: Vec<String>,
    pub(crate) request: Request,
    /// What is in force: a resumed sweep must have the same.
    pub(crate) settings: Settings,
    pub(crate) settings_sha256: String,
    pub(crate) config_sha256: String,
    /// Whether the OOM record keeps cells from being launched.
    pub(crate) record_in_force: bool,
    pub(crate) host: HostFacts,
    pub(crate) commit: String,
    /// Whether tracked files differ from it.
    pub(crate) dirty: Option<bool>,
    pub(crate) engine_version: Option<String>,
    /// Set variables that can change what is measured.
    pub(crate) environment: BTreeMap<String, String>,
    /// What a resumed sweep took over although it differs, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// Which start of the machine it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
    /// The machine before the first launch, where it has a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health: Option<Look>,
}

/// The settings that a resumed sweep must share with its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    pub(crate) config: String,
    pub(crate) runner: String,
    pub(crate) runner_sha256: String,
    /// SHA-256 of what it says, whatever its comments and the order of its keys; `None` in journals
    /// that did not note it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runner_meaning_sha256: Option<String>,
    pub(crate) program_sha256: Option<String>,
    /// The `hardware` column.
    pub(crate) hardware: String,
    pub(crate) device: Device,
    pub(crate) lengths: Vec<Length>,
    /// Numbers of streams that ask at the same time; `None` where it is one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<Vec<u64>>,
    pub(crate) max_tokens: u64,
    pub(crate) warmup_tokens: u64,
    pub(crate) threads: Option<u64>,
    pub(crate) timeout_s: f64,
    pub(crate) cooldown_s: f64,
    pub(crate) big_cooldown_s: f64,
    pub(crate) cell_memory_limit_mb: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) variants: Vec<Variant>,
    /// Whether the model as it is is measured beside them; `None` is yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plain: Option<bool>,
    /// How often each cell is measured; `None` is once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repeats: Option<u64>,
    /// `None` is model by model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<Order>,
    /// `None` in journals of sweeps that nobody watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quiet: Option<SweepQuiet>,
    /// Cells that are faked, as `MODEL:LEN:CLASS`.
    pub(crate) fake_cells: Vec<String>,
    pub(crate) models: Vec<ModelNote>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ModelNote {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) weight_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CellLaunch {
    pub(crate) time: String,
    pub(crate) model: String,
    pub(crate) prompt_target_len: u64,
    pub(crate) command: Vec<String>,
    /// Variables that were added to the environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// Which start of the machine it was; `None` in journals that did not note it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CellEnd {
    pub(crate) time: String,
    pub(crate) model: String,
    pub(crate) prompt_target_len: u64,
    /// Why there are no numbers; null where the cell was measured or interrupted.
    pub(crate) classification: Option<Classification>,
    /// The row of the CSV, line end included; null where the cell was interrupted.
    pub(crate) row: Option<String>,
    pub(crate) launched: bool,
    pub(crate) reason: Option<String>,
    pub(crate) evidence: Option<Evidence>,
    pub(crate) process: Option<ProcessNote>,
    /// What was measured, where no row shows it: the cell is launched again, or it cannot be true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<Measured>,
    /// All runs of a cell that was measured more than once; the row is that of the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repeats: Option<Repeats>,
    /// What disturbed it; `None` where it was quiet, or nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quiet: Option<QuietNote>,
    pub(crate) report: Option<serde_json::Value>,
}

/// The runs of a cell, in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Repeats {
    pub(crate) prefill_tok_s: Vec<Option<f64>>,
    pub(crate) decode_tok_s: Vec<Option<f64>>,
    /// Half of what lies between the slowest and the fastest decode, in percent of the median.
    pub(crate) spread_pct: Option<f64>,
}

/// What decided the classification of a launched cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Evidence {
    pub(crate) decided_by: Option<DecidedBy>,
    /// How well a true OOM is known; `None` where it is none, and in journals that did not note it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grade: Option<Grade>,
    /// The signature in the output, where it says why the process ended.
    pub(crate) pattern: Option<String>,
    /// The engine or interface that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api: Option<String>,
    /// The line that it was found in.
    pub(crate) line: Option<String>,
    /// A shortage in the output that the process lived through, and why that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) survived: Option<Survived>,
    /// The kernel's line about having killed the process for memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_line: Option<String>,
    pub(crate) result_problem: Option<String>,
    /// What of the result could not be read, where some of it could.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) result_notes: Vec<String>,
    /// Processes that the kernel killed for memory in this cgroup meanwhile.
    pub(crate) cgroup_oom_kills: Option<u64>,
    /// The least memory that the system had available meanwhile.
    pub(crate) available_low_bytes: Option<u64>,
    /// All the memory that there is, where a signal ended the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
    /// The last lines of stderr, where the cell failed.
    pub(crate) stderr_tail: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessNote {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// Why the harness ended it; null where it did not.
    pub(crate) stopped: Option<StopReason>,
    /// From before the start to the end.
    pub(crate) wall_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) rss_peak_bytes: Option<u64>,
    pub(crate) output_bytes: u64,
    /// Bytes of output that were not kept.
    pub(crate) omitted_output_bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SweepEnd {
    pub(crate) time: String,
    pub(crate) interrupted: bool,
    /// Why it stopped by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stopped: Option<String>,
    /// Cells by class; measured ones under `measured`.
    pub(crate) counts: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Journal {
    pub(crate) entries: Vec<Entry>,
    /// Numbers of the lines, from 1, that are not entries: a crash may cut a line off.
    pub(crate) unreadable_lines: Vec<usize>,
}

/// Reads a journal. A line that is not an entry is left out and named; it is never an error, since a
/// crash may leave one.
pub(crate) fn parse_journal(text: &str) -> Journal {
    let mut journal = Journal::default();
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(entry) => journal.entries.push(entry),
            Err(_) if line.trim().is_empty() => {}
            Err(_) => journal.unreadable_lines.push(index + 1),
        }
    }
    journal
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellState {
    /// Never launched, or interrupted: it is still to be done.
    Open,
    /// It has its row.
    Finished(Option<Classification>),
    /// It was launched and has no end, nor a row.
    Lost,
    /// It was launched and has no end; an earlier resumption gave it its row.
    LostWithRow,
}

impl Journal {
    /// The last start: what a resumed sweep is held against.
    pub(crate) fn start(&self) -> Option<&SweepStart> {
        self.entries.iter().rev().find_map(|entry| match entry {
            Entry::SweepStart(start) => Some(start.as_ref()),
            _ => None,
        })
    }

    pub(crate) fn cell_ends(&self) -> impl DoubleEndedIterator<Item = &CellEnd> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::CellEnd(end) => Some(end.as_ref()),
            _ => None,
        })
    }

    /// What the CSV holds below its header.
    pub(crate) fn rows(&self) -> String {
        self.cell_ends().filter_map(|end| end.row.as_deref()).collect()
    }

    /// Where a cell stands, by the last that is said about it, seen from the present `boot`.
    pub(crate) fn cell_state(&self, model: &str, len: u64, boot: &str) -> CellState {
        let mut state = CellState::Open;
        for entry in &self.entries {
            match entry {
                Entry::CellLaunch(launch)
                    if launch.model == model && launch.prompt_target_len == len =>
                {
                    state = match judge_unended(launch.boot.as_deref(), boot) {
                        Unended::HarnessKilled => CellState::Open,
                        Unended::HostLost => CellState::Lost,
                    };
                }
                Entry::CellEnd(end) if end.model == model && end.prompt_target_len == len => {
                    state = match (end.row.is_some(), end.classification) {
                        (false, _) => CellState::Open,
                        (true, Some(Classification::FailHostLost)) => CellState::LostWithRow,
                        (true, class) => CellState::Finished(class),
                    };
                }
                _ => {}
            }
        }
        state
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn launch(model: &str, len: u64) -> Entry {
        Entry::CellLaunch(CellLaunch {
            model: model.to_owned(),
            prompt_target_len: len,
            ..CellLaunch::default()
        })
    }

    pub(crate) fn end(
        model: &str,
        len: u64,
        class: Option<Classification>,
        row: Option<&str>,
    ) -> Entry {
        Entry::CellEnd(Box::new(CellEnd {
            model: model.to_owned(),
            prompt_target_len: len,
            classification: class,
            row: row.map(str::to_owned),
            ..CellEnd::default()
        }))
    }

    fn journal(entries: Vec<Entry>) -> Journal {
        Journal { entries, unreadable_lines: Vec::new() }
    }

    #[test]
    fn entries_are_tagged_and_read_back() {
        let entries = vec![
            Entry::SweepStart(Box::new(SweepStart { schema: SCHEMA, ..SweepStart::default() })),
            launch("a", 8),
            end("a", 8, Some(Classification::Oom), Some("row\n")),
            Entry::SweepEnd(SweepEnd { interrupted: true, ..SweepEnd::default() }),
        ];
        let mut text: String =
            entries.iter().map(|entry| serde_json::to_string(entry).unwrap() + "\n").collect();
        assert!(text.contains("{\"event\":\"cell_launch\",") && text.contains("\"SKIP:oom\""));
        text.push_str("{\"event\":\"cell_end\",\"mod");
        let read = parse_journal(&text);
        assert_eq!(read.entries, entries);
        assert_eq!(read.unreadable_lines, [5]);
        assert_eq!(read.rows(), "row\n");
    }

    #[test]
    fn unknown_fields_are_ignored_and_missing_ones_have_no_value() {
        let read = parse_journal("{\"event\":\"cell_end\",\"model\":\"a\",\"later\":1}\n");
        assert_eq!(read.cell_ends().next().unwrap().report, None);
    }

    #[test]
    fn a_launch_without_an_end_is_lost() {
        let lost = Some(Classification::FailHostLost);
        let mut entries = vec![launch("a", 8)];
        assert_eq!(journal(entries.clone()).cell_state("a", 8, "now"), CellState::Lost);
        assert_eq!(journal(entries.clone()).cell_state("a", 9, "now"), CellState::Open);
        assert_eq!(journal(entries.clone()).cell_state("b", 8, "now"), CellState::Open);
        entries.push(end("a", 8, lost, Some("row\n")));
        assert_eq!(journal(entries.clone()).cell_state("a", 8, "now"), CellState::LostWithRow);
        entries.push(launch("a", 8));
        assert_eq!(journal(entries.clone()).cell_state("a", 8, "now"), CellState::Lost);
        entries.push(end("a", 8, None, Some("row\n")));
        assert_eq!(journal(entries).cell_state("a", 8, "now"), CellState::Finished(None));
    }

    #[test]
    fn a_launch_without_an_end_under_the_same_boot_is_open_again() {
        let Entry::CellLaunch(launch) = launch("a", 8) else { unreachable!() };
        let launched = |boot: &str| {
            let launch = CellLaunch { boot: Some(boot.to_owned()), ..launch.clone() };
            journal(vec![Entry::CellLaunch(launch)])
        };
        assert_eq!(launched("now").cell_state("a", 8, "now"), CellState::Open);
        assert_eq!(launched("then").cell_state("a", 8, "now"), CellState::Lost);
        // Where the boot is not known, the cell may have taken the host down.
        assert_eq!(launched("").cell_state("a", 8, ""), CellState::Lost);
    }

    #[test]
    fn an_interrupted_cell_is_still_to_be_done() {
        let entries = vec![launch("a", 8), end("a", 8, None, None)];
        assert_eq!(journal(entries.clone()).cell_state("a", 8, "now"), CellState::Open);
        assert_eq!(journal(entries).rows(), "");
    }
}
