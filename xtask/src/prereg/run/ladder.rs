//! A ladder on disk: its document, its frozen chain, its runner and its runs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;
use crate::cell::runner::{ResultFormat, Runner, parse_runner};
use crate::model::reference::is_plain_name;
use crate::prereg::chain::{DataBefore, Frozen, Version, parse_frozen};
use crate::prereg::document::{Document, parse_document};
use crate::prereg::judge::judge;
use crate::prereg::lint::{Finding, Reports, Surroundings, check_document};
use crate::prereg::sample::file::read_samples;
use crate::prereg::sample::{RunRecord, Samples, launches_in, run_in};
use crate::stats::expr::Number;
use crate::sys::files;

pub(super) const DOCUMENTS: &str = "bench-configs/prereg";
pub(super) const RUNNERS: &str = "bench-configs/runners";
const RUNS: &str = "benchmarks/prereg";
/// Within the folder of a run.
pub(super) const SAMPLES: &str = "samples.jsonl";

/// A ladder by its name, and where its parts lie.
#[derive(Debug, Clone)]
pub(super) struct Ladder<'a> {
    pub(super) root: &'a Path,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct StoredRun {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    /// What was run; `None` where a crash came before the first line.
    pub(super) run: Option<RunRecord>,
    pub(super) samples: Samples,
}

impl<'a> Ladder<'a> {
    pub(super) fn new(root: &'a Path, name: &str) -> anyhow::Result<Ladder<'a>> {
        anyhow::ensure!(
            is_plain_name(name) && !name.ends_with(".toml"),
            "`{name}` is not the name of a ladder; give the file's name in {DOCUMENTS}/ without `.toml`"
        );
        Ok(Ladder { root, name: name.to_owned() })
    }

    pub(super) fn document_path(&self) -> String {
        format!("{DOCUMENTS}/{}.toml", self.name)
    }

    pub(super) fn frozen_path(&self) -> String {
        format!("{DOCUMENTS}/{}.frozen.json", self.name)
    }

    pub(super) fn runs_path(&self) -> PathBuf {
        self.root.join(RUNS).join(&self.name)
    }

    pub(super) fn read_document(&self) -> anyhow::Result<(String, Document)> {
        let path = self.document_path();
        let text = files::read_text(&self.root.join(&path))
            .hint(format!("`cargo xtask prereg new {}` writes one to start from", self.name))?;
        let document = parse_document(&path, &text)?;
        Ok((text, document))
    }

    pub(super) fn read_frozen(&self) -> anyhow::Result<Option<Frozen>> {
        let path = self.frozen_path();
        let text = files::read_text_if_present(&self.root.join(&path))?;
        text.map(|text| parse_frozen(&path, &text)).transpose()
    }

    pub(super) fn require_frozen(&self) -> anyhow::Result<Frozen> {
        self.read_frozen()?
            .with_context(|| format!("ladder `{}` is not frozen", self.name))
            .hint(format!("cargo xtask prereg freeze {}", self.name))
    }

    pub(super) fn document_of(&self, version: &Version) -> anyhow::Result<Document> {
        parse_document(
            &format!("version {} of {}", version.version, self.document_path()),
            &version.document,
        )
    }

    pub(super) fn read_runner(&self, document: &Document) -> anyhow::Result<(String, Runner)> {
        let name = &document.protocol.runner;
        anyhow::ensure!(is_plain_name(name), "`{name}` is not the name of a runner");
        let path = format!("{RUNNERS}/{name}.toml");
        let text = files::read_text(&self.root.join(&path))
            .with_context(|| format!("no runner `{name}`"))
            .hint(format!("runners are described in {RUNNERS}/"))?;
        let runner = parse_runner(name, &path, &text)?;
        anyhow::ensure!(
            document.protocol.model.is_some() || runner.result == ResultFormat::Log,
            "`{}` names no `model`, which only a runner with `result = \"log\"` does without",
            self.document_path()
        );
        Ok((text, runner))
    }

    /// Every run, oldest first.
    pub(super) fn read_runs(&self) -> anyhow::Result<Vec<StoredRun>> {
        let mut names = files::list_folders(&self.runs_path());
        names.sort_by_key(|name| run_order(name));
        names.iter().map(|name| self.read_run(&self.runs_path().join(name), name)).collect()
    }

    pub(super) fn read_run(&self, folder: &Path, name: &str) -> anyhow::Result<StoredRun> {
        let samples = read_samples(&folder.join(SAMPLES))?;
        let run = run_in(&samples.records).cloned();
        Ok(StoredRun { name: name.to_owned(), folder: folder.to_owned(), run, samples })
    }

    /// How much was measured so far, under any version.
    pub(super) fn read_data(&self) -> anyhow::Result<DataBefore> {
        let runs = self.read_runs()?;
        let launches = |run: &StoredRun| launches_in(&run.samples.records).count();
        let names: Vec<String> =
            runs.iter().filter(|run| launches(run) > 0).map(|run| run.name.clone()).collect();
        Ok(DataBefore {
            runs: names.len() as u64,
            launches: runs.iter().map(launches).sum::<usize>() as u64,
            names,
        })
    }

    pub(super) fn read_noise(&self, frozen: Option<&Frozen>) -> anyhow::Result<Option<f64>> {
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

    pub(super) fn lint(
        &self,
        document: &Document,
        runner: &Runner,
    ) -> anyhow::Result<Vec<Finding>> {
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
    pub(super) fn is_finished(&self, document: &Document) -> bool {
        let standing = judge(document, &self.samples.records);
        standing.phase.is_final()
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

pub(super) fn version_of<'a>(frozen: &'a Frozen, run: &RunRecord) -> Option<&'a Version> {
    frozen.versions.iter().find(|version| version.entry_sha256 == run.entry_sha256)
}

/// `START`, or `START-2` and so on where that is taken.
pub(super) fn free_name(start: &str, taken: &[String]) -> String {
    let mut name = start.to_owned();
    for number in 2.. {
        if !taken.contains(&name) {
            break;
        }
        name = format!("{start}-{number}");
    }
    name
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
    fn a_second_run_of_a_day_has_a_number() {
        let taken = ["2026-08-08", "2026-08-08-2"].map(str::to_owned);
        assert_eq!(free_name("2026-08-08", &taken[..0]), "2026-08-08");
        assert_eq!(free_name("2026-08-08", &taken), "2026-08-08-3");
    }

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        for name in ["", "..", "a/b", "a.toml"] {
            assert!(Ladder::new(Path::new("."), name).is_err(), "{name}");
        }
        assert!(Ladder::new(Path::new("."), "alloc-cache").is_ok());
    }
}
