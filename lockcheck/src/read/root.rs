//! Where to start, and which other workspaces lie below.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::text::{Manifests, Shown};
use crate::diagnostic::HintExt as _;
use crate::lock::workspace::normalize;

/// The folder of the manifest to start from, and how paths are shown from there: as they were given.
pub(crate) fn find_start(manifest_path: Option<&Path>) -> anyhow::Result<(PathBuf, Shown)> {
    let here = super::current_dir()?;
    let Some(given) = manifest_path else {
        let dir = here
            .ancestors()
            .find(|dir| dir.join("Cargo.toml").exists())
            .with_context(|| format!("no `Cargo.toml` in `{}` or above", here.display()))
            .hint("run it from within a workspace, or give --manifest-path")?;
        return Ok((dir.to_owned(), Shown::RelativeTo(here.clone())));
    };
    let path = normalize(&here.join(given));
    if path.is_dir() {
        return Err(anyhow::anyhow!("`{}` is a directory, not a manifest", given.display()))
            .hint(format!("give --manifest-path {}", given.join("Cargo.toml").display()));
    }
    if path.file_name().is_none_or(|name| name != "Cargo.toml") {
        return Err(anyhow::anyhow!("`{}` is not named Cargo.toml", given.display()))
            .hint("give the path of a Cargo.toml; its lock is found beside the workspace root");
    }
    let dir = path.parent().unwrap_or(&path).to_owned();
    let shown = if given.is_absolute() { Shown::Absolute } else { Shown::RelativeTo(here) };
    Ok((dir, shown))
}

/// The roots of other workspaces below a folder that have a lock of their own: nested ones and
/// excluded ones. Build folders, hidden folders and symbolic links are not entered.
pub(crate) fn find_workspaces_below(
    root_dir: &Path,
    shown: &Shown,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut manifests = Manifests::new(shown.clone());
    let mut found = Vec::new();
    let mut stack = vec![root_dir.to_owned()];
    while let Some(dir) = stack.pop() {
        let entries = std::fs::read_dir(&dir)
            .with_context(|| format!("cannot list `{}`", shown.display(&dir)))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list `{}`", shown.display(&dir)))?;
            let name = entry.file_name();
            let hidden = name.as_encoded_bytes().starts_with(b".");
            // The type of the entry itself: a symbolic link is no folder here.
            if entry.file_type()?.is_dir() && !hidden && name != "target" {
                stack.push(entry.path());
            }
        }
        let is_candidate =
            dir != root_dir && dir.join("Cargo.lock").is_file() && dir.join("Cargo.toml").is_file();
        if is_candidate && manifests.find_root(&dir)?.is_none_or(|root| root == dir) {
            found.push(dir);
        }
    }
    found.sort();
    Ok(found)
}
