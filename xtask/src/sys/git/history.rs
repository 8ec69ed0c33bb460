//! Asks git how recorded commits stand to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{anyhow, bail};

use super::git;
use crate::base::diagnostic::HintExt as _;

const WITHOUT_GIT: &str = "--fixed-by needs git; --model and --before do not";

/// How each commit asked for stands to the fix, by the name as given.
pub(crate) type CommitAges = BTreeMap<String, CommitAge>;

/// How a commit stands to another one, the fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitAge {
    /// The fix has it among its ancestors.
    Before,
    /// It is the fix itself: the event happened with the fix.
    Same,
    /// It is on no path to the fix: later, or on another branch.
    NotBefore,
    /// This repository does not know it.
    Unknown,
}

/// How each of the commits, named as recorded, stands to `revision`.
///
/// # Errors
/// No git, no repository, or no such revision.
pub(crate) fn read_commit_ages(
    root: &Path,
    commits: &BTreeSet<String>,
    revision: &str,
) -> anyhow::Result<CommitAges> {
    let asked = git(root, ["rev-parse", "--git-dir"]).output().hint(WITHOUT_GIT)?;
    if !asked.status.success() {
        bail!("git cannot be asked here: {}", first_line(&asked.stderr));
    }
    let Some(fix) = read_commit(root, revision)? else {
        return Err(anyhow!("git has no commit `{revision}`"))
            .hint("name the commit, tag or branch that holds the fix; `git log` lists commits");
    };
    let mut ages = CommitAges::new();
    for commit in commits {
        let age = match read_commit(root, commit)? {
            None => CommitAge::Unknown,
            Some(id) if id == fix => CommitAge::Same,
            Some(id) => {
                let asked = git(root, ["merge-base", "--is-ancestor", &id, &fix]).output()?;
                match asked.status.code() {
                    Some(0) => CommitAge::Before,
                    Some(1) => CommitAge::NotBefore,
                    _ => bail!("git merge-base failed: {}", first_line(&asked.stderr)),
                }
            }
        };
        ages.insert(commit.clone(), age);
    }
    Ok(ages)
}

/// How many commits `revision` has that `commit` lacks; `None` where git cannot tell.
pub(crate) fn read_distance(root: &Path, commit: &str, revision: &str) -> Option<u64> {
    let commit = read_commit(root, commit).ok()??;
    let revision = read_commit(root, revision).ok()??;
    let counted = git(root, ["rev-list", "--count", &format!("{commit}..{revision}")]).read();
    counted.ok()?.trim().parse().ok()
}

/// The full id of the commit that a name stands for; `None` where it stands for none.
fn read_commit(root: &Path, name: &str) -> anyhow::Result<Option<String>> {
    // A name out of a file must not be taken for an option.
    if name.is_empty() || name.starts_with('-') {
        return Ok(None);
    }
    let name = format!("{name}^{{commit}}");
    let found =
        git(root, ["rev-parse", "--verify", "--quiet", "--end-of-options", &name]).output()?;
    let id = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    Ok((found.status.success() && !id.is_empty()).then_some(id))
}

fn first_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).lines().next().unwrap_or("it said nothing").to_owned()
}
