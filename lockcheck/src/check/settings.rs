//! Settings of a workspace that do not do what they seem to.

use super::context::subject;
use crate::finding::{Code, Finding, Location, Subject};
use crate::parse::workspace::Workspace;

pub(super) fn check_settings(workspace: &Workspace) -> Vec<Finding> {
    let setting = |code| Finding::new(code, Subject::Workspace);
    let mut findings = Vec::new();
    for (path, at) in &workspace.path_overrides {
        findings.push(setting(Code::PathsOverride).at(at).wanted(format!("path `{path}`")));
    }
    for at in &workspace.ignored_patches {
        findings.push(
            setting(Code::PatchIgnored).at(at).note("move it to the root manifest, or remove it"),
        );
    }
    for lock in &workspace.stray_locks {
        let at = Location { file: lock.clone(), line: 1, section: String::new() };
        findings.push(
            setting(Code::StrayLock)
                .at(&at)
                .note("the lock of the workspace is the one beside the root manifest"),
        );
    }
    for (name, at) in &workspace.unused_dependencies {
        let about = subject(name, []);
        findings.push(Finding::new(Code::UnusedWorkspaceDependency, about).at(at));
    }
    findings
}
