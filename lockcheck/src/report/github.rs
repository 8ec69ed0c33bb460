//! Annotations in the form that GitHub's CI reads from a step's output.

use super::{Report, WorkspaceReport};
use crate::lock::finding::Finding;

/// Renders one annotation a line; empty where nothing was found.
pub(crate) fn render_github(report: &Report) -> String {
    let lines: Vec<String> = report
        .workspaces
        .iter()
        .flat_map(|workspace| {
            workspace.checked.findings.iter().map(move |finding| annotate(workspace, finding))
        })
        .collect();
    lines.join("\n")
}

fn annotate(workspace: &WorkspaceReport, finding: &Finding) -> String {
    let (file, line) = match (&finding.at, finding.lock_line) {
        (Some(at), _) => (at.file.as_str(), at.line),
        (None, line) => (workspace.lock.as_str(), line.unwrap_or(1)),
    };
    let mut message = finding.code.meaning().to_owned();
    if let Some(note) = &finding.note {
        message.push_str(&format!(": {note}"));
    }
    for (side, value) in [("locked", &finding.locked), ("wanted", &finding.wanted)] {
        if let Some(value) = value {
            message.push_str(&format!("\n{side}: {value}"));
        }
    }
    if let Some(fix) = workspace.fix(finding) {
        message.push_str(&format!("\nfix: {fix}"));
    }
    format!(
        "::{} file={},line={line},title={}::{}",
        finding.severity,
        escape_property(file),
        escape_property(&format!("{} {}", finding.code, finding.package())),
        escape(&message)
    )
}

fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape(text).replace(':', "%3A").replace(',', "%2C")
}
