//! Reads manifests, cargo configuration and the lock of a workspace, following members, globs and
//! paths on disk. It finds and reads; what it all means is `lock`'s. It runs no cargo and no git.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context as _;

use crate::diagnostic::HintExt as _;
use crate::lock::finding::Location;
use crate::lock::manifest::{DependencyKind, Manifest, RawSpec};
use crate::lock::spanned::TextError;
use crate::lock::workspace::{
    Package, Parent, Patch, Replace, Resolver, Role, Want, Workspace, normalize,
};

mod config;
mod find;
mod members;
mod text;

pub(crate) use find::{find_start, find_workspaces_below};
use text::Manifests;
pub(crate) use text::Shown;

/// A workspace with the text of its lock.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// What its manifests say.
    pub(crate) workspace: Workspace,
    /// The folder of its root manifest, absolute.
    pub(crate) root_dir: PathBuf,
    /// The text of `Cargo.lock`; none where there is no such file.
    pub(crate) lock_text: Option<String>,
}

/// Reads the workspace whose root manifest is in `root_dir`.
///
/// An error means that a manifest, a configuration file or the lock cannot be read; a path that
/// leads to no manifest is no error.
pub(crate) fn read_workspace(root_dir: &Path, shown: &Shown) -> anyhow::Result<Loaded> {
    let mut reader = Reader {
        manifests: Manifests::new(shown.clone()),
        root_dir: root_dir.to_owned(),
        registries: Vec::new(),
        inherited: HashSet::new(),
        workspace: Workspace::default(),
        externals: VecDeque::new(),
        seen: HashSet::new(),
    };
    reader.read()?;
    let lock_path = root_dir.join("Cargo.lock");
    let mut workspace = reader.workspace;
    workspace.lock_display = shown.display(&lock_path);
    let lock_text = text::read_if_there(&lock_path, shown)?;
    Ok(Loaded { workspace, root_dir: root_dir.to_owned(), lock_text })
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
    fn read(&mut self) -> anyhow::Result<()> {
        let root_dir = self.root_dir.clone();
        let root = self.manifests.read(&root_dir)?;
        let configs = config::read_configs(&root_dir, self.manifests.shown())?;
        for config in &configs {
            self.registries.extend(config.config.registries.iter().cloned());
        }
        for dir in members::find_members(&mut self.manifests, &root_dir)? {
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

    /// Reads one package and queues what its paths lead to.
    fn add_package(&mut self, dir: &Path, role: Role) -> anyhow::Result<()> {
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
    ) -> anyhow::Result<T> {
        let display = self.manifests.shown().manifest(dir);
        let parent_manifest: Option<(Rc<Manifest>, String, &Path)> = match parent_dir {
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
        work(resolver).map_err(|error| text::place_error(&display, &error))
    }

    fn add_config(&mut self, file: &config::ConfigFile) -> anyhow::Result<()> {
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
            .map_err(|error| text::place_error(&file.display, &error))?;
        self.add_patches(patches)
    }

    fn add_patches_of_root(&mut self, root: &Manifest) -> anyhow::Result<()> {
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
    fn add_patches(&mut self, patches: Vec<Patch>) -> anyhow::Result<()> {
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
    fn read_version(&mut self, dir: &Path) -> anyhow::Result<Option<semver::Version>> {
        if !self.manifests.is_there(dir) {
            return Ok(None);
        }
        let manifest = self.manifests.read(dir)?;
        let Some(package) = &manifest.package else { return Ok(None) };
        let parent_dir = self.manifests.find_root(dir)?;
        self.with_resolver(dir, parent_dir.as_deref(), |resolver| resolver.resolve_version(package))
            .map(Some)
    }

    fn note_what_cargo_ignores(&mut self, dir: &Path) -> anyhow::Result<()> {
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

/// The root folder of the workspace that the manifest in `dir` belongs to: `dir` itself where it is
/// alone.
pub(crate) fn read_root_of(dir: &Path, shown: &Shown) -> anyhow::Result<PathBuf> {
    let mut manifests = Manifests::new(shown.clone());
    let root = manifests.find_root(dir)?.unwrap_or_else(|| dir.to_owned());
    if root != *dir && !members::find_members(&mut manifests, &root)?.iter().any(|it| it == dir) {
        let (own, root) = (shown.manifest(dir), shown.manifest(&root));
        return Err(anyhow::anyhow!("`{own}` is no member of the workspace of `{root}`")).hint(
            format!("add it to `members` or `exclude` in `{root}`, or give it a `[workspace]`"),
        );
    }
    Ok(root)
}

/// The current folder, absolute and normal.
pub(crate) fn current_dir() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("cannot tell the current directory")?;
    Ok(normalize(&here))
}
