//! What a launch left, as a sample: its report and its JSON lines, read and checked, and its lines in
//! the journal and the samples.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use formats::cell_report::CellReport;

use super::bench::Bench;
use crate::base::scrub::Scrub;
use crate::cell::child::ChildEnd;
use crate::cell::classify::Classification;
use crate::cell::executor::Executor;
use crate::cell::outcome::CellOutcome;
use crate::cell::result::CellNumbers;
use crate::cell::runner::{Measured, ResultFormat, Runner};
use crate::cell::session::{End, LaunchNote, Ledger};
use crate::prereg::document::{Document, OracleCheck, Source};
use crate::prereg::metric::{Log, explain_absent, log_cost_s, parse_log, read_series};
use crate::prereg::plan::Launch;
use crate::prereg::sample::{Failure, LaunchRecord};
use crate::sys::files;

/// Where a runner writes its JSON lines.
pub(super) const LOG_VAR: &str = "ARC_PREREG_LOG";
/// A log or report beyond this size is not read.
const TEXT_LIMIT_BYTES: u64 = 256 << 20;

/// Where a launch leaves its files.
#[derive(Debug)]
pub(super) struct Paths {
    /// For the files that `file-equal` oracles compare.
    pub(super) folder: PathBuf,
    pub(super) report: PathBuf,
    pub(super) log: PathBuf,
}

impl Paths {
    pub(super) fn within(folder: PathBuf) -> Paths {
        let (report, log) = (folder.join("report.json"), folder.join("log.jsonl"));
        Paths { folder, report, log }
    }
}

/// What a launch left, besides its output.
#[derive(Debug, Default)]
pub(super) struct Left {
    report: Option<CellReport>,
    report_json: Option<serde_json::Value>,
    log: Log,
}

/// Reads what a launch must leave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) document: &'a Document,
    pub(super) runner: &'a Runner,
    pub(super) launch: &'a Launch,
    pub(super) paths: &'a Paths,
    /// Kept for the sample, whatever is missing.
    pub(super) left: &'a RefCell<Left>,
}

impl Reader<'_> {
    /// The numbers, or what is missing of them.
    pub(super) fn read(&self, executor: &mut impl Executor) -> Result<CellNumbers, String> {
        let mut read = |path| executor.read_text(path, TEXT_LIMIT_BYTES).unwrap_or_default();
        let report_json: Option<serde_json::Value> =
            serde_json::from_str(&read(&self.paths.report)).ok();
        let report: Option<CellReport> =
            report_json.clone().and_then(|json| serde_json::from_value(json).ok());
        let report = report.filter(|report| report.schema > 0);
        let left = Left { report, report_json, log: parse_log(&read(&self.paths.log)) };
        let numbers = self.check(&left);
        self.left.replace(left);
        numbers
    }

    fn check(&self, left: &Left) -> Result<CellNumbers, String> {
        let needs_log = self.runner.result == ResultFormat::Log
            || self.document.metrics.iter().any(|metric| metric.source == Source::Log);
        if needs_log && left.log.records.is_empty() {
            return Err(format!("it wrote no JSON lines to the file that {LOG_VAR} names"));
        }
        if let Some(problem) = left.log.problem.as_ref().filter(|_| needs_log) {
            return Err(format!("its JSON lines are damaged: {problem}"));
        }
        if self.runner.result == ResultFormat::Report {
            let report = left.report.as_ref().ok_or("it wrote no readable cell report")?;
            let target = report.prompt.target_tokens.or(report.prompt.tokens);
            let wanted = self.launch.prompt_tokens;
            if target != Some(wanted) {
                return Err(format!("its report is for another prompt length than {wanted}"));
            }
        }
        Ok(CellNumbers {
            notes: Vec::new(),
            measured: Measured::default(),
            report: left.report.clone(),
            report_json: left.report_json.clone(),
        })
    }
}

/// One launch's lines in the bench.
pub(super) struct Entries<'a> {
    pub(super) bench: &'a mut Bench,
    pub(super) reader: Reader<'a>,
    pub(super) scrub: &'a Scrub,
    /// How long it may take at most, under the ceiling.
    pub(super) limit: Duration,
    /// Why the guard refuses it.
    pub(super) refused: Option<String>,
}

impl Ledger for Entries<'_> {
    fn note_launch(&mut self, note: LaunchNote) -> anyhow::Result<()> {
        self.bench.note_launch(self.reader.launch, note)
    }

    fn note_end(&mut self, end: &End) -> anyhow::Result<()> {
        let record = match end {
            End::Interrupted => return Ok(()),
            End::Ran(outcome) if outcome.was_interrupted() => return Ok(()),
            // It would not start for any rung, and says nothing about this one.
            End::NotStarted(reason) => anyhow::bail!("{reason}"),
            End::Refused { reason, .. } => {
                self.refused = Some(reason.clone());
                return Ok(());
            }
            End::Faked(class) => {
                let failure = Failure { class: *class, detail: "faked".to_owned() };
                self.record(Some(failure), Vec::new(), 0.0)?
            }
            End::Ran(outcome) => self.record_of(outcome)?,
        };
        let Reader { document, launch, .. } = self.reader;
        self.bench.keep_launch(document, launch, record, self.limit)
    }
}

impl Entries<'_> {
    fn record_of(&self, outcome: &CellOutcome) -> anyhow::Result<LaunchRecord> {
        let problem = outcome.numbers.as_ref().err().map(String::as_str);
        let failed = outcome.classification.map(|class| Failure {
            class,
            detail: self.scrub.text(&render_failure(class, &outcome.end, problem)),
        });
        let disturbed =
            outcome.quiet.as_ref().map(|quiet| quiet.disturbances.clone()).unwrap_or_default();
        let cost_s = match &self.reader.document.protocol.cost_field {
            Some(field) => log_cost_s(&self.reader.left.borrow().log, field).unwrap_or(0.0),
            None => seconds(outcome.end.wall),
        };
        self.record(failed, disturbed, cost_s)
    }

    fn record(
        &self,
        failed: Option<Failure>,
        disturbed: Vec<String>,
        cost_s: f64,
    ) -> anyhow::Result<LaunchRecord> {
        let Reader { document, launch, paths, left, .. } = self.reader;
        let left = left.borrow();
        let report = left.report.as_ref();
        let settings = report.and_then(|report| serde_json::to_value(&report.settings).ok());
        let series = read_series(document, report, &left.log);
        // What did not run to its end reports nothing, and needs no explanation.
        let absent = match failed {
            None => explain_absent(document, &series, &left.log),
            Some(_) => BTreeMap::new(),
        };
        Ok(LaunchRecord {
            failed,
            disturbed,
            series,
            absent,
            token_hash: report.and_then(|report| report.output.token_hash.clone()),
            files: hash_files(document, &paths.folder)?,
            settings: settings.unwrap_or_default(),
            cost_s,
            ..LaunchRecord::new(launch.slot.clone(), launch.items.clone())
        })
    }
}

fn hash_files(document: &Document, folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    for oracle in &document.oracles {
        if let OracleCheck::FileEqual { file } = &oracle.check
            && files::is_file(&folder.join(file))
        {
            hashes.insert(file.clone(), files::read_sha256(&folder.join(file))?);
        }
    }
    Ok(hashes)
}

/// A duration in seconds, to the millisecond.
pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

fn render_failure(class: Classification, end: &ChildEnd, problem: Option<&str>) -> String {
    let how = end.exit;
    let said = match (class, &end.said.cause, problem) {
        (Classification::FailNoOutput | Classification::FailWrongWork, _, Some(problem)) => {
            return problem.to_owned();
        }
        (Classification::FailTimeout, ..) => return "it ran past its time limit".to_owned(),
        (_, Some(pattern), _) => pattern.line.clone(),
        _ => last_line(end),
    };
    if said.is_empty() { how.to_string() } else { format!("{how}: {said}") }
}

/// The last thing that a process said, on stderr if it said anything there.
pub(super) fn last_line(end: &ChildEnd) -> String {
    let mut said = [&end.stderr, &end.stdout].into_iter();
    said.find_map(|capture| capture.last_lines(1).pop()).unwrap_or_default()
}
