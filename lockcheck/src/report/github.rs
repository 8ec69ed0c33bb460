//! Annotations in the form that GitHub's CI reads from a step's output.

use crate::check::Report;
use crate::finding::Finding;

/// Renders one annotation a line; empty where nothing was found.
pub fn render_github(reports: &[Report]) -> String {
    let lines: Vec<String> = reports
        .iter()
        .flat_map(|report| report.findings.iter().map(move |finding| annotate(report, finding)))
        .collect();
    lines.join("\n")
}

fn annotate(report: &Report, finding: &Finding) -> String {
    let (file, line) = match (&finding.at, finding.lock_line) {
        (Some(at), _) => (at.file.as_str(), at.line),
        (None, line) => (report.lock.as_str(), line.unwrap_or(1)),
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
    if let Some(fix) = report.fix(finding) {
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
