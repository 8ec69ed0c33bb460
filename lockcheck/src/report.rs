//! The report, for people, for programs and for CI annotations. It renders; it prints nothing.

use super::ancestry::Ancestry;
use super::check::Checked;
use super::finding::{Finding, Severity};
use super::repair::render_repair;

mod github;
mod human;
mod json;

pub(crate) use github::render_github;
pub(crate) use human::render_human;
pub(crate) use json::render_json;

/// What was asked to be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The whole lock.
    Everything,
    /// One family, by its name.
    Family(String),
}

/// The outcome for one workspace.
#[derive(Debug)]
pub(crate) struct WorkspaceReport {
    /// The root manifest, as it is shown.
    pub(crate) manifest: String,
    /// The lock, as it is shown.
    pub(crate) lock: String,
    /// What repairs are to be told as `--manifest-path`, if anything.
    pub(crate) manifest_path: Option<String>,
    /// What was found.
    pub(crate) checked: Checked,
    /// How locked commits relate to older ones, where that was asked.
    pub(crate) ancestry: Vec<Ancestry>,
}

/// The outcome of a run: all workspaces, and what was asked of them.
#[derive(Debug)]
pub(crate) struct Report {
    /// What was checked.
    pub(crate) asked: Asked,
    /// The workspaces, the one asked for first.
    pub(crate) workspaces: Vec<WorkspaceReport>,
}

impl Report {
    /// Whether lock and manifests agree everywhere.
    pub(crate) fn agrees(&self) -> bool {
        self.workspaces.iter().all(|workspace| workspace.checked.agrees())
    }

    fn count(&self, severity: Severity) -> usize {
        let findings = self.workspaces.iter().flat_map(|workspace| &workspace.checked.findings);
        findings.filter(|finding| finding.severity == severity).count()
    }
}

impl WorkspaceReport {
    /// A path as seen from the folder of the root manifest, where it lies below it.
    fn seen_from_root<'p>(&self, path: &'p str) -> &'p str {
        let root = self.manifest.strip_suffix("Cargo.toml").unwrap_or_default();
        path.strip_prefix(root).unwrap_or(path)
    }

    /// The repair of a finding as a command line.
    fn fix(&self, finding: &Finding) -> Option<String> {
        let repair = finding.repair.as_ref()?;
        Some(render_repair(repair, self.manifest_path.as_deref()))
    }
}

fn verdict(agrees: bool) -> &'static str {
    if agrees { "agree" } else { "disagree" }
}

fn plural(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
