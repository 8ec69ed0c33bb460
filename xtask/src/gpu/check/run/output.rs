//! The folder of a check: made anew, and written run by run.

use std::path::{Path, PathBuf};

use anyhow::anyhow;

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
    for number in 1_u32.. {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let folder = parent.join(format!("{date}-gpu-check-{card_slug}{suffix}"));
        if files::create_folder_new(&folder)? {
            return Ok(folder);
        }
    }
    unreachable!("some number is free")
}

pub(super) fn taken(folder: &Path) -> anyhow::Error {
    anyhow!("`{}` already exists, and nothing in it is overwritten", folder.display())
}

pub(super) fn render_json(result: &GpuResult) -> String {
    serde_json::to_string_pretty(result).expect("a result has string keys and no failing values")
}
