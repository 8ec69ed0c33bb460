//! The files of a sweep: a CSV and its journal, started or gone on with, never truncated.

use std::path::{Path, PathBuf};

use anyhow::bail;

use super::prepare::Target;
use crate::base::diagnostic::HintExt as _;
use crate::base::scrub::Scrub;
use crate::cell::journal::{Entry, Journal, Settings, SweepStart, journal_path, parse_journal};
use crate::cell::row::render_header;
use crate::sweep::resume::{Changes, compare_settings};
use crate::sys::files::AppendFile;
use crate::sys::json_lines::JournalFile;
use crate::sys::{clock, files, terminal};

pub(super) struct Output {
    pub(super) csv_path: PathBuf,
    pub(super) csv: AppendFile,
    pub(super) journal: JournalFile,
    pub(super) scrub: Scrub,
    /// What the journal said before this start; empty for a new sweep.
    pub(super) earlier: Journal,
}

/// A sweep that is to be gone on with.
pub(super) struct Earlier {
    csv_path: PathBuf,
    pub(super) journal: Journal,
}

/// Reads the journal of a sweep that is to be resumed.
pub(super) fn read_earlier(csv: &Path) -> anyhow::Result<Earlier> {
    let csv_path = files::absolute(csv)?;
    let path = journal_path(&csv_path);
    let text = files::read_text(&path)
        .hint("--resume takes the CSV of a sweep; its journal must be beside it")?;
    let journal = parse_journal(&text);
    for line in &journal.unreadable_lines {
        terminal::log(&format!("warning: `{}`, line {line} is cut off; ignored", path.display()));
    }
    if journal.start().is_none() {
        return Err(anyhow::anyhow!("`{}` does not contain the start of a sweep", path.display()))
            .hint("nothing was measured; start a new sweep");
    }
    Ok(Earlier { csv_path, journal })
}

/// Refuses to mix: what a resumed sweep measures is what its start measured. Returns what differs
/// and is taken over.
pub(super) fn check_settings(earlier: &Earlier, now: &Settings) -> anyhow::Result<Vec<String>> {
    let Some(start) = earlier.journal.start() else { bail!("the journal has no start") };
    let Changes { refused, noted } = compare_settings(&start.settings, now);
    if refused.is_empty() {
        return Ok(noted);
    }
    Err(anyhow::anyhow!(
        "rows from before and after these changes could not be compared:\n  {}",
        refused.join("\n  ")
    ))
    .hint("undo the change, or start a new sweep")
}

/// The path that was asked for, if nothing is there.
pub(super) fn explicit_name(path: &Path) -> anyhow::Result<PathBuf> {
    let path = files::absolute(path)?;
    for taken in [path.clone(), journal_path(&path)] {
        if files::exists(&taken) {
            return Err(anyhow::anyhow!("`{}` already exists", taken.display())).hint(format!(
                "continue it with --resume {}, or choose another name",
                path.display()
            ));
        }
    }
    Ok(path)
}

/// `benchmarks/{backend}_{hardware}_{config}_{date}.csv`, with a number where that is taken.
pub(super) fn automatic_name(root: &Path, target: &Target, config_name: &str) -> PathBuf {
    let base = format!("{}_{config_name}_{}", target.name(), clock::today());
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    std::iter::once(base.clone())
        .chain(numbered)
        .map(|name| root.join("benchmarks").join(format!("{name}.csv")))
        .find(|path| !files::exists(path) && !files::exists(&journal_path(path)))
        .unwrap_or_else(|| root.join("benchmarks").join(format!("{base}.csv")))
}

impl Output {
    /// The CSV's path from the workspace, as the record has it.
    pub(super) fn shown_path(&self, root: &Path) -> String {
        self.csv_path.strip_prefix(root).unwrap_or(&self.csv_path).to_string_lossy().into_owned()
    }

    /// Starts the files of a new sweep.
    pub(super) fn start(
        root: &Path,
        csv_path: &Path,
        scrub: Scrub,
        start: &SweepStart,
    ) -> anyhow::Result<Output> {
        files::create_folder(csv_path.parent().unwrap_or(root))?;
        let mut journal =
            JournalFile::create_new(&journal_path(csv_path))?.with_scrub(scrub.clone());
        journal.append(&Entry::SweepStart(Box::new(start.clone())))?;
        let csv = AppendFile::create_new(csv_path, &render_header())?;
        let csv_path = csv_path.to_owned();
        Ok(Output { csv_path, csv, journal, scrub, earlier: Journal::default() })
    }

    /// Goes on with an earlier sweep. The journal has every row before the CSV has it, so a CSV
    /// that a crash left short is completed first.
    pub(super) fn go_on(
        root: &Path,
        earlier: Earlier,
        scrub: Scrub,
        start: &SweepStart,
    ) -> anyhow::Result<Output> {
        let Earlier { csv_path, journal: earlier } = earlier;
        files::create_folder(csv_path.parent().unwrap_or(root))?;
        let expected = format!("{}{}", render_header(), earlier.rows());
        let csv = match files::read_text_if_present(&csv_path)? {
            None => AppendFile::create_new(&csv_path, &expected)?,
            Some(found) => {
                let Some(missing) = expected.strip_prefix(&found) else {
                    let line = 1 + expected
                        .lines()
                        .zip(found.lines())
                        .take_while(|(expected, found)| expected == found)
                        .count();
                    return Err(anyhow::anyhow!(
                        "`{}`, line {line} differs from its journal",
                        csv_path.display()
                    ))
                    .hint("the file was edited; start a new sweep");
                };
                let mut csv = AppendFile::open_append(&csv_path)?;
                if !missing.is_empty() {
                    csv.append(missing)?;
                }
                csv
            }
        };
        let mut journal =
            JournalFile::open_append(&journal_path(&csv_path))?.with_scrub(scrub.clone());
        journal.append(&Entry::SweepStart(Box::new(start.clone())))?;
        Ok(Output { csv_path, csv, journal, scrub, earlier })
    }
}
