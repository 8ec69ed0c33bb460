//! The findings about one dependency.

use super::Matcher;
use crate::check::context::{Scope, subject};
use crate::finding::{Code, Finding, Repair};
use crate::parse::lockfile::PackageIndex;
use crate::parse::source::{self, GitReference};
use crate::parse::workspace::{Dependency, Package, Patch, Role, Want};
use crate::repair;

/// Below this many hex digits, a revision is likely to be ambiguous sooner or later: git itself
/// abbreviates to no fewer.
const MIN_REV_DIGITS: usize = 7;

impl Matcher<'_, '_> {
    pub(super) fn report_missing_package(&mut self, package: &Package) {
        // What leads to a package that is not a member has been reported as missing itself.
        if package.role == Role::External {
            return;
        }
        let finding = Finding::new(Code::Missing, subject(&package.name, []))
            .at(&package.at)
            .wanted(format!("{} {}", package.name, package.version))
            .note("the lock does not have this member")
            .repair(Repair::UpdateWorkspace);
        self.matching.findings.push(finding);
        // In the whole that one finding says it all; for a family, its own crates count.
        if let Scope::Only(_) = self.context.scope {
            for dependency in &package.dependencies {
                self.report_missing(package, dependency);
            }
        }
    }

    pub(super) fn report_shadowed(
        &mut self,
        dependency: &Dependency,
        patch: &Patch,
        index: PackageIndex,
    ) {
        let Want::Git(source) = &dependency.want else { return };
        if !matches!(source.reference, GitReference::Rev(_) | GitReference::Tag(_)) {
            return;
        }
        let finding = Finding::new(Code::Shadowed, self.pin_subject(dependency, Some(index)))
            .at(&dependency.at)
            .wanted(source.to_string())
            .locked(self.context.lock.packages[index].describe_source())
            .note(format!("replaced by {}:{}", patch.at.file, patch.at.line));
        self.matching.findings.push(finding);
    }

    pub(super) fn report_loose_reference(&mut self, dependency: &Dependency, index: PackageIndex) {
        let Want::Git(source) = &dependency.want else { return };
        let locked = self.context.lock.packages[index].describe_source();
        let (code, note) = match &source.reference {
            GitReference::DefaultBranch | GitReference::Branch(_) => {
                (Code::Floating, "`cargo update` moves it to the head of the branch".to_owned())
            }
            GitReference::Tag(tag) => {
                (Code::Floating, format!("only a clone can tell whether tag `{tag}` was moved"))
            }
            GitReference::Rev(rev) if source::is_hex_rev(rev) && rev.len() < MIN_REV_DIGITS => (
                Code::ShortRev,
                format!("{} digits; the lock decides which commit is meant", rev.len()),
            ),
            GitReference::Rev(_) => return,
        };
        let finding = Finding::new(code, self.pin_subject(dependency, Some(index)))
            .at(&dependency.at)
            .wanted(source.to_string())
            .locked(locked)
            .note(note);
        self.matching.findings.push(finding);
    }

    pub(super) fn report_drift(
        &mut self,
        dependency: &Dependency,
        index: PackageIndex,
        code: Code,
    ) {
        let lock = self.context.lock;
        let locked = &lock.packages[index];
        self.matching.places.entry(index).or_insert_with(|| dependency.at.clone());
        let patch = self.patches_of(dependency).next().map(|(_, patch)| patch);
        let (wanted, held) = match code {
            Code::Version => (describe_requirement(dependency), locked.describe()),
            Code::Patch | Code::PatchRev => {
                let wanted = patch.map_or_else(String::new, |patch| patch.want.describe());
                (wanted, locked.describe_source())
            }
            _ => (dependency.want.describe(), locked.describe_source()),
        };
        let at = match (code, patch) {
            (Code::Patch | Code::PatchRev, Some(patch)) => &patch.at,
            _ => &dependency.at,
        };
        let finding = Finding::new(code, self.pin_subject(dependency, Some(index)))
            .at(at)
            .lock_line(locked.line)
            .wanted(wanted)
            .locked(held)
            .repair(repair::update(lock, index));
        self.matching.findings.push(finding);
    }

    pub(super) fn report_missing(&mut self, package: &Package, dependency: &Dependency) {
        let lock = self.context.lock;
        if package.role == Role::External && dependency.optional {
            return;
        }
        let note = if lock.named(&dependency.name).is_empty() {
            format!("declared by `{}`", package.name)
        } else {
            format!(
                "declared by `{}`, whose entry does not list it; other packages have it",
                package.name
            )
        };
        let subject = self.pin_subject(dependency, None);
        self.matching.pins.push(subject.clone());
        let finding = Finding::new(Code::Missing, subject)
            .at(&dependency.at)
            .wanted(format!(
                "{} ({})",
                describe_requirement(dependency),
                dependency.want.describe()
            ))
            .note(note)
            .repair(Repair::UpdateWorkspace);
        self.matching.findings.push(finding);
    }
}

fn describe_requirement(dependency: &Dependency) -> String {
    match &dependency.req {
        Some(req) => format!("{} {req}", dependency.name),
        None => dependency.name.clone(),
    }
}
