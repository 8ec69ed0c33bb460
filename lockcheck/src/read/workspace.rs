//! A workspace as it is on disk: members, what their paths lead to, cargo's configuration, the lock.
//! It finds and reads; what it all means is decided elsewhere. It runs no cargo and no git.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

use super::config::{ConfigFile, read_configs};
use super::manifests::Manifests;
use super::members::find_members;
use super::text::{Shown, read_if_there};
use crate::Error;
use crate::finding::Location;
use crate::parse::manifest::{DependencyKind, Manifest, RawSpec};
use crate::parse::spanned::TextError;
use crate::parse::workspace::{Package, Parent, Patch, Replace, Resolver, Role, Want, Workspace};

/// Reads the workspace whose root manifest is in `root_dir`.
///
/// An error means that a manifest, a configuration file or the lock cannot be read; a path that
/// leads to no manifest is not an error.
pub(super) fn read_workspace(root_dir: &Path, shown: &Shown) -> Result<Workspace, Error> {
    let lock_path = root_dir.join("Cargo.lock");
    let mut reader = Reader {
        manifests: Manifests::new(shown.clone()),
        root_dir: root_dir.to_owned(),
        registries: Vec::new(),
        inherited: HashSet::new(),
        workspace: Workspace {
            root_dir: root_dir.to_owned(),
            manifest: shown.manifest(root_dir),
            lock: shown.display(&lock_path),
            ..Workspace::default()
        },
        externals: VecDeque::new(),
        seen: HashSet::new(),
    };
    reader.read()?;
    reader.workspace.lock_text = read_if_there(&lock_path, shown)?;
    Ok(reader.workspace)
}

struct Reader {
    manifests: Manifests,
    root_dir: PathBuf,
    registries: Vec<(String, String)>,
    /// Keys of `[workspace.dependencies]` that something inherits.
    inherited: HashSet<String>,
    workspace: Workspace,
    /// Folders that paths lead to and that are no members.
    externals: VecDeque<PathBuf>,
    seen: HashSet<PathBuf>,
}

impl Reader {
    fn read(&mut self) -> Result<(), Error> {
        let root_dir = self.root_dir.clone();
        let root = self.manifests.read(&root_dir)?;
        let configs = read_configs(&root_dir, self.manifests.shown())?;
        for config in &configs {
            self.registries.extend(config.config.registries.iter().cloned());
        }
        for dir in find_members(&mut self.manifests, &root_dir)? {
            self.seen.insert(dir.clone());
            self.add_package(&dir, Role::Member)?;
            if dir != root_dir {
                self.note_what_cargo_ignores(&dir)?;
            }
        }
        for config in configs {
            self.add_config(&config)?;
        }
        self.add_patches_of_root(&root)?;
        while let Some(dir) = self.externals.pop_front() {
            if self.seen.insert(dir.clone()) {
                self.add_package(&dir, Role::External)?;
            }
        }
        self.note_unused_dependencies(&root);
        if let Some(section) = &root.workspace {
            self.workspace.settings = section.settings.clone();
        }
        Ok(())
    }

    fn add_package(&mut self, dir: &Path, role: Role) -> Result<(), Error> {
        if role == Role::External && !self.manifests.is_there(dir) {
            let missing = self.manifests.shown().display(dir);
            self.workspace.missing_paths.push(missing);
            return Ok(());
        }
        let manifest = self.manifests.read(dir)?;
        let Some(section) = &manifest.package else { return Ok(()) };
        let parent_dir = match role {
            Role::Member => Some(self.root_dir.clone()),
            Role::External => self.manifests.find_root(dir)?,
        };
        let display = self.manifests.shown().manifest(dir);
        let (version, dependencies) =
            self.with_resolver(dir, parent_dir.as_deref(), |resolver| {
                let version = resolver.resolve_version(section)?;
                let dependencies = manifest
                    .dependencies
                    .iter()
                    .filter(|raw| role == Role::Member || raw.kind != DependencyKind::Dev)
                    .map(|raw| resolver.resolve(raw))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok((version, dependencies))
            })?;
        if parent_dir.as_deref() == Some(&self.root_dir) {
            let inherited =
                manifest.dependencies.iter().filter(|raw| matches!(raw.spec, RawSpec::Inherited));
            self.inherited.extend(inherited.map(|raw| raw.key.clone()));
        }
        for dependency in &dependencies {
            if let Want::Path { dir, .. } = &dependency.want {
                self.externals.push_back(dir.clone());
            }
        }
        self.workspace.packages.push(Package {
            name: section.name.clone(),
            version,
            dir: dir.to_owned(),
            role,
            at: Location { file: display, line: section.line, section: "[package]".to_owned() },
            dependencies,
        });
        Ok(())
    }

    /// Runs `work` with a resolver for the manifest in `dir`, and gives its error a place.
    fn with_resolver<T>(
        &mut self,
        dir: &Path,
        parent_dir: Option<&Path>,
        work: impl FnOnce(Resolver<'_>) -> Result<T, TextError>,
    ) -> Result<T, Error> {
        let display = self.manifests.shown().manifest(dir);
        let parent_manifest: Option<_> = match parent_dir {
            None => None,
            Some(parent) => {
                let manifest = self.manifests.read(parent)?;
                Some((manifest, self.manifests.shown().manifest(parent), parent))
            }
        };
        let parent = parent_manifest.as_ref().and_then(|(manifest, display, dir)| {
            Some(Parent { section: manifest.workspace.as_ref()?, display, dir })
        });
        let resolver = Resolver { display: &display, dir, parent, registries: &self.registries };
        work(resolver).map_err(|error| error.in_file(&display))
    }

    fn add_config(&mut self, file: &ConfigFile) -> Result<(), Error> {
        let location = |line: usize| Location {
            file: file.display.clone(),
            line,
            section: "paths".to_owned(),
        };
        for (path, line) in &file.config.path_overrides {
            self.workspace.path_overrides.push((path.clone(), location(*line)));
        }
        let resolver = Resolver {
            display: &file.display,
            dir: &file.base_dir,
            parent: None,
            registries: &self.registries,
        };
        let patches = file
            .config
            .patches
            .iter()
            .map(|raw| resolver.resolve_patch(raw))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.in_file(&file.display))?;
        self.add_patches(patches)
    }

    fn add_patches_of_root(&mut self, root: &Manifest) -> Result<(), Error> {
        let root_dir = self.root_dir.clone();
        let (patches, replaces) = self.with_resolver(&root_dir, Some(&root_dir), |resolver| {
            let patches = root.patches.iter().map(|raw| resolver.resolve_patch(raw));
            let replaces = root.replaces.iter().map(|raw| resolver.resolve_replace(raw));
            let replaces: Vec<Replace> = replaces.collect::<Result<_, _>>()?;
            Ok((patches.collect::<Result<Vec<Patch>, _>>()?, replaces))
        })?;
        self.add_patches(patches)?;
        for replace in &replaces {
            if let Want::Path { dir, .. } = &replace.want {
                self.externals.push_back(dir.clone());
            }
        }
        self.workspace.replaces = replaces;
        Ok(())
    }

    /// Adds patches; one of a nearer file takes the place of a farther one's and of the manifest's.
    fn add_patches(&mut self, patches: Vec<Patch>) -> Result<(), Error> {
        let known: HashSet<(String, String)> = self
            .workspace
            .patches
            .iter()
            .map(|patch| (patch.source.clone(), patch.name.clone()))
            .collect();
        for mut patch in patches {
            if known.contains(&(patch.source.clone(), patch.name.clone())) {
                continue;
            }
            if let Want::Path { dir, .. } = &patch.want {
                patch.version = self.read_version(dir)?;
                self.externals.push_back(dir.clone());
            }
            self.workspace.patches.push(patch);
        }
        Ok(())
    }

    /// The version of the package in a folder, where there is one.
    fn read_version(&mut self, dir: &Path) -> Result<Option<semver::Version>, Error> {
        if !self.manifests.is_there(dir) {
            return Ok(None);
        }
        let manifest = self.manifests.read(dir)?;
        let Some(package) = &manifest.package else { return Ok(None) };
        let parent_dir = self.manifests.find_root(dir)?;
        self.with_resolver(dir, parent_dir.as_deref(), |resolver| resolver.resolve_version(package))
            .map(Some)
    }

    fn note_what_cargo_ignores(&mut self, dir: &Path) -> Result<(), Error> {
        let manifest = self.manifests.read(dir)?;
        let file = self.manifests.shown().manifest(dir);
        let patches = manifest.patches.iter().map(|patch| &patch.dependency);
        for raw in patches.chain(&manifest.replaces) {
            let section = raw.section.clone();
            self.workspace.ignored_patches.push(Location {
                file: file.clone(),
                line: raw.line,
                section,
            });
        }
        let lock = dir.join("Cargo.lock");
        if lock.is_file() {
            self.workspace.stray_locks.push(self.manifests.shown().display(&lock));
        }
        Ok(())
    }

    fn note_unused_dependencies(&mut self, root: &Manifest) {
        let Some(section) = &root.workspace else { return };
        let file = self.manifests.shown().manifest(&self.root_dir);
        for raw in &section.dependencies {
            if !self.inherited.contains(&raw.key) {
                let section = raw.section.clone();
                let at = Location { file: file.clone(), line: raw.line, section };
                self.workspace.unused_dependencies.push((raw.package_name().to_owned(), at));
            }
        }
    }
}
