//! The report for programs: one JSON object with the findings as an array, and the verdict.

use serde::Serialize;

use super::verdict;
use crate::ancestry::Ancestry;
use crate::check::{Counts, Report};
use crate::finding::{Code, Finding, Severity};
use crate::repair::needs_network;

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
    #[serde(flatten)]
    counts: Counts,
    ancestry: &'r [Ancestry],
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

/// Renders the reports as one JSON object.
pub fn render_json(reports: &[Report]) -> String {
    let findings = reports.iter().flat_map(|report| {
        report.findings.iter().map(move |finding| json_finding(report, finding))
    });
    let count = |severity| reports.iter().map(|report| report.count(severity)).sum();
    let json = JsonReport {
        schema: SCHEMA,
        verdict: verdict(reports.iter().all(Report::agrees)),
        family: reports.first().and_then(|report| report.family.as_deref()),
        errors: count(Severity::Error),
        warnings: count(Severity::Warning),
        workspaces: reports.iter().map(json_workspace).collect(),
        findings: findings.collect(),
    };
    serde_json::to_string_pretty(&json).expect("texts and numbers are always JSON")
}

fn json_workspace(report: &Report) -> JsonWorkspace<'_> {
    JsonWorkspace {
        manifest: &report.manifest,
        lock: &report.lock,
        verdict: verdict(report.agrees()),
        counts: report.counts,
        ancestry: &report.ancestry,
    }
}

fn json_finding<'r>(report: &'r Report, finding: &'r Finding) -> JsonFinding<'r> {
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
        manifest: at.map_or(report.manifest.as_str(), |at| &at.file),
        line: at.map(|at| at.line),
        section: at.map(|at| at.section.as_str()).filter(|section| !section.is_empty()),
        lock: &report.lock,
        lock_line: finding.lock_line,
        wanted: finding.wanted.as_deref(),
        locked: finding.locked.as_deref(),
        fix: report.fix(finding),
        fix_needs_network: finding.repair.as_ref().is_some_and(needs_network),
        verdict: verdict(finding.severity != Severity::Error),
    }
}
