//! The command line: what is asked, and the run from reading to the exit code. The binary `lockcheck`
//! and any tool that takes the check as a command of its own share it.
//!
//! It prints: data to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::report::{render_github, render_human, render_json};
use crate::{
    AncestryRule, Before, CloneQuestion, Error, Report, Scope, Strictness, check, check_clone, read,
};

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

/// Checks the workspace, and with `--all` those below it; prints the report or the error. `command` is
/// the name that the run goes by in messages.
///
/// Exits with 0 where lock and manifests agree, with 1 where they do not, and with 2 where that could
/// not be checked.
pub fn run(args: &Args, command: &str) -> ExitCode {
    match check_all(args, command) {
        Ok(reports) => {
            print(args, command, &reports);
            ExitCode::from(u8::from(!reports.iter().all(Report::agrees)))
        }
        Err(error) => {
            log(&error.render());
            ExitCode::from(2)
        }
    }
}

fn check_all(args: &Args, command: &str) -> Result<Vec<Report>, Error> {
    let root = read::find_root(args.manifest_path.as_deref())?;
    let given = args.manifest_path.as_ref().map(|path| path.display().to_string());
    let mut reports = vec![check_one(args, command, &root, given)?];
    if args.all {
        for nested in root.find_nested()? {
            let manifest = nested.manifest();
            reports.push(check_one(args, command, &nested, Some(manifest))?);
        }
    }
    Ok(reports)
}

fn check_one(
    args: &Args,
    command: &str,
    root: &read::Root,
    manifest_path: Option<String>,
) -> Result<Report, Error> {
    let workspace = root.read_workspace()?;
    for path in workspace.missing_paths() {
        log(&format!("{command}: no manifest in `{path}`; its dependencies are not checked"));
    }
    let asked = args.only.as_deref().map(|name| workspace.family(name)).transpose()?;
    let scope = asked.as_ref().map_or(Scope::Everything, Scope::Only);
    let strictness = if args.strict { Strictness::Deny } else { Strictness::Warn };
    let mut report = check(&workspace, scope, strictness);
    report.manifest_path = manifest_path;
    if let Some(clone) = &args.candle_repo {
        let family = workspace.family(args.only.as_deref().unwrap_or("candle"))?;
        let old = args.old.clone().map(Before::Commit);
        let question = CloneQuestion {
            clone: clone.clone(),
            before: old.or_else(|| args.base.clone().map(Before::LockOf)),
            new: args.new.clone(),
            rule: if args.require_ancestor {
                AncestryRule::RequireAncestor
            } else {
                AncestryRule::Tell
            },
        };
        check_clone(&workspace, &family, &question, strictness, &mut report)?;
    }
    Ok(report)
}

fn print(args: &Args, command: &str, reports: &[Report]) {
    if args.json {
        data(&render_json(reports));
        return;
    }
    let annotations = render_github(reports);
    if args.github && !annotations.is_empty() {
        data(&annotations);
    }
    data(&render_human(reports, command));
}

/// Writes one line of data to stdout. A reader that closed the pipe is not an error.
fn data(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn log(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
