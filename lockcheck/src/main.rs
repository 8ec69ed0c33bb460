//! `cargo xtask verify-lock`: read manifests and lock → check → report.

use std::path::Path;

use anyhow::Context as _;

use crate::cli::verify_lock::Args;
use crate::diagnostic::HintExt as _;
use crate::edge::manifests::{self, Loaded, Shown};
use crate::edge::term;
use crate::lock::check::{Scope, Strictness, check};
use crate::lock::report::{
    Asked, Report, WorkspaceReport, render_github, render_human, render_json,
};
use crate::outcome::Outcome;

mod ancestry;

/// Checks the workspace, and with `--all` those below it.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (start, shown) = manifests::find_start(args.manifest_path.as_deref())?;
    let root_dir = manifests::read_root_of(&start, &shown)?;
    let given = args.manifest_path.as_ref().map(|path| path.display().to_string());
    let mut workspaces = vec![check_one(args, &root_dir, &shown, given)?];
    if args.all {
        for dir in manifests::find_workspaces_below(&root_dir, &shown)? {
            let manifest = shown.manifest(&dir);
            workspaces.push(check_one(args, &dir, &shown, Some(manifest))?);
        }
    }
    let asked = match &args.only {
        Some(family) => Asked::Family(family.clone()),
        None => Asked::Everything,
    };
    let report = Report { asked, workspaces };
    if args.json {
        term::data(&render_json(&report).context("cannot write the report as JSON")?);
    } else {
        let annotations = render_github(&report);
        if args.github && !annotations.is_empty() {
            term::data(&annotations);
        }
        term::data(&render_human(&report));
    }
    Ok(if report.agrees() { Outcome::Done } else { Outcome::Violation })
}

fn check_one(
    args: &Args,
    root_dir: &Path,
    shown: &Shown,
    manifest_path: Option<String>,
) -> anyhow::Result<WorkspaceReport> {
    let loaded = manifests::read_workspace(root_dir, shown)?;
    let Loaded { workspace, lock_text, .. } = &loaded;
    for path in &workspace.missing_paths {
        term::log(&format!(
            "verify-lock: no manifest in `{path}`; its dependencies are not checked"
        ));
    }
    let families = workspace.settings.all_families();
    let scope = match &args.only {
        None => Scope::Everything,
        Some(name) => {
            let known: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
            let family = families
                .iter()
                .find(|family| family.name == *name)
                .with_context(|| format!("no family `{name}`; there is {}", known.join(", ")))
                .hint("define it in [workspace.metadata.arc.verify-lock.families] of the root manifest")?;
            Scope::Only(family)
        }
    };
    let strictness = if args.strict { Strictness::Deny } else { Strictness::Warn };
    let mut checked = check(workspace, lock_text.as_deref(), scope, strictness);
    let ancestry = match &args.candle_repo {
        None => Vec::new(),
        Some(clone) => ancestry::check_clone(args, clone, &loaded, &families, &mut checked)?,
    };
    Ok(WorkspaceReport {
        manifest: shown.manifest(root_dir),
        lock: workspace.lock_display.clone(),
        manifest_path,
        checked,
        ancestry,
    })
}
