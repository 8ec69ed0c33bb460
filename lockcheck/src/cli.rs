//! `cargo xtask verify-lock`.

use std::path::PathBuf;

/// Check offline that Cargo.lock holds what the manifests pin.
///
/// Answers one question, for this workspace or any other: is the code that a `--locked` build
/// compiles the code that the manifests pin? It reads manifests and lock and runs no cargo, no git
/// and no network, so that it also sees what cargo is silent about: where the lock says
/// `?rev=B#A`, every `--locked` command exits with 0 and compiles A.
///
/// Exit codes: 0 they agree; 1 they do not (a missing or broken lock included); 2 usage, or a file
/// that cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask verify-lock\n  \
    cargo xtask verify-lock --only candle --manifest-path ../engine/Cargo.toml\n  \
    cargo xtask verify-lock --strict --github\n  \
    cargo xtask verify-lock --candle-repo ../candle --base origin/main --require-ancestor\n\n\
    Every code, with an example and its repair, is in docs/VERIFY-LOCK.md.")]
pub(crate) struct Args {
    /// The manifest of the workspace, or of any package in it [default: the nearest one].
    #[arg(long, value_name = "PATH")]
    pub(crate) manifest_path: Option<PathBuf>,
    /// Give the verdict for one family only; `candle` is built in, others are configured.
    #[arg(long, value_name = "FAMILY")]
    pub(crate) only: Option<String>,
    /// Also check nested and excluded workspaces that have a lock of their own.
    #[arg(long)]
    pub(crate) all: bool,
    /// Warnings are errors.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object instead of text.
    #[arg(long, conflicts_with = "github")]
    pub(crate) json: bool,
    /// Print annotations for GitHub's CI, then the text.
    #[arg(long)]
    pub(crate) github: bool,
    /// A local clone of the family's repository: checks tags, branches, short revisions and, with
    /// --old or --base, ancestry. Runs git in it.
    #[arg(long, value_name = "DIR")]
    pub(crate) candle_repo: Option<PathBuf>,
    /// The commit that was locked before.
    #[arg(long, value_name = "REV", requires = "candle_repo", group = "before")]
    pub(crate) old: Option<String>,
    /// The commit that is locked now [default: from the lock].
    #[arg(long, value_name = "REV", requires = "before")]
    pub(crate) new: Option<String>,
    /// Read the old commit from the lock of this revision of the workspace's own repository.
    #[arg(long, value_name = "REF", requires = "candle_repo", group = "before")]
    pub(crate) base: Option<String>,
    /// Steps backward, sideways and to another repository are errors.
    #[arg(long, requires = "before")]
    pub(crate) require_ancestor: bool,
}
