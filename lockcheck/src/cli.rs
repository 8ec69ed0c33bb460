//! The command line. The binary `lockcheck` and any tool that takes the check as a command of its own
//! share the flags and the run.

use std::path::PathBuf;

mod run;

pub use run::run;

/// Check offline that Cargo.lock holds what the manifests pin.
///
/// It answers one question, for this workspace or any other: is the code that a `--locked` build
/// compiles the code that the manifests pin? It reads manifests and lock, and runs no cargo, no git
/// and no network. So it also sees what cargo does not report: where the lock says `?rev=B#A`, every
/// `--locked` command exits with 0 and compiles A.
///
/// Exit codes: 0 they agree; 1 they do not, or the lock is missing or broken; 2 wrong usage, or a file
/// that cannot be read.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The manifest of the workspace, or of any package in it [default: the nearest one].
    #[arg(long, value_name = "PATH")]
    pub manifest_path: Option<PathBuf>,
    /// Check one family of crates only: `candle`, or one that the root manifest defines.
    #[arg(long, value_name = "FAMILY")]
    pub only: Option<String>,
    /// Also check nested and excluded workspaces that have a lock of their own.
    #[arg(long)]
    pub all: bool,
    /// Treat warnings as errors.
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON object instead of text.
    #[arg(long, conflicts_with = "github")]
    pub json: bool,
    /// Print annotations for GitHub Actions, then the text.
    #[arg(long)]
    pub github: bool,
    /// A local clone of the family's repository: also check moved tags, branches, short revisions
    /// and, with --old or --base, ancestry. Runs git in it, which does not fetch.
    #[arg(long, value_name = "DIR")]
    pub candle_repo: Option<PathBuf>,
    /// The commit that was locked before.
    #[arg(long, value_name = "REV", requires = "candle_repo", group = "before")]
    pub old: Option<String>,
    /// The commit that is locked now [default: from the lock].
    #[arg(long, value_name = "REV", requires = "before")]
    pub new: Option<String>,
    /// Read the old commit from the lock of this revision of the workspace's own repository.
    #[arg(long, value_name = "REF", requires = "candle_repo", group = "before")]
    pub base: Option<String>,
    /// Fail unless the old commit is an ancestor of the new one.
    #[arg(long, requires = "before")]
    pub require_ancestor: bool,
}

/// Examples for the end of `--help`, as calls of `command`.
pub fn examples(command: &str) -> String {
    format!(
        "\
Examples:
  Check the workspace that you are in:
    {command}
  In CI, with warnings as errors and annotations on the changed lines:
    {command} --strict --github
  Check the candle crates of another workspace:
    {command} --only candle --manifest-path ../engine/Cargo.toml
  Make sure that a bump went forward, with a clone of candle:
    {command} --candle-repo ../candle --base origin/main --require-ancestor

Every code, with an example and its repair, is in docs/VERIFY-LOCK.md."
    )
}
