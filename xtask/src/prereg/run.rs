//! `cargo xtask prereg`: freeze a ladder with its rules, run it, and have the rules judge it.
//!
//! What a document means and what samples amount to is in `crate::prereg`; here files are read, the
//! runner is launched and reports are written.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::executor::run::RealExecutor;
use crate::cell::guard::RecordRule;
use crate::cell::guard::file::read_guard_of_model;
use crate::cell::runner::{ResultFormat, Runner, parse_runner};
use crate::cell::session::{Finder, Session};
use crate::model::reference::is_plain_name;
use crate::prereg::args::{Args, Command, NameArgs};
use crate::prereg::chain::{DataBefore, Frozen, Version, parse_frozen};
use crate::prereg::document::{Document, parse_document};
use crate::prereg::judge::{Phase, judge};
use crate::prereg::lint::{Finding, Reports, Surroundings, check_document};
use crate::prereg::sample::{Record, RunRecord, Samples, parse_samples};
use crate::prereg::samples::file as samples_file;
use crate::prereg::template::render_template;
use crate::stats::expr::Number;
use crate::sys::git;
use crate::sys::interrupt::Interrupt;
use crate::sys::{files, terminal};

mod bench;
mod freeze;
mod launch;
mod report;
mod run;
mod transfer;
mod verify;

use verify::Checked;

/// Where documents lie.
const DOCUMENTS: &str = "bench-configs/prereg";
const RUNNERS: &str = "bench-configs/runners";
const RUNS: &str = "benchmarks/prereg";

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    match &args.command {
        Command::New(args) => new(root, args),
        Command::Check(args) => check(root, args),
        Command::Freeze(args) => freeze::freeze(root, &args.name),
        Command::Amend(args) => freeze::amend(root, &args.name, &args.why),
        Command::Run(args) => run::run(root, args),
        Command::Report(args) => report::report(root, args),
        Command::Transfer(args) => transfer::transfer(root, args),
    }
}

/// A ladder by its name, and where its parts lie.
#[derive(Debug, Clone)]
struct Ladder<'a> {
    root: &'a Path,
    name: String,
}

/// The session that launches a ladder's runs, past the guard over every length that it measures.
fn open_session(
    ladder: &Ladder<'_>,
    checked: &Checked,
    asked: RecordRule,
    command: &'static str,
    interrupt: Interrupt,
) -> anyhow::Result<Session<RealExecutor>> {
    let mut lengths = checked.document.prompt_lengths();
    lengths.sort_unstable();
    lengths.dedup();
    let typed = format!("{command} {}", ladder.name);
    let guard = read_guard_of_model(ladder.root, asked, &checked.model, &lengths, &typed)?;
    let finder = Finder {
        commit: git::read_git_state(ladder.root).commit,
        source: String::new(),
        command: Some(command),
    };
    Ok(Session::new(RealExecutor::new(ladder.root, interrupt), guard, finder))
}

/// The samples of a run, as the OOM record names them.
fn source_of(root: &Path, folder: &Path) -> String {
    let folder = folder.strip_prefix(root).unwrap_or(folder);
    format!("{}/samples.jsonl", folder.display())
}

/// A run of a ladder that is on disk.
#[derive(Debug)]
struct StoredRun {
    name: String,
    folder: PathBuf,
    /// What was run; `None` where a crash came before the first line.
    run: Option<RunRecord>,
    samples: Samples,
}

impl<'a> Ladder<'a> {
    fn new(root: &'a Path, name: &str) -> anyhow::Result<Ladder<'a>> {
        anyhow::ensure!(
            is_plain_name(name) && !name.ends_with(".toml"),
            "`{name}` is no name of a ladder; it is the file's name in {DOCUMENTS}/, without `.toml`"
        );
        Ok(Ladder { root, name: name.to_owned() })
    }

    fn document_path(&self) -> String {
        format!("{DOCUMENTS}/{}.toml", self.name)
    }

    fn frozen_path(&self) -> String {
        format!("{DOCUMENTS}/{}.frozen.json", self.name)
    }

    fn runs_path(&self) -> PathBuf {
        self.root.join(RUNS).join(&self.name)
    }

    fn read_document(&self) -> anyhow::Result<(String, Document)> {
        let path = self.document_path();
        let text = files::read_text(&self.root.join(&path))
            .hint(format!("`cargo xtask prereg new {}` writes one to start from", self.name))?;
        let document = parse_document(&path, &text)?;
        Ok((text, document))
    }

    fn read_frozen(&self) -> anyhow::Result<Option<Frozen>> {
        let path = self.frozen_path();
        let text = files::read_text_if_present(&self.root.join(&path))?;
        text.map(|text| parse_frozen(&path, &text)).transpose()
    }

    fn require_frozen(&self) -> anyhow::Result<Frozen> {
        self.read_frozen()?
            .with_context(|| format!("ladder `{}` is not frozen", self.name))
            .hint(format!("cargo xtask prereg freeze {}", self.name))
    }

    fn document_of(&self, version: &Version) -> anyhow::Result<Document> {
        parse_document(
            &format!("version {} of {}", version.version, self.document_path()),
            &version.document,
        )
    }

    fn read_runner(&self, document: &Document) -> anyhow::Result<(String, Runner)> {
        let name = &document.protocol.runner;
        anyhow::ensure!(is_plain_name(name), "`{name}` is no name of a runner");
        let path = format!("{RUNNERS}/{name}.toml");
        let text = files::read_text(&self.root.join(&path))
            .with_context(|| format!("no runner `{name}`"))
            .hint(format!("runners are described in {RUNNERS}/"))?;
        let runner = parse_runner(name, &path, &text)?;
        Ok((text, runner))
    }

    /// Every run, oldest first.
    fn read_runs(&self) -> anyhow::Result<Vec<StoredRun>> {
        let mut names = samples_file::list_folders(&self.runs_path());
        names.sort_by_key(|name| run_order(name));
        names.iter().map(|name| self.read_run(&self.runs_path().join(name), name)).collect()
    }

    fn read_run(&self, folder: &Path, name: &str) -> anyhow::Result<StoredRun> {
        let path = folder.join("samples.jsonl");
        let text = files::read_text_if_present(&path)?.unwrap_or_default();
        let samples = parse_samples(&text)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("`{}` is damaged", path.display()))?;
        let run = samples.records.iter().find_map(|record| match record {
            Record::Run(run) => Some(run.clone()),
            _ => None,
        });
        Ok(StoredRun { name: name.to_owned(), folder: folder.to_owned(), run, samples })
    }

    /// How much was measured so far, under any version.
    fn read_data(&self) -> anyhow::Result<DataBefore> {
        let runs = self.read_runs()?;
        let launches = |run: &StoredRun| {
            run.samples.records.iter().filter(|one| matches!(one, Record::Launch(_))).count()
        };
        Ok(DataBefore {
            runs: runs.iter().filter(|run| launches(run) > 0).count() as u64,
            launches: runs.iter().map(launches).sum::<usize>() as u64,
        })
    }

    fn read_noise(&self, frozen: Option<&Frozen>) -> anyhow::Result<Option<f64>> {
        let Some(frozen) = frozen else { return Ok(None) };
        for stored in self.read_runs()?.iter().rev() {
            let Some(run) = &stored.run else { continue };
            let Some(version) = version_of(frozen, run) else { continue };
            let standing = judge(&self.document_of(version)?, &stored.samples.records);
            if let Some(Number::Known(noise)) = standing.last_round().map(|round| &round.noise.0) {
                return Ok(Some(*noise));
            }
        }
        Ok(None)
    }

    fn lint(&self, document: &Document, runner: &Runner) -> anyhow::Result<Vec<Finding>> {
        let reports = match runner.result {
            ResultFormat::Report => Reports::Written,
            _ => Reports::None,
        };
        let measured_noise = self.read_noise(self.read_frozen()?.as_ref())?;
        Ok(check_document(document, Surroundings { reports, measured_noise }))
    }
}

impl StoredRun {
    /// Whether nothing is left to measure.
    fn is_finished(&self, document: &Document) -> bool {
        let standing = judge(document, &self.samples.records);
        matches!(standing.phase, Phase::Decided { .. } | Phase::Undecided { .. })
    }
}

/// Runs of one day in the order of their numbers: `2026-08-08`, `2026-08-08-2`, `2026-08-08-10`.
fn run_order(name: &str) -> (String, u32) {
    let (date, number) = match name.char_indices().nth(10) {
        Some((at, _)) => (&name[..at], name[at..].trim_start_matches('-').parse().unwrap_or(0)),
        None => (name, 1),
    };
    (date.to_owned(), number)
}

fn version_of<'a>(frozen: &'a Frozen, run: &RunRecord) -> Option<&'a Version> {
    frozen.versions.iter().find(|version| version.entry_sha256 == run.entry_sha256)
}

fn new(root: &Path, args: &NameArgs) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, &args.name)?;
    let path = ladder.document_path();
    files::create_folder(&root.join(DOCUMENTS))?;
    files::AppendFile::create_new(&root.join(&path), &render_template(&args.name))
        .hint("choose another name, or edit what is there")?;
    terminal::data(&path);
    terminal::log(&format!("edit it, then: cargo xtask prereg check {}", args.name));
    Ok(Outcome::Done)
}

fn check(root: &Path, args: &NameArgs) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, &args.name)?;
    let (_, document) = ladder.read_document()?;
    let (_, runner) = ladder.read_runner(&document)?;
    let findings = ladder.lint(&document, &runner)?;
    for finding in &findings {
        terminal::data(&finding.to_string());
    }
    let blocking = findings.iter().filter(|finding| finding.is_blocking()).count();
    terminal::log(&format!(
        "prereg: {blocking} error(s), {} other finding(s) in {}",
        findings.len() - blocking,
        ladder.document_path()
    ));
    Ok(if blocking == 0 { Outcome::Done } else { Outcome::Violation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_day_are_ordered_by_their_number() {
        let mut names = ["2026-08-08-10", "2026-08-09", "2026-08-08", "2026-08-08-2"];
        names.sort_by_key(|name| run_order(name));
        assert_eq!(names, ["2026-08-08", "2026-08-08-2", "2026-08-08-10", "2026-08-09"]);
    }

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        for name in ["", "..", "a/b", "a.toml"] {
            assert!(Ladder::new(Path::new("."), name).is_err(), "{name}");
        }
        assert!(Ladder::new(Path::new("."), "alloc-cache").is_ok());
    }
}
