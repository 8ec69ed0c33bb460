//! What every part of the check looks at, and what one leaves for the next.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::finding::{Finding, Location, Subject};
use crate::parse::family::Family;
use crate::parse::lockfile::{LockFile, PackageIndex};
use crate::parse::workspace::{Dependency, Want, Workspace};

/// How much of a lock is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'f> {
    /// All of it.
    Everything,
    /// What belongs to one family: see [`Workspace::family`].
    Only(&'f Family),
}

/// The git repositories of the families' anchors.
#[derive(Debug, Default)]
pub(super) struct Anchors {
    by_family: HashMap<String, BTreeSet<String>>,
}

impl Anchors {
    pub(super) fn new(families: &[Family], workspace: &Workspace, lock: &LockFile) -> Self {
        let urls_of = |anchor: &str| -> BTreeSet<String> {
            let is_anchor =
                |dependency: &&Dependency| dependency.name == anchor || dependency.key == anchor;
            let git_url = |want: &Want| match want {
                Want::Git(source) => Some(source.canonical.clone()),
                _ => None,
            };
            let packages = workspace.packages.iter().flat_map(|package| &package.dependencies);
            let declared = packages.filter(is_anchor).filter_map(|it| git_url(&it.want));
            let patches = workspace.patches.iter().filter(|patch| patch.name == anchor);
            let patched = patches.filter_map(|patch| git_url(&patch.want));
            let entries = lock.named(anchor).iter().map(|&index| &lock.packages[index]);
            let locked = entries.filter_map(|it| Some(it.source.git()?.canonical.clone()));
            declared.chain(patched).chain(locked).collect()
        };
        let of_family = |family: &Family| {
            let urls = family.anchor.as_deref().map(urls_of).unwrap_or_default();
            (family.name.clone(), urls)
        };
        Self { by_family: families.iter().map(of_family).collect() }
    }

    pub(super) fn contains<'u>(
        &self,
        family: &Family,
        name: &str,
        urls: impl IntoIterator<Item = &'u str>,
    ) -> bool {
        let none = BTreeSet::new();
        family.contains(name, urls, self.by_family.get(&family.name).unwrap_or(&none))
    }

    pub(super) fn holds(&self, family: &Family, subject: &Subject) -> bool {
        match subject {
            Subject::Package { name, urls } => {
                self.contains(family, name, urls.iter().map(String::as_str))
            }
            Subject::Lock | Subject::Workspace => false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'c> {
    pub(super) workspace: &'c Workspace,
    pub(super) lock: &'c LockFile,
    pub(super) families: &'c [Family],
    pub(super) anchors: &'c Anchors,
    pub(super) scope: Scope<'c>,
}

impl Context<'_> {
    /// A locked package as the subject of a finding.
    pub(super) fn subject_of(&self, index: PackageIndex) -> Subject {
        let package = &self.lock.packages[index];
        subject(&package.name, [package.source.canonical()])
    }

    /// The family that a locked package is of, if it is of one.
    pub(super) fn family_of(&self, index: PackageIndex) -> Option<&Family> {
        let subject = self.subject_of(index);
        self.families.iter().find(|family| self.anchors.holds(family, &subject))
    }
}

/// A package as the subject of a finding, with the urls that are known of it.
pub(super) fn subject<'u>(name: &str, urls: impl IntoIterator<Item = Option<&'u str>>) -> Subject {
    let urls = urls.into_iter().flatten().map(str::to_owned).collect();
    Subject::Package { name: name.to_owned(), urls }
}

/// The edges of the lock that declarations account for, and what was found on the way.
#[derive(Debug, Default)]
pub(super) struct Matching {
    /// Everything that was compared with the lock.
    pub(super) pins: Vec<Subject>,
    /// The entries of packages whose manifests are known: their edges must be declared.
    pub(super) declared: HashSet<PackageIndex>,
    /// The edges that a declaration accounts for.
    pub(super) claimed: HashSet<(PackageIndex, PackageIndex)>,
    /// Where an entry is declared first.
    pub(super) places: HashMap<PackageIndex, Location>,
    pub(super) findings: Vec<Finding>,
}
