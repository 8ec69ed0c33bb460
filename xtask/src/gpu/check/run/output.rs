//! The folder of a check: a new one, written run by run.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::base::diagnostic::HintExt as _;
use crate::gpu::check::GpuResult;
use crate::sys::files;

/// Where checks lie, below the workspace root, beside comparisons.
const FOLDER: &str = "benchmarks/ab";
pub(super) const JOURNAL: &str = "samples.jsonl";
pub(super) const REPORTS: &str = "reports";
pub(super) const RESULT: &str = "result.json";
pub(super) const PAGE: &str = "report.md";

/// Makes the folder that was asked for, or one named after the card.
///
/// # Errors
/// When what was asked for is there already: nothing that was measured is overwritten.
pub(super) fn create_folder(
    root: &Path,
    out: Option<&Path>,
    date: &str,
    card_slug: &str,
) -> anyhow::Result<PathBuf> {
    if let Some(out) = out {
        let folder = files::absolute(out)?;
        files::create_folder(folder.parent().unwrap_or(root))?;
        if !files::create_folder_new(&folder)? {
            return Err(taken(&folder)).hint("name another folder with --out");
        }
        return Ok(folder);
    }
    let parent = root.join(FOLDER);
    files::create_folder(&parent)?;
    for folder in numbered(&parent, date, card_slug) {
        if files::create_folder_new(&folder)? {
            return Ok(folder);
        }
    }
    unreachable!("some number is free")
}

/// Gives a folder that was made before the card was known its name.
pub(super) fn rename_folder(
    root: &Path,
    folder: &Path,
    date: &str,
    card_slug: &str,
) -> anyhow::Result<PathBuf> {
    for named in numbered(&root.join(FOLDER), date, card_slug) {
        // Renaming onto an empty folder that was just made takes no one else's name.
        if files::create_folder_new(&named)? {
            std::fs::rename(folder, &named)
                .with_context(|| format!("cannot rename `{}`", folder.display()))?;
            return Ok(named);
        }
    }
    unreachable!("some number is free")
}

/// The names that a folder can have, in the order of trying.
fn numbered(parent: &Path, date: &str, card_slug: &str) -> impl Iterator<Item = PathBuf> {
    let base = format!("{date}-gpu-check-{card_slug}");
    let parent = parent.to_owned();
    (1_u32..).map(move |number| match number {
        1 => parent.join(&base),
        number => parent.join(format!("{base}-{number}")),
    })
}

/// The error of a folder that is there already.
pub(super) fn taken(folder: &Path) -> anyhow::Error {
    anyhow!("`{}` already exists, and nothing in it is overwritten", folder.display())
}

pub(super) fn render_json(result: &GpuResult) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(result)?)
}
