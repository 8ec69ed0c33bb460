//! What git says of a ladder's code, and work trees for revisions that are not checked out.
//!
//! The user's tree is never touched: revisions are applied in trees below `target/`.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::git;
use crate::base::diagnostic::HintExt as _;

/// The full id of the commit that is checked out.
pub(crate) fn read_head(root: &Path) -> anyhow::Result<String> {
    let head = git(root, ["rev-parse", "--verify", "HEAD"])
        .read()
        .hint("a ladder is frozen at a commit: commit first")?;
    Ok(head.trim().to_owned())
}

/// The tracked files of a commit: mode, kind, object and path, a line each.
pub(crate) fn list_tree(root: &Path, commit: &str) -> anyhow::Result<Vec<TreeEntry>> {
    // Without quoting, so that paths come as they are; `-z` would, too, and is harder to read here.
    let text = git(root, ["-c", "core.quotePath=false", "ls-tree", "-r", commit]).read()?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let (object, path) = line.split_once('\t')?;
            Some(TreeEntry { object: object.to_owned(), path: path.to_owned() })
        })
        .collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    /// Mode, kind and object id.
    pub(crate) object: String,
    pub(crate) path: String,
}

/// Paths that differ from the commit that is checked out, untracked ones included.
pub(crate) fn list_changes(root: &Path) -> anyhow::Result<Vec<String>> {
    let text =
        git(root, ["-c", "core.quotePath=false", "status", "--porcelain", "--untracked-files=all"])
            .read()?;
    Ok(text
        .lines()
        .filter_map(|line| line.get(3..))
        .flat_map(|paths| paths.split(" -> ").map(str::to_owned).collect::<Vec<_>>())
        .collect())
}

/// The commits that a revision or a range stands for, oldest first.
pub(crate) fn list_commits(root: &Path, revision: &str) -> anyhow::Result<Vec<String>> {
    if revision.starts_with('-') {
        bail!("`{revision}` is not a revision");
    }
    let text = if revision.contains("..") {
        git(root, ["rev-list", "--reverse", revision]).read()?
    } else {
        git(root, ["rev-parse", "--verify", &format!("{revision}^{{commit}}")]).read()?
    };
    let commits: Vec<String> = text.lines().map(str::to_owned).collect();
    if commits.is_empty() {
        bail!("there is no commit in the range `{revision}`");
    }
    Ok(commits)
}

/// Makes a work tree of `base` at `tree` with the changes of the commits applied, in order.
///
/// # Errors
/// When a commit does not apply. The tree is gone again then.
pub(crate) fn make_tree(
    root: &Path,
    tree: &Path,
    base: &str,
    commits: &[String],
) -> anyhow::Result<()> {
    remove_tree(root, tree)?;
    let path = tree.to_string_lossy().into_owned();
    git(root, ["worktree", "add", "--quiet", "--detach", &path, base]).read()?;
    for commit in commits {
        if let Err(error) = git(tree, ["cherry-pick", "--no-commit", commit]).read() {
            remove_tree(root, tree)?;
            return Err(error)
                .with_context(|| format!("commit {commit} does not apply on top of {base}"))
                .hint("rebase the change onto the frozen commit and amend the ladder");
        }
    }
    Ok(())
}

pub(crate) fn remove_tree(root: &Path, tree: &Path) -> anyhow::Result<()> {
    let path = tree.to_string_lossy().into_owned();
    if tree.exists() {
        git(root, ["worktree", "remove", "--force", &path]).read()?;
    }
    git(root, ["worktree", "prune"]).read().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), ["init", "--quiet"]).read().unwrap();
        git(folder.path(), ["config", "user.name", "t"]).read().unwrap();
        git(folder.path(), ["config", "user.email", "t@t"]).read().unwrap();
        commit(folder.path(), "a", "1\n");
        folder
    }

    fn commit(folder: &Path, file: &str, text: &str) -> String {
        std::fs::write(folder.join(file), text).unwrap();
        git(folder, ["add", "-A"]).read().unwrap();
        git(folder, ["commit", "--quiet", "-m", "x"]).read().unwrap();
        read_head(folder).unwrap()
    }

    #[test]
    fn revisions_are_applied_in_a_tree_of_their_own() {
        let folder = repository();
        let root = folder.path();
        let base = read_head(root).unwrap();
        let change = commit(root, "b", "2\n");
        let other = commit(root, "a", "3\n");
        assert_eq!(list_commits(root, &format!("{base}..HEAD")).unwrap(), [change.clone(), other]);
        let tree = root.join("target/tree");
        make_tree(root, &tree, &base, std::slice::from_ref(&change)).unwrap();
        assert_eq!(std::fs::read_to_string(tree.join("b")).unwrap(), "2\n");
        assert_eq!(std::fs::read_to_string(tree.join("a")).unwrap(), "1\n");
        assert_eq!(std::fs::read_to_string(root.join("a")).unwrap(), "3\n");
        // A second time replaces the first.
        make_tree(root, &tree, &base, &[]).unwrap();
        assert!(!tree.join("b").exists());
        remove_tree(root, &tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_change_that_does_not_apply_is_an_error_and_leaves_no_tree() {
        let folder = repository();
        let root = folder.path();
        let base = read_head(root).unwrap();
        commit(root, "a", "2\n");
        let late = commit(root, "a", "3\n");
        let tree = root.join("target/tree");
        let error = make_tree(root, &tree, &base, &[late]).unwrap_err();
        assert!(error.to_string().contains("does not apply"), "{error}");
        assert!(!tree.exists());
    }

    #[test]
    fn changes_name_tracked_and_untracked_files() {
        let folder = repository();
        std::fs::write(folder.path().join("a"), "9\n").unwrap();
        std::fs::write(folder.path().join("new"), "9\n").unwrap();
        let changes = list_changes(folder.path()).unwrap();
        assert_eq!(changes, ["a", "new"]);
        let tree = list_tree(folder.path(), "HEAD").unwrap();
        assert_eq!(tree.len(), 1);
        assert_eq!(tree[0].path, "a");
    }
}
