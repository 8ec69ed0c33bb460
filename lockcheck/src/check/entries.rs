//! What an entry of the lock says against itself: cargo looks at none of this.

use std::collections::BTreeMap;

use super::context::{Context, Matching};
use crate::finding::{Code, Finding, Subject};
use crate::parse::lockfile::PackageIndex;
use crate::parse::source::{GitReference, GitSource, is_full_commit, is_hex_rev, is_prefix};
use crate::repair;

pub(super) fn check_entries(context: &Context<'_>, matching: &Matching) -> Vec<Finding> {
    let mut findings = check_commits(context, matching);
    findings.extend(check_splits(context, matching));
    findings
}

fn check_commits(context: &Context<'_>, matching: &Matching) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, package) in context.lock.packages.iter().enumerate() {
        let Some(source) = package.source.git() else { continue };
        let commit = package.source.commit();
        let full = |source: &GitSource| format!("{source}#<full commit id>");
        let (code, wanted, note) = match (commit, &source.reference) {
            (None, _) => (Code::NotPrecise, full(source), "no commit follows the url".to_owned()),
            (Some(commit), _) if !is_full_commit(commit) => {
                let note = format!("`{commit}` is not a full commit id of 40 or 64 hex digits");
                (Code::NotPrecise, full(source), note)
            }
            (Some(commit), GitReference::Rev(rev))
                if is_hex_rev(rev) && !is_prefix(rev, commit) =>
            {
                let note = format!("a locked build compiles {commit}, not {rev}");
                (Code::Fragment, format!("{source}#{rev}"), note)
            }
            _ => continue,
        };
        let mut finding = Finding::new(code, context.subject_of(index))
            .lock_line(package.line)
            .wanted(wanted)
            .locked(package.describe_source())
            .note(note)
            .repair(repair::update(context.lock, index));
        finding.at = matching.places.get(&index).cloned();
        findings.push(finding);
    }
    findings
}

fn check_splits(context: &Context<'_>, matching: &Matching) -> Vec<Finding> {
    type Commits<'l> = BTreeMap<&'l str, Vec<PackageIndex>>;
    let mut sources: BTreeMap<(&str, &GitReference), Commits<'_>> = BTreeMap::new();
    for (index, package) in context.lock.packages.iter().enumerate() {
        if let (Some(source), Some(commit)) = (package.source.git(), package.source.commit()) {
            let commits = sources.entry((&source.canonical, &source.reference)).or_default();
            commits.entry(commit).or_default().push(index);
        }
    }
    let mut findings = Vec::new();
    for commits in sources.into_values().filter(|commits| commits.len() > 1) {
        let mut names = Vec::new();
        let mut parts = Vec::new();
        for (commit, indexes) in &commits {
            let at: Vec<&str> =
                indexes.iter().map(|&index| context.lock.packages[index].name.as_str()).collect();
            parts.push(format!("#{commit} for {}", at.join(", ")));
            names.extend(indexes.iter().copied());
        }
        names.sort_unstable();
        let Some(&first) = names.first() else { continue };
        let package = &context.lock.packages[first];
        // Named after a crate of a family where there is one, so that the family sees the finding.
        let Subject::Package { urls, .. } = context.subject_of(first) else { continue };
        let name = names
            .iter()
            .find(|&&index| context.family_of(index).is_some())
            .map_or(&package.name, |&index| &context.lock.packages[index].name);
        let mut finding = Finding::new(Code::Split, Subject::Package { name: name.clone(), urls })
            .lock_line(package.line)
            .wanted(format!("{} at one commit", package.source_text))
            .locked(parts.join("; "))
            .repair(repair::update(context.lock, first));
        finding.at = names.iter().find_map(|index| matching.places.get(index)).cloned();
        findings.push(finding);
    }
    findings
}
