//! Reads a sweep and its journal, and writes what was rendered.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::journal::{journal_path, parse_journal};
use crate::report::args::Args;
use crate::report::format::Format;
use crate::report::picture::{counted, render_picture, render_subtitle};
use crate::report::sweep::{Sweep, find_newest, parse_sweep};
use crate::sys::{files, terminal};

const TITLE: &str = "Decode and prefill speed over prompt length";

/// Writes the picture of a sweep.
pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    let format = Format::of_path(&args.out)
        .map_err(anyhow::Error::msg)
        .hint("cargo xtask report --out FILE.svg")?;
    let (csv, mut sweep) = match &args.csv {
        Some(csv) => (csv.clone(), read_sweep(csv)?),
        None => read_newest(root)?,
    };
    let shown = csv.strip_prefix(root).unwrap_or(&csv);
    for warning in &sweep.warnings {
        terminal::log(&format!("warning: `{}`, {warning}; left out", shown.display()));
    }
    add_journal(&mut sweep, &csv, shown)?;
    let text = match format {
        Format::Svg => {
            let name = csv.file_name().unwrap_or_default().to_string_lossy();
            render_picture(&sweep.rows, TITLE, &render_subtitle(&sweep, &name))?
        }
    };
    if let Some(folder) = args.out.parent() {
        files::create_folder(folder)?;
    }
    files::replace_text(&args.out, &text)?;
    let (measured, not_measured) = sweep.counts();
    terminal::log(&format!(
        "report: `{}`: {}, {} measured, {not_measured} not",
        shown.display(),
        counted(sweep.models().len(), "model"),
        counted(measured, "cell"),
    ));
    terminal::data(&args.out.display().to_string());
    Ok(Outcome::Done)
}

fn read_sweep(csv: &Path) -> anyhow::Result<Sweep> {
    let text = files::read_text(csv)
        .hint("cargo xtask sweep writes a CSV into benchmarks/ and prints its path")?;
    parse_sweep(&text).with_context(|| format!("cannot draw `{}`", csv.display()))
}

/// The newest sweep in `benchmarks/`. What is there and is not a sweep is passed over.
fn read_newest(root: &Path) -> anyhow::Result<(PathBuf, Sweep)> {
    let folder = root.join("benchmarks");
    let mut sweeps = Vec::new();
    for path in files::list_files(&folder) {
        if path.extension().is_some_and(|ending| ending == "csv") {
            match read_sweep(&path) {
                Ok(sweep) => sweeps.push((path.to_string_lossy().into_owned(), sweep)),
                Err(error) => terminal::log(&format!("note: {error:#}; passed over")),
            }
        }
    }
    let newest =
        find_newest(&sweeps).with_context(|| format!("no sweep in `{}`", folder.display())).hint(
            "cargo xtask sweep makes one; or name a CSV: cargo xtask report CSV --out FILE.svg",
        )?;
    let (path, sweep) = sweeps.swap_remove(newest);
    Ok((path.into(), sweep))
}

fn add_journal(sweep: &mut Sweep, csv: &Path, shown: &Path) -> anyhow::Result<()> {
    match files::read_text_if_present(&journal_path(csv))? {
        Some(text) => {
            let journal = parse_journal(&text);
            for line in &journal.unreadable_lines {
                terminal::log(&format!(
                    "warning: `{}.journal.jsonl`, line {line} is cut off; ignored",
                    shown.display()
                ));
            }
            sweep.add_journal(&journal);
        }
        None => terminal::log(&format!(
            "note: `{}` has no journal beside it, so the picture names no commit",
            shown.display()
        )),
    }
    Ok(())
}
