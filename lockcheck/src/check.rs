//! The check: a workspace against its lock. It takes values and returns findings; it reads and
//! prints nothing.

use std::collections::{BTreeSet, HashSet};

use super::family::Family;
use super::finding::{Code, Finding, Repair, Severity, Subject};
use super::lockfile::{LockError, LockFile, PackageIndex, parse_lock};
use super::source::LockedSource;
use super::spanned::TextError;
use super::workspace::{Dependency, Want, Workspace};

mod dependencies;
mod entries;
mod graph;
mod patches;
mod settings;

/// What is asked of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope<'f> {
    /// The whole lock.
    Everything,
    /// One family.
    Only(&'f Family),
}

/// What warnings are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// Warnings.
    Warn,
    /// Errors.
    Deny,
}

/// How the check of one workspace ended.
#[derive(Debug)]
pub(crate) struct Checked {
    /// What was found: errors first, the first family's before others.
    pub(crate) findings: Vec<Finding>,
    /// How much was looked at.
    pub(crate) counts: Counts,
    /// The lock, where it could be read.
    pub(crate) lock: Option<LockFile>,
}

impl Checked {
    /// Whether lock and manifests agree.
    pub(crate) fn agrees(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Error)
    }
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Members of the workspace.
    pub(crate) members: usize,
    /// Declared dependencies that were compared with the lock.
    pub(crate) pins: usize,
    /// Packages of the lock that were looked at.
    pub(crate) packages: usize,
    /// The version of the lock; 0 where there is none.
    pub(crate) lock_version: u32,
}

/// Checks a workspace against the text of its lock.
pub(crate) fn check(
    workspace: &Workspace,
    lock_text: Option<&str>,
    scope: Scope<'_>,
    strictness: Strictness,
) -> Checked {
    let families = workspace.settings.all_families();
    let mut counts = Counts { members: workspace.members().count(), ..Counts::default() };
    let (lock, mut findings, anchors) = match read_lock(lock_text) {
        Err(finding) => (None, vec![*finding], Anchors::default()),
        Ok(lock) => {
            let anchors = Anchors::new(&families, workspace, &lock);
            let context =
                Context { workspace, lock: &lock, families: &families, anchors: &anchors, scope };
            let findings = context.run(&mut counts);
            (Some(lock), findings, anchors)
        }
    };
    findings.extend(settings::check_settings(workspace));
    let place = |finding: &Finding| {
        families.iter().position(|family| anchors.holds(family, &finding.subject))
    };
    findings.retain(|finding| is_in_scope(finding, scope, &anchors));
    for finding in &mut findings {
        let denied = workspace.settings.deny.contains(&finding.code);
        let counts_here = match scope {
            Scope::Everything => true,
            Scope::Only(family) => {
                finding.subject == Subject::Lock || anchors.holds(family, &finding.subject)
            }
        };
        if counts_here && (denied || strictness == Strictness::Deny) {
            finding.severity = Severity::Error;
        }
    }
    findings.sort_by_cached_key(|finding| {
        let family = place(finding).unwrap_or(usize::MAX);
        (finding.severity, family, finding.code, finding.at.clone(), finding.package().to_owned())
    });
    Checked { findings, counts, lock }
}

/// Whether a finding is shown. Where one family is asked for, so are findings about the lock as a
/// whole and about settings; an unused patch is a setting, too, as it may have been meant for the
/// family.
fn is_in_scope(finding: &Finding, scope: Scope<'_>, anchors: &Anchors) -> bool {
    let Scope::Only(family) = scope else { return true };
    matches!(finding.subject, Subject::Lock | Subject::Workspace)
        || finding.code == Code::PatchUnused
        || anchors.holds(family, &finding.subject)
}

fn read_lock(text: Option<&str>) -> Result<LockFile, Box<Finding>> {
    let Some(text) = text else {
        let finding = Finding::new(Code::NoLock, Subject::Lock).repair(Repair::GenerateLock);
        return Err(Box::new(finding));
    };
    parse_lock(text).map_err(|error| {
        let repair = match &error {
            LockError::Broken(_) => Repair::RestoreLock,
            LockError::UnknownVersion(_) => Repair::ByHand(
                "lock with a cargo that writes a known version, or check with a newer verify-lock"
                    .to_owned(),
            ),
        };
        Box::new(report_broken(error.text(), repair))
    })
}

fn report_broken(error: &TextError, repair: Repair) -> Finding {
    let mut finding = Finding::new(Code::LockParse, Subject::Lock).note(error.message.clone());
    finding.lock_line = error.line;
    finding.repair(repair)
}

/// The git repositories of the families' anchors.
#[derive(Debug, Default)]
struct Anchors {
    urls: Vec<(String, BTreeSet<String>)>,
}

impl Anchors {
    fn new(families: &[Family], workspace: &Workspace, lock: &LockFile) -> Self {
        let urls_of = |anchor: &str| -> BTreeSet<String> {
            let is_anchor =
                |dependency: &&Dependency| dependency.name == anchor || dependency.key == anchor;
            let git_url = |want: &Want| match want {
                Want::Git(source) => Some(source.canonical.clone()),
                _ => None,
            };
            let declared = workspace
                .packages
                .iter()
                .flat_map(|package| &package.dependencies)
                .filter(is_anchor)
                .filter_map(|dependency| git_url(&dependency.want));
            let patched = workspace
                .patches
                .iter()
                .filter(|patch| patch.name == anchor)
                .filter_map(|patch| git_url(&patch.want));
            let locked = lock
                .named(anchor)
                .iter()
                .filter_map(|&index| lock.packages[index].source.git())
                .map(|source| source.canonical.clone());
            declared.chain(patched).chain(locked).collect()
        };
        let urls = families
            .iter()
            .map(|family| {
                let urls = family.anchor.as_deref().map(urls_of).unwrap_or_default();
                (family.name.clone(), urls)
            })
            .collect();
        Self { urls }
    }

    fn contains<'u>(
        &self,
        family: &Family,
        name: &str,
        urls: impl IntoIterator<Item = &'u str>,
    ) -> bool {
        let none = BTreeSet::new();
        let known = self.urls.iter().find(|(name, _)| *name == family.name);
        family.contains(name, urls, known.map_or(&none, |(_, urls)| urls))
    }

    fn holds(&self, family: &Family, subject: &Subject) -> bool {
        match subject {
            Subject::Package { name, urls } => {
                self.contains(family, name, urls.iter().map(String::as_str))
            }
            Subject::Lock | Subject::Workspace => false,
        }
    }
}

/// What every part of the check looks at.
#[derive(Debug, Clone, Copy)]
struct Context<'c> {
    workspace: &'c Workspace,
    lock: &'c LockFile,
    families: &'c [Family],
    anchors: &'c Anchors,
    scope: Scope<'c>,
}

impl Context<'_> {
    fn run(&self, counts: &mut Counts) -> Vec<Finding> {
        let problems = self.lock.problems.iter();
        let mut findings: Vec<Finding> =
            problems.map(|problem| report_broken(problem, Repair::RestoreLock)).collect();
        let states = patches::find_states(self);
        let matching = dependencies::match_dependencies(self, &states);
        findings.extend(patches::check_patches(self, &states));
        findings.extend(patches::check_replaces(self));
        findings.extend(entries::check_entries(self, &matching));
        findings.extend(graph::check_graph(self, &matching));
        counts.lock_version = self.lock.version;
        match self.scope {
            Scope::Everything => {
                counts.pins = matching.pins.len();
                counts.packages = self.lock.packages.len();
            }
            Scope::Only(family) => {
                let of_family = |subject: &&Subject| self.anchors.holds(family, subject);
                counts.pins = matching.pins.iter().filter(of_family).count();
                counts.packages = (0..self.lock.packages.len())
                    .filter(|&index| self.anchors.holds(family, &self.subject_of(index)))
                    .count();
            }
        }
        findings.extend(matching.findings);
        findings
    }

    /// A locked package as the subject of a finding.
    fn subject_of(&self, index: PackageIndex) -> Subject {
        let package = &self.lock.packages[index];
        subject(&package.name, [package.source.canonical()])
    }

    /// The family that a locked package is of, if it is of one.
    fn family_of(&self, index: PackageIndex) -> Option<&Family> {
        let subject = self.subject_of(index);
        self.families.iter().find(|family| self.anchors.holds(family, &subject))
    }
}

/// A package as the subject of a finding, with the urls that are known of it.
fn subject<'u>(name: &str, urls: impl IntoIterator<Item = Option<&'u str>>) -> Subject {
    let urls = urls.into_iter().flatten().map(str::to_owned).collect();
    Subject::Package { name: name.to_owned(), urls }
}

/// Whether a locked source is what is wanted, whatever its version.
fn is_wanted(want: &Want, locked: &LockedSource) -> bool {
    match (want, locked) {
        (Want::Path { .. }, LockedSource::Path) => true,
        (Want::Registry(wanted), LockedSource::Registry(index)) => wanted == index,
        (Want::UnknownRegistry(_), LockedSource::Registry(index)) => {
            *index != super::source::crates_io()
        }
        (Want::Git(wanted), LockedSource::Git { source, .. }) => wanted.is_same(source),
        _ => false,
    }
}

/// The edges of the lock that declarations account for, and what was found on the way.
#[derive(Debug, Default)]
struct Matching {
    /// Everything that was compared with the lock.
    pins: Vec<Subject>,
    /// The entries of packages whose manifests are known: their edges must be declared.
    declared: HashSet<PackageIndex>,
    /// The edges that a declaration accounts for.
    claimed: HashSet<(PackageIndex, PackageIndex)>,
    /// Where an entry is declared first.
    places: std::collections::HashMap<PackageIndex, super::finding::Location>,
    /// What was found.
    findings: Vec<Finding>,
}

#[cfg(test)]
mod tests;
