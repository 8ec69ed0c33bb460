//! `[patch]` and `[replace]` against what the lock records of them.

use super::context::{Context, subject};
use crate::finding::{Code, Finding, Repair};
use crate::parse::lockfile::{LockFile, PackageIndex};
use crate::parse::source::{GitReference, LockedSource};
use crate::parse::workspace::{Patch, Replace, Want};
use crate::repair;

/// What the lock records of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatchState {
    /// These packages come from it.
    Used(Vec<PackageIndex>),
    /// It is recorded as replacing nothing.
    Unused {
        line: usize,
    },
    /// The lock has another state of it.
    Outdated {
        /// The entry, where it is a package.
        index: Option<PackageIndex>,
        line: usize,
        locked: String,
    },
    Absent,
}

pub(super) fn find_states(context: &Context<'_>) -> Vec<PatchState> {
    context.workspace.patches.iter().map(|patch| find_state(patch, context.lock)).collect()
}

fn find_state(patch: &Patch, lock: &LockFile) -> PatchState {
    let named = lock.named(&patch.name);
    let used: Vec<PackageIndex> = named
        .iter()
        .copied()
        .filter(|&index| patch.want.is_met_by(&lock.packages[index].source))
        .collect();
    if !used.is_empty() {
        return PatchState::Used(used);
    }
    let unused = || lock.unused_patches.iter().filter(|unused| unused.name == patch.name);
    let same_version = |version| patch.version.as_ref().is_none_or(|wanted| wanted == version);
    if let Some(unused) = unused()
        .find(|unused| patch.want.is_met_by(&unused.source) && same_version(&unused.version))
    {
        return PatchState::Unused { line: unused.line };
    }
    let outdated = |source: &LockedSource| match (&patch.want, source) {
        (Want::Git(wanted), LockedSource::Git { source, .. }) => {
            wanted.canonical == source.canonical
                // A patch of a repository by another state of itself: what is not patched yet looks
                // the same.
                && wanted.canonical != patch.source
        }
        _ => false,
    };
    if let Some(&index) = named.iter().find(|&&index| outdated(&lock.packages[index].source)) {
        let package = &lock.packages[index];
        let locked = package.describe_source();
        return PatchState::Outdated { index: Some(index), line: package.line, locked };
    }
    if let Some(unused) = unused().find(|unused| outdated(&unused.source)) {
        let locked = format!("{} {} (unused)", unused.name, unused.version);
        return PatchState::Outdated { index: None, line: unused.line, locked };
    }
    PatchState::Absent
}

/// Checks that the lock records every patch, and every patch that the lock records is there.
pub(super) fn check_patches(context: &Context<'_>, states: &[PatchState]) -> Vec<Finding> {
    let lock = context.lock;
    let mut findings = Vec::new();
    for (patch, state) in context.workspace.patches.iter().zip(states) {
        let about = subject(&patch.name, [Some(patch.source.as_str()), patch.want.canonical()]);
        let finding =
            |code| Finding::new(code, about.clone()).at(&patch.at).wanted(patch.want.describe());
        let update_of_name = || {
            lock.named(&patch.name)
                .first()
                .map_or(Repair::UpdateWorkspace, |&index| repair::update(lock, index))
        };
        match state {
            PatchState::Used(used) => findings.extend(report_floating(context, patch, used)),
            PatchState::Unused { line } => findings.push(
                finding(Code::PatchUnused)
                    .lock_line(*line)
                    .note("the lock records it as unused: no version or source matches"),
            ),
            PatchState::Outdated { index, line, locked } => {
                let repair = index.map_or_else(update_of_name, |index| repair::update(lock, index));
                let finding = finding(Code::PatchRev).lock_line(*line).locked(locked.clone());
                findings.push(finding.repair(repair));
            }
            PatchState::Absent => {
                let held = lock.named(&patch.name).first().map(|&index| {
                    let package = &lock.packages[index];
                    (package.line, package.describe_source())
                });
                let mut finding = finding(Code::Patch)
                    .note("the lock has no trace of it, neither as used nor as unused")
                    .repair(update_of_name());
                if let Some((line, source)) = held {
                    finding = finding.lock_line(line).locked(source);
                }
                findings.push(finding);
            }
        }
    }
    for unused in &lock.unused_patches {
        if !context.workspace.patches.iter().any(|patch| patch.name == unused.name) {
            let about = subject(&unused.name, [unused.source.canonical()]);
            findings.push(
                Finding::new(Code::PatchUnused, about)
                    .lock_line(unused.line)
                    .locked(format!("{} {}", unused.name, unused.version))
                    .note("the lock records it as unused, and no manifest has it any more"),
            );
        }
    }
    findings
}

fn report_floating(context: &Context<'_>, patch: &Patch, used: &[PackageIndex]) -> Option<Finding> {
    let Want::Git(source) = &patch.want else { return None };
    if matches!(source.reference, GitReference::Rev(_)) {
        return None;
    }
    let locked = used.first().map(|&index| context.lock.packages[index].describe_source())?;
    let about = subject(&patch.name, [Some(patch.source.as_str()), patch.want.canonical()]);
    Some(
        Finding::new(Code::Floating, about)
            .at(&patch.at)
            .wanted(source.to_string())
            .locked(locked)
            .note(format!("{} can move", source.reference.describe())),
    )
}

/// Checks `[replace]` against the `replace` lines of the lock.
pub(super) fn check_replaces(context: &Context<'_>) -> Vec<Finding> {
    let lock = context.lock;
    let mut findings = Vec::new();
    for replace in &context.workspace.replaces {
        let about = subject(&replace.name, [replace.source.as_deref(), replace.want.canonical()]);
        let matching: Vec<PackageIndex> = lock
            .named(&replace.name)
            .iter()
            .copied()
            .filter(|&index| is_replaced_by(lock, index, replace))
            .collect();
        let replaced =
            matching.iter().find_map(|&index| Some((index, lock.packages[index].replacement?)));
        let finding = |code| {
            Finding::new(code, about.clone()).at(&replace.at).wanted(replace.want.describe())
        };
        findings.push(finding(Code::ReplaceDeprecated));
        match (replaced, matching.first()) {
            (Some((index, replacement)), _) => {
                let held = &lock.packages[replacement];
                if let Some(code) = compare_replacement(&replace.want, &held.source) {
                    findings.push(
                        finding(code)
                            .lock_line(lock.packages[index].line)
                            .locked(held.describe_source())
                            .repair(repair::update(lock, replacement)),
                    );
                }
            }
            (None, Some(&index)) => {
                let held = &lock.packages[index];
                findings.push(
                    finding(Code::Patch)
                        .lock_line(held.line)
                        .locked(held.describe_source())
                        .note("the lock does not record the replacement")
                        .repair(repair::update(lock, index)),
                );
            }
            (None, None) => findings.push(
                finding(Code::PatchUnused).note("the lock has no package that it could replace"),
            ),
        }
    }
    for (index, package) in lock.packages.iter().enumerate() {
        let Some(replacement) = package.replacement else { continue };
        if !context.workspace.replaces.iter().any(|it| is_replaced_by(lock, index, it)) {
            findings.push(
                Finding::new(Code::Patch, context.subject_of(index))
                    .lock_line(package.line)
                    .locked(lock.packages[replacement].describe_source())
                    .note("the lock records a replacement that no manifest has any more")
                    .repair(repair::update(lock, index)),
            );
        }
    }
    findings
}

/// Whether the package id of a `[replace]` entry means this package.
fn is_replaced_by(lock: &LockFile, index: PackageIndex, replace: &Replace) -> bool {
    let package = &lock.packages[index];
    package.name == replace.name
        && replace.version.as_ref().is_none_or(|version| *version == package.version)
        && replace.source.as_deref().is_none_or(|url| package.source.canonical() == Some(url))
}

fn compare_replacement(want: &Want, locked: &LockedSource) -> Option<Code> {
    if want.is_met_by(locked) {
        return None;
    }
    match (want, locked.git()) {
        (Want::Git(wanted), Some(source)) if wanted.canonical == source.canonical => {
            Some(Code::PatchRev)
        }
        _ => Some(Code::Patch),
    }
}
