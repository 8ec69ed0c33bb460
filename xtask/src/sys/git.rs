//! What git says of the checkout. A checkout without git, or a machine without it, is not an error.

use std::path::Path;
use std::time::Duration;

use super::command::Tool;

pub(crate) mod history;
pub(crate) mod trees;

/// How long git may take: a checkout of a large tree on a slow disk takes minutes.
const DEADLINE: Duration = Duration::from_secs(600);

pub(crate) fn git<'a>(folder: &Path, args: impl IntoIterator<Item = &'a str>) -> Tool {
    Tool::new("git").args(args).dir(folder).deadline(DEADLINE)
}

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
    let commit = git(root, ["rev-parse", "--short", "HEAD"]).read().ok();
    let changes = git(root, ["status", "--porcelain", "--untracked-files=no"]).read().ok();
    GitState {
        commit: commit
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| "unknown".to_owned()),
        dirty: changes.map(|text| !text.trim().is_empty()),
    }
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
