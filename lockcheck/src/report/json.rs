//! The report for programs: one JSON object with the findings as an array, and the verdict.

use serde::Serialize;

use super::{Asked, Report, WorkspaceReport, verdict};
use crate::lock::finding::{Code, Finding, Severity};
use crate::lock::repair::needs_network;

/// The version of the format.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct JsonReport<'r> {
    schema: u32,
    verdict: &'static str,
    family: Option<&'r str>,
    errors: usize,
    warnings: usize,
    workspaces: Vec<JsonWorkspace<'r>>,
    findings: Vec<JsonFinding<'r>>,
}

#[derive(Serialize)]
struct JsonWorkspace<'r> {
    manifest: &'r str,
    lock: &'r str,
    verdict: &'static str,
    lock_version: u32,
    members: usize,
    pins: usize,
    packages: usize,
    ancestry: Vec<JsonAncestry<'r>>,
}

#[derive(Serialize)]
struct JsonAncestry<'r> {
    package: &'r str,
    old: &'r str,
    new: &'r str,
    relation: &'static str,
}

#[derive(Serialize)]
struct JsonFinding<'r> {
    code: Code,
    severity: Severity,
    package: &'r str,
    message: String,
    manifest: &'r str,
    line: Option<usize>,
    section: Option<&'r str>,
    lock: &'r str,
    lock_line: Option<usize>,
    wanted: Option<&'r str>,
    locked: Option<&'r str>,
    fix: Option<String>,
    fix_needs_network: bool,
    verdict: &'static str,
}

/// Renders the report as one JSON object.
pub(crate) fn render_json(report: &Report) -> serde_json::Result<String> {
    let findings = report.workspaces.iter().flat_map(|workspace| {
        workspace.checked.findings.iter().map(move |finding| json_finding(workspace, finding))
    });
    serde_json::to_string_pretty(&JsonReport {
        schema: SCHEMA,
        verdict: verdict(report.agrees()),
        family: match &report.asked {
            Asked::Everything => None,
            Asked::Family(name) => Some(name),
        },
        errors: report.count(Severity::Error),
        warnings: report.count(Severity::Warning),
        workspaces: report.workspaces.iter().map(json_workspace).collect(),
        findings: findings.collect(),
    })
}

fn json_workspace(workspace: &WorkspaceReport) -> JsonWorkspace<'_> {
    let counts = workspace.checked.counts;
    JsonWorkspace {
        manifest: &workspace.manifest,
        lock: &workspace.lock,
        verdict: verdict(workspace.checked.agrees()),
        lock_version: counts.lock_version,
        members: counts.members,
        pins: counts.pins,
        packages: counts.packages,
        ancestry: workspace
            .ancestry
            .iter()
            .map(|ancestry| JsonAncestry {
                package: &ancestry.package,
                old: &ancestry.old,
                new: &ancestry.new,
                relation: ancestry.relation.as_str(),
            })
            .collect(),
    }
}

fn json_finding<'r>(workspace: &'r WorkspaceReport, finding: &'r Finding) -> JsonFinding<'r> {
    let message = match &finding.note {
        Some(note) => format!("{}: {note}", finding.code.meaning()),
        None => finding.code.meaning().to_owned(),
    };
    let at = finding.at.as_ref();
    JsonFinding {
        code: finding.code,
        severity: finding.severity,
        package: finding.package(),
        message,
        manifest: at.map_or(workspace.manifest.as_str(), |at| &at.file),
        line: at.map(|at| at.line),
        section: at.map(|at| at.section.as_str()).filter(|section| !section.is_empty()),
        lock: &workspace.lock,
        lock_line: finding.lock_line,
        wanted: finding.wanted.as_deref(),
        locked: finding.locked.as_deref(),
        fix: workspace.fix(finding),
        fix_needs_network: finding.repair.as_ref().is_some_and(needs_network),
        verdict: verdict(finding.severity != Severity::Error),
    }
}
