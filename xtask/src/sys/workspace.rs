//! Finds the workspace that the command works on.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;

/// The root of Arc's workspace: the nearest folder at or above the current one that holds both a
/// `Cargo.toml` and `bench-configs/`.
pub(crate) fn find_root() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("cannot determine the current directory")?;
    here.ancestors()
        .find(|dir| dir.join("Cargo.toml").is_file() && dir.join("bench-configs").is_dir())
        .map(PathBuf::from)
        .with_context(|| format!("`{}` is not in an Arc workspace", here.display()))
        .hint("run it inside a checkout of Arc")
}
