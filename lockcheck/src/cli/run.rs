//! From the flags to the exit code: read → check → print. Data goes to stdout, everything else to
//! stderr.

use std::io::Write as _;
use std::process::ExitCode;

use super::Args;
use crate::report::{render_github, render_human, render_json};
use crate::{
    AncestryRule, Before, CloneQuestion, Error, Report, Scope, Strictness, check, check_clone, read,
};

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
