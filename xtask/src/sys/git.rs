//! What git says of the checkout. A checkout without git, or a machine without it, is no error.

use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) mod history;
pub(crate) mod trees;

/// The commit of a checkout, and whether it is what is in the tree.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct GitState {
    /// `git rev-parse --short HEAD`, or `unknown`.
    pub(crate) commit: String,
    /// Whether tracked files differ from it; `None` where git cannot tell.
    pub(crate) dirty: Option<bool>,
}

/// Reads commit and dirty flag. Untracked files do not count: a sweep makes some itself.
pub(crate) fn read_git_state(root: &Path) -> GitState {
    let commit = output(root, &["rev-parse", "--short", "HEAD"]);
    let changes = output(root, &["status", "--porcelain", "--untracked-files=no"]);
    GitState {
        commit: commit
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| "unknown".to_owned()),
        dirty: changes.map(|text| !text.trim().is_empty()),
    }
}

fn output(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_git_has_an_unknown_commit() {
        let folder = tempfile::tempdir().unwrap();
        let state = read_git_state(folder.path());
        assert_eq!(state, GitState { commit: "unknown".to_owned(), dirty: None });
    }
}
