//! The report for people: findings of one cause together, both sides as a diff, the repair.

use similar::{ChangeTag, TextDiff};

use super::verdict;
use crate::check::{Counts, Report};
use crate::finding::{Code, Finding, Severity};
use crate::repair::needs_network;

/// How many names of one group are listed.
const MAX_NAMES: usize = 8;

/// Renders the reports. `command` is the name of the command that shows them, which starts the line
/// with the verdict.
pub fn render_human(reports: &[Report], command: &str) -> String {
    let mut parts = Vec::new();
    for report in reports {
        let mut text = String::new();
        for group in group_findings(&report.findings) {
            text.push_str(&render_group(report, &group));
            text.push('\n');
        }
        for ancestry in &report.ancestry {
            text.push_str(&format!("{ancestry}\n"));
        }
        text.push_str(&format!("{command}: {}", render_summary(report)));
        parts.push(text);
    }
    parts.join("\n\n")
}

/// Findings that have one cause, in the order in which the first of each comes.
fn group_findings(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        match groups.iter_mut().find(|group| is_same_cause(group[0], finding)) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

fn is_same_cause(a: &Finding, b: &Finding) -> bool {
    if a.code != b.code || a.severity != b.severity {
        return false;
    }
    match a.code {
        // Lists of one kind: what differs is listed line by line.
        Code::MemberVersion
        | Code::Missing
        | Code::Orphan
        | Code::PatchIgnored
        | Code::PatchUnused
        | Code::StrayLock
        | Code::UnusedWorkspaceDependency => a.repair == b.repair,
        Code::LockParse | Code::Dup | Code::MixedPins | Code::Split => false,
        _ => a.wanted == b.wanted && a.locked == b.locked,
    }
}

fn render_group(report: &Report, group: &[&Finding]) -> String {
    let first = group[0];
    let mut names: Vec<&str> = Vec::new();
    for finding in group {
        if !names.contains(&finding.package()) {
            names.push(finding.package());
        }
    }
    let more = match (names.len(), &first.wanted, is_by_source(first.code)) {
        (1, ..) => String::new(),
        (count, Some(_), true) => format!(" (+{} from the same source)", count - 1),
        (count, ..) => format!(" (+{} more)", count - 1),
    };
    let mut text = format!(
        "{}[{}] {}{more}   {}\n",
        first.severity,
        first.code,
        names[0],
        render_place(report, first)
    );
    text.push_str(&render_diff(report, group));
    text.push_str(&format!("note: {}", first.code.meaning()));
    match &first.note {
        Some(note) if group.iter().all(|it| it.note == first.note) => {
            text.push_str(&format!(": {note}"));
        }
        _ => {}
    }
    text.push('\n');
    if names.len() > 1 {
        let listed: Vec<&str> = names[1..].iter().copied().take(MAX_NAMES).collect();
        let rest = match names.len() - 1 - listed.len() {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        text.push_str(&format!("also: {}{rest}\n", listed.join(", ")));
    }
    if let (Some(fix), Some(repair)) = (report.fix(first), &first.repair) {
        let network = if needs_network(repair) { "        (needs the network)" } else { "" };
        text.push_str(&format!("fix: {fix}{network}\n"));
    }
    text
}

/// Whether packages of one group of this code come from one source.
fn is_by_source(code: Code) -> bool {
    !matches!(
        code,
        Code::MemberVersion | Code::Missing | Code::Orphan | Code::PatchUnused | Code::Version
    )
}

fn render_place(report: &Report, finding: &Finding) -> String {
    match (&finding.at, finding.lock_line) {
        (Some(at), _) => format!("{}:{} {}", at.file, at.line, at.section).trim_end().to_owned(),
        (None, Some(line)) => format!("{}:{line}", report.lock),
        (None, None) => report.lock.clone(),
    }
}

/// Lock against manifest, as a unified diff in which each line names its file, seen from the root.
fn render_diff(report: &Report, group: &[&Finding]) -> String {
    let mut lock_side: Vec<&str> = Vec::new();
    let mut manifest_side: Vec<(&str, &str)> = Vec::new();
    for finding in group {
        for part in finding.locked.iter().flat_map(|locked| locked.split("; ")) {
            if !lock_side.contains(&part) {
                lock_side.push(part);
            }
        }
        let file = finding.at.as_ref().map_or(report.manifest.as_str(), |at| &at.file);
        for part in finding.wanted.iter().flat_map(|wanted| wanted.split("; ")) {
            if !manifest_side.iter().any(|(_, known)| *known == part) {
                manifest_side.push((seen_from_root(report, file), part));
            }
        }
    }
    let lock = seen_from_root(report, &report.lock);
    let labels = manifest_side.iter().map(|(file, _)| *file);
    let labels = labels.chain((!lock_side.is_empty()).then_some(lock));
    let width = labels.map(str::len).max().unwrap_or(0);
    let wanted: Vec<&str> = manifest_side.iter().map(|(_, wanted)| *wanted).collect();
    // Where the manifest has nothing to set against it, a warning only shows what is there.
    let only_shown = wanted.is_empty() && group[0].severity == Severity::Warning;
    let mut text = String::new();
    for change in TextDiff::from_slices(&lock_side, &wanted).iter_all_changes() {
        let (sign, file) = match change.tag() {
            ChangeTag::Delete if !only_shown => ('-', lock),
            ChangeTag::Delete | ChangeTag::Equal => (' ', lock),
            ChangeTag::Insert => {
                let at = change.new_index().and_then(|index| manifest_side.get(index));
                ('+', at.map_or("", |(file, _)| file))
            }
        };
        text.push_str(&format!("{sign} {file:width$}   {}\n", change.value()));
    }
    text
}

fn render_summary(report: &Report) -> String {
    let mut text = verdict(report.agrees()).to_owned();
    for (severity, one) in [(Severity::Error, "error"), (Severity::Warning, "warning")] {
        match report.count(severity) {
            0 => {}
            count => text.push_str(&format!(", {}", plural(count, one))),
        }
    }
    let Counts { lock_version, members, pins, packages } = report.counts;
    let members = plural(members, "member");
    if report.lock_file.is_none() {
        return format!("{text}: {members}, no pins checked: cannot use {}", report.lock);
    }
    let of_family =
        report.family.as_ref().map_or_else(String::new, |name| format!(" of family `{name}`"));
    let nothing = if pins == 0 { "; there was nothing to check" } else { "" };
    format!(
        "{text}: {members}, {}{of_family} checked against {} (version {lock_version}, \
         {}{of_family}){nothing}",
        plural(pins, "pin"),
        report.lock,
        plural(packages, "package")
    )
}

/// A path as seen from the folder of the root manifest, where it lies below it.
fn seen_from_root<'p>(report: &Report, path: &'p str) -> &'p str {
    let root = report.manifest.strip_suffix("Cargo.toml").unwrap_or_default();
    path.strip_prefix(root).unwrap_or(path)
}

fn plural(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
