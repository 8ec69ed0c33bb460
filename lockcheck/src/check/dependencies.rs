//! Every declared dependency against the entry of the package that declares it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::Path;

use semver::Version;

use super::context::{Context, Matching, subject};
use super::patches::PatchState;
use crate::finding::{Code, Finding, Repair};
use crate::parse::lockfile::{LockedPackage, PackageIndex};
use crate::parse::source::{self, GitReference, LockedSource, ReferenceDrift};
use crate::parse::workspace::{Dependency, Package, Patch, Role, Want};

mod report;

/// Follows the packages on disk from the members on and compares their dependencies.
pub(super) fn match_dependencies(context: &Context<'_>, states: &[PatchState]) -> Matching {
    let packages = &context.workspace.packages;
    let mut matcher = Matcher {
        context,
        states,
        by_dir: packages.iter().enumerate().map(|(at, package)| (&*package.dir, at)).collect(),
        queue: (0..packages.len()).filter(|&at| packages[at].role == Role::Member).collect(),
        matching: Matching::default(),
    };
    let mut seen = HashSet::new();
    while let Some(at) = matcher.queue.pop_front() {
        if seen.insert(at) {
            matcher.match_package(&packages[at]);
        }
    }
    matcher.matching
}

struct Matcher<'m, 'c> {
    context: &'m Context<'c>,
    states: &'m [PatchState],
    by_dir: HashMap<&'m Path, usize>,
    queue: VecDeque<usize>,
    matching: Matching,
}

/// How a locked package suits a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// It is what is asked for.
    Own,
    /// It is what this patch puts in its place.
    Patched(usize),
    /// It is of an older state of a patch; the finding is the patch's.
    OutdatedPatch,
    /// It is not what is asked for.
    Drift(Code),
}

impl Fit {
    /// The smaller, the nearer to what is asked for.
    fn distance(self) -> usize {
        let order = [
            Code::Version,
            Code::RevSpelling,
            Code::Rev,
            Code::Ref,
            Code::PatchRev,
            Code::Patch,
            Code::Url,
            Code::SourceKind,
        ];
        match self {
            Self::Own | Self::Patched(_) | Self::OutdatedPatch => 0,
            Self::Drift(code) => {
                1 + order.iter().position(|known| *known == code).unwrap_or(order.len())
            }
        }
    }
}

impl<'m> Matcher<'m, '_> {
    fn match_package(&mut self, package: &'m Package) {
        let Some(entry) = self.find_entry(package) else {
            self.report_missing_package(package);
            return;
        };
        let locked = &self.context.lock.packages[entry];
        if locked.version != package.version {
            let finding = Finding::new(Code::MemberVersion, subject(&package.name, []))
                .at(&package.at)
                .lock_line(locked.line)
                .wanted(format!("{} {}", package.name, package.version))
                .locked(format!("{} {}", locked.name, locked.version))
                .repair(Repair::UpdateWorkspace);
            self.matching.findings.push(finding);
        }
        self.matching.declared.insert(entry);
        let mut by_name: BTreeMap<&str, Vec<&Dependency>> = BTreeMap::new();
        for dependency in &package.dependencies {
            by_name.entry(&dependency.name).or_default().push(dependency);
        }
        for (name, dependencies) in by_name {
            let candidates: Vec<PackageIndex> = locked
                .dependencies
                .iter()
                .copied()
                .filter(|&index| self.context.lock.packages[index].name == name)
                .collect();
            self.match_name(package, entry, &dependencies, &candidates);
        }
    }

    /// The entry of a package on disk: the one of its version, or else any of its name.
    fn find_entry(&self, package: &Package) -> Option<PackageIndex> {
        let lock = self.context.lock;
        let on_disk = lock.named(&package.name).iter().copied();
        let mut on_disk =
            on_disk.filter(|&index| lock.packages[index].source == LockedSource::Path);
        let first = on_disk.clone().next();
        on_disk.find(|&index| lock.packages[index].version == package.version).or(first)
    }

    /// Matches the dependencies of one name with the entries of that name.
    fn match_name(
        &mut self,
        package: &Package,
        entry: PackageIndex,
        dependencies: &[&'m Dependency],
        candidates: &[PackageIndex],
    ) {
        let mut taken: HashSet<PackageIndex> = HashSet::new();
        let mut unmatched = Vec::new();
        for dependency in dependencies {
            let fits: Vec<(PackageIndex, Fit)> =
                candidates.iter().map(|&index| (index, self.fit(dependency, index))).collect();
            let exact: Vec<_> = fits.iter().filter(|(_, fit)| fit.distance() == 0).collect();
            if exact.is_empty() {
                unmatched.push((*dependency, fits));
                continue;
            }
            self.matching.pins.push(self.pin_subject(dependency, Some(exact[0].0)));
            for &&(index, fit) in &exact {
                taken.insert(index);
                self.accept(dependency, index, fit);
            }
        }
        for (dependency, fits) in unmatched {
            // An entry that nothing else accounts for is the one that this dependency was locked as.
            let nearest =
                fits.iter().min_by_key(|(index, fit)| (taken.contains(index), fit.distance()));
            match nearest {
                Some(&(index, Fit::Drift(code))) => {
                    taken.insert(index);
                    self.matching.pins.push(self.pin_subject(dependency, Some(index)));
                    self.report_drift(dependency, index, code);
                    self.follow(&dependency.want, index);
                }
                _ => self.report_missing(package, dependency),
            }
        }
        self.matching.claimed.extend(taken.into_iter().map(|index| (entry, index)));
    }

    fn pin_subject(
        &self,
        dependency: &Dependency,
        index: Option<PackageIndex>,
    ) -> crate::finding::Subject {
        let locked = index.and_then(|index| self.context.lock.packages[index].source.canonical());
        subject(&dependency.name, [dependency.want.canonical(), locked])
    }

    /// The patches that apply to a dependency, with their places among all.
    fn patches_of<'d>(
        &self,
        dependency: &'d Dependency,
    ) -> impl Iterator<Item = (usize, &'m Patch)> + use<'m, 'd, '_>
    where
        'm: 'd,
    {
        let patches = &self.context.workspace.patches;
        let url = dependency.want.canonical();
        patches.iter().enumerate().filter(move |(_, patch)| {
            patch.name == dependency.name && url == Some(patch.source.as_str())
        })
    }

    fn fit(&self, dependency: &Dependency, index: PackageIndex) -> Fit {
        let locked = &self.context.lock.packages[index];
        let admits = |version: &Version| admits(dependency, version);
        for (at, patch) in self.patches_of(dependency) {
            if patch.want.is_met_by(&locked.source) && admits(&locked.version) {
                return Fit::Patched(at);
            }
        }
        let Some(code) = self.compare(dependency, locked) else {
            // The lock does not use a patch here that it uses elsewhere.
            let avoided = self.patches_of(dependency).any(|(at, _)| match &self.states[at] {
                PatchState::Used(used) => used.iter().any(|&used| {
                    let version = &self.context.lock.packages[used].version;
                    let from_git = matches!(dependency.want, Want::Git(_));
                    admits(version) && (*version == locked.version || from_git)
                }),
                _ => false,
            });
            return if avoided { Fit::Drift(Code::Patch) } else { Fit::Own };
        };
        let same_repository = |patch: &Patch| match &patch.want {
            Want::Git(source) => {
                locked.source.git().is_some_and(|it| it.canonical == source.canonical)
            }
            _ => false,
        };
        for (at, patch) in self.patches_of(dependency) {
            if same_repository(patch) {
                return match self.states[at] {
                    PatchState::Outdated { .. } => Fit::OutdatedPatch,
                    _ => Fit::Drift(Code::PatchRev),
                };
            }
        }
        Fit::Drift(code)
    }

    /// Compares a dependency with a locked package, patches aside.
    fn compare(&self, dependency: &Dependency, locked: &LockedPackage) -> Option<Code> {
        match (&dependency.want, &locked.source) {
            (Want::Path { dir, .. }, LockedSource::Path) => {
                // The version on disk is what counts; that the lock has another is a finding of its
                // own.
                let known = self.by_dir.get(dir.as_path());
                let on_disk = known.map(|&at| &self.context.workspace.packages[at].version);
                let version = on_disk.unwrap_or(&locked.version);
                (!admits(dependency, version)).then_some(Code::Version)
            }
            (Want::Git(wanted), LockedSource::Git { source, commit }) => {
                if wanted.canonical != source.canonical {
                    return Some(Code::Url);
                }
                let drift =
                    self.compare_git(&wanted.reference, &source.reference, commit.as_deref());
                drift.or_else(|| self.compare_version(dependency, locked))
            }
            (Want::Registry(_) | Want::UnknownRegistry(_), LockedSource::Registry(_)) => {
                if !dependency.want.is_met_by(&locked.source) {
                    return Some(Code::Url);
                }
                self.compare_version(dependency, locked)
            }
            _ => Some(Code::SourceKind),
        }
    }

    fn compare_git(
        &self,
        wanted: &GitReference,
        locked: &GitReference,
        commit: Option<&str>,
    ) -> Option<Code> {
        // Before version 3, the branch `master` and the default branch were one.
        let is_master = |reference: &GitReference| match reference {
            GitReference::DefaultBranch => true,
            GitReference::Branch(name) => name == "master",
            _ => false,
        };
        if self.context.lock.version < 3 && is_master(wanted) && is_master(locked) {
            return None;
        }
        source::compare_references(wanted, locked, commit).map(|drift| match drift {
            ReferenceDrift::Spelling => Code::RevSpelling,
            ReferenceDrift::Revision => Code::Rev,
            ReferenceDrift::Reference => Code::Ref,
        })
    }

    fn compare_version(&self, dependency: &Dependency, locked: &LockedPackage) -> Option<Code> {
        (!admits(dependency, &locked.version)).then_some(Code::Version)
    }

    /// Notes what is to be known of a dependency that is locked as it should be.
    fn accept(&mut self, dependency: &'m Dependency, index: PackageIndex, fit: Fit) {
        self.matching.places.entry(index).or_insert_with(|| dependency.at.clone());
        match fit {
            Fit::Patched(at) => {
                let patch = &self.context.workspace.patches[at];
                self.report_shadowed(dependency, patch, index);
                self.follow(&patch.want, index);
            }
            _ => {
                if fit == Fit::Own {
                    self.report_loose_reference(dependency, index);
                }
                self.follow(&dependency.want, index);
            }
        }
    }

    /// Queues the package on disk that a path leads to.
    fn follow(&mut self, want: &Want, index: PackageIndex) {
        let lock = self.context.lock;
        for index in [Some(index), lock.packages[index].replacement].into_iter().flatten() {
            let name = &lock.packages[index].name;
            if let Some(replace) =
                self.context.workspace.replaces.iter().find(|it| it.name == *name)
                && let Want::Path { dir, .. } = &replace.want
            {
                self.queue.extend(self.by_dir.get(dir.as_path()));
            }
        }
        if let Want::Path { dir, .. } = want {
            self.queue.extend(self.by_dir.get(dir.as_path()));
        }
    }
}

/// Whether a dependency admits a version. Without a requirement it admits any, prereleases too.
fn admits(dependency: &Dependency, version: &Version) -> bool {
    dependency.req.as_ref().is_none_or(|req| req.matches(version))
}
