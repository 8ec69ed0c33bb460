//! A workspace as the check sees it: packages with resolved dependencies, patches, settings. It
//! resolves what manifests leave open (inheritance, registry names, relative paths) from values; it
//! reads no file.

use std::path::{Component, Path, PathBuf};

use semver::{Version, VersionReq};

use super::family::{Family, Settings};
use super::manifest::{
    Detail, PackageSection, RawDependency, RawPatch, RawSource, RawSpec, RawVersion,
    WorkspaceSection,
};
use super::source::{self, GitSource, LockedSource};
use super::spanned::TextError;
use crate::Error;
use crate::finding::Location;

/// Everything that is known of a workspace before its lock is looked at: what
/// [`Root::read_workspace`](crate::read::Root::read_workspace) returns.
#[derive(Debug, Default)]
pub struct Workspace {
    pub(crate) root_dir: PathBuf,
    /// Its root manifest, as it is shown.
    pub(crate) manifest: String,
    /// Its lock, as it is shown.
    pub(crate) lock: String,
    /// The text of its lock; none where there is no such file.
    pub(crate) lock_text: Option<String>,
    /// Its members, and the packages on disk that they reach.
    pub(crate) packages: Vec<Package>,
    /// The patches that apply, those of the cargo configuration included.
    pub(crate) patches: Vec<Patch>,
    pub(crate) replaces: Vec<Replace>,
    /// Entries of `[workspace.dependencies]` that no member inherits: the key and its place.
    pub(crate) unused_dependencies: Vec<(String, Location)>,
    /// `[patch]` and `[replace]` of members, which cargo ignores.
    pub(crate) ignored_patches: Vec<Location>,
    /// `paths` overrides: the folder and its place.
    pub(crate) path_overrides: Vec<(String, Location)>,
    /// Locks beside members' manifests, as they are shown.
    pub(crate) stray_locks: Vec<String>,
    /// Paths that dependencies and patches name and that hold no manifest, as they are shown.
    pub(crate) missing_paths: Vec<String>,
    pub(crate) settings: Settings,
}

impl Workspace {
    /// Folders that path dependencies name and that hold no manifest, as they are shown. Their
    /// dependencies cannot be checked.
    pub fn missing_paths(&self) -> &[String] {
        &self.missing_paths
    }

    /// A family by its name.
    ///
    /// # Errors
    ///
    /// When it is neither built in nor defined in the root manifest.
    pub fn family(&self, name: &str) -> Result<Family, Error> {
        let families = self.settings.all_families();
        let known = families.iter().map(|family| family.name.clone()).collect();
        let family = families.into_iter().find(|family| family.name == name);
        family.ok_or_else(|| Error::UnknownFamily { name: name.to_owned(), known })
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.role == Role::Member)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A member: all its dependencies are locked.
    Member,
    /// A package on disk that a path leads to: its dev-dependencies are not locked, its optional
    /// dependencies only where something asks for them.
    External,
}

#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: Version,
    /// Its folder, absolute and normal.
    pub(crate) dir: PathBuf,
    pub(crate) role: Role,
    pub(crate) at: Location,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) optional: bool,
    pub(crate) want: Want,
    /// The requirement; none admits every version.
    pub(crate) req: Option<VersionReq>,
    /// The line that says so: for an inherited one that of `[workspace.dependencies]`.
    pub(crate) at: Location,
}

/// Where something is to come from.
#[derive(Debug, Clone)]
pub(crate) enum Want {
    /// A registry, by its canonical index.
    Registry(String),
    /// A registry whose index the configuration does not give.
    UnknownRegistry(String),
    Git(GitSource),
    Path {
        /// The folder, absolute and normal.
        dir: PathBuf,
        /// The path as the manifest has it.
        written: String,
    },
}

impl Want {
    /// What is wanted, without a version, as the report shows it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Registry(index) if index.starts_with("sparse+") => index.clone(),
            Self::Registry(index) => format!("registry+{index}"),
            Self::UnknownRegistry(name) => format!("registry `{name}`"),
            Self::Git(source) => source.to_string(),
            Self::Path { written, .. } => format!("path `{written}`"),
        }
    }

    /// Whether a locked source is what is wanted, whatever its version.
    pub(crate) fn is_met_by(&self, locked: &LockedSource) -> bool {
        match (self, locked) {
            (Self::Path { .. }, LockedSource::Path) => true,
            (Self::Registry(wanted), LockedSource::Registry(index)) => wanted == index,
            (Self::UnknownRegistry(_), LockedSource::Registry(index)) => {
                *index != source::crates_io()
            }
            (Self::Git(wanted), LockedSource::Git { source, .. }) => wanted.is_same(source),
            _ => false,
        }
    }

    /// The url that patches and families know it by.
    pub(crate) fn canonical(&self) -> Option<&str> {
        match self {
            Self::Registry(index) => Some(index),
            Self::Git(source) => Some(&source.canonical),
            Self::UnknownRegistry(_) | Self::Path { .. } => None,
        }
    }
}

/// A patch: what is to be used in place of one package of one source.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    /// The canonical url of the source that is patched.
    pub(crate) source: String,
    pub(crate) name: String,
    pub(crate) want: Want,
    /// The version of a patch on disk whose manifest is there.
    pub(crate) version: Option<Version>,
    pub(crate) at: Location,
}

#[derive(Debug, Clone)]
pub(crate) struct Replace {
    /// The url of the source, where the package id gives one.
    pub(crate) source: Option<String>,
    pub(crate) name: String,
    pub(crate) version: Option<Version>,
    pub(crate) want: Want,
    pub(crate) at: Location,
}

/// What the dependencies of one manifest are resolved against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolver<'w> {
    /// The manifest, as it is shown.
    pub(crate) display: &'w str,
    pub(crate) dir: &'w Path,
    /// The workspace that it inherits from.
    pub(crate) parent: Option<Parent<'w>>,
    /// `[registries.NAME] index`, by name.
    pub(crate) registries: &'w [(String, String)],
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Parent<'w> {
    pub(crate) section: &'w WorkspaceSection,
    pub(crate) display: &'w str,
    pub(crate) dir: &'w Path,
}

impl Resolver<'_> {
    pub(crate) fn resolve_version(&self, package: &PackageSection) -> Result<Version, TextError> {
        match &package.version {
            RawVersion::Own(version) => Ok(version.clone()),
            RawVersion::Inherited => {
                let version = self.parent.and_then(|parent| parent.section.version.clone());
                version.ok_or_else(|| {
                    let message =
                        "the version is inherited, but there is no `workspace.package.version`";
                    TextError::at(package.line, message)
                })
            }
        }
    }

    /// Resolves a dependency, from the workspace where it is inherited.
    pub(crate) fn resolve(&self, raw: &RawDependency) -> Result<Dependency, TextError> {
        match &raw.spec {
            RawSpec::Own(detail) => Ok(self.build(raw, raw, detail, self.dir, self.display)),
            RawSpec::Inherited => {
                let missing = || {
                    let key = &raw.key;
                    let message = format!(
                        "`{key}` is inherited, but `workspace.dependencies` does not have it"
                    );
                    TextError::at(raw.line, message)
                };
                let parent = self.parent.ok_or_else(missing)?;
                let shared = parent.section.dependencies.iter().find(|it| it.key == raw.key);
                let shared = shared.ok_or_else(missing)?;
                let RawSpec::Own(detail) = &shared.spec else { return Err(missing()) };
                Ok(self.build(raw, shared, detail, parent.dir, parent.display))
            }
        }
    }

    pub(crate) fn resolve_patch(&self, raw: &RawPatch) -> Result<Patch, TextError> {
        let dependency = self.resolve(&raw.dependency)?;
        let key = raw.source_key.as_str();
        let source = if key == "crates-io" {
            source::crates_io()
        } else if key.contains("://") {
            source::canonical_registry(key)
        } else {
            self.registry_index(key)
                .map_or_else(|| format!("registry `{key}`"), source::canonical_registry)
        };
        let Dependency { name, want, at, .. } = dependency;
        Ok(Patch { source, name, want, version: None, at })
    }

    pub(crate) fn resolve_replace(&self, raw: &RawDependency) -> Result<Replace, TextError> {
        let dependency = self.resolve(raw)?;
        let (source, name, version) = parse_package_id(&raw.key).ok_or_else(|| {
            TextError::at(raw.line, format!("`{}` in `replace` is not a package id", raw.key))
        })?;
        Ok(Replace { source, name, version, want: dependency.want, at: dependency.at })
    }

    fn registry_index(&self, name: &str) -> Option<&str> {
        self.registries.iter().find(|(known, _)| known == name).map(|(_, index)| index.as_str())
    }

    fn build(
        &self,
        asked: &RawDependency,
        said: &RawDependency,
        detail: &Detail,
        dir: &Path,
        display: &str,
    ) -> Dependency {
        let want = match &detail.source {
            RawSource::DefaultRegistry => Want::Registry(source::crates_io()),
            RawSource::NamedRegistry(name) => match self.registry_index(name) {
                Some(index) => Want::Registry(source::canonical_registry(index)),
                None => Want::UnknownRegistry(name.clone()),
            },
            RawSource::RegistryIndex(index) => Want::Registry(source::canonical_registry(index)),
            RawSource::Git(source) => Want::Git(source.clone()),
            RawSource::Path(path) => {
                Want::Path { dir: normalize(&dir.join(path)), written: path.clone() }
            }
        };
        Dependency {
            key: asked.key.clone(),
            name: said.package_name().to_owned(),
            optional: asked.optional,
            want,
            req: detail.req.clone(),
            at: Location {
                file: display.to_owned(),
                line: said.line,
                section: said.section.clone(),
            },
        }
    }
}

/// Reads a package id as `[replace]` has it: `name:1.0.0`, `name@1.0.0`, `url#name:1.0.0`,
/// `url#1.0.0`.
fn parse_package_id(text: &str) -> Option<(Option<String>, String, Option<Version>)> {
    let (url, rest) = match text.split_once('#') {
        Some((url, rest)) => (Some(url), rest),
        None if text.contains("://") => (Some(text), ""),
        None => (None, text),
    };
    let (name, version) = match rest.split_once([':', '@']) {
        Some((name, version)) => (Some(name), Some(version)),
        None if rest.starts_with(|first: char| first.is_ascii_digit()) => (None, Some(rest)),
        None => (Some(rest).filter(|name| !name.is_empty()), None),
    };
    let version = version.map(Version::parse).transpose().ok()?;
    let last_segment = |url: &str| {
        let segment = source::canonical_url(url).rsplit('/').next()?.to_owned();
        (!segment.is_empty()).then_some(segment)
    };
    let name = match name {
        Some(name) => name.to_owned(),
        None => last_segment(url?)?,
    };
    Some((url.map(source::canonical_url), name, version))
}

/// Whether `exclude` keeps a folder out. What `members` names is never kept out.
pub(crate) fn is_excluded(section: &WorkspaceSection, root_dir: &Path, dir: &Path) -> bool {
    let under = |(path, _): &(String, usize)| dir.starts_with(normalize(&root_dir.join(path)));
    section.exclude.iter().any(under) && !section.members.iter().any(under)
}

/// Removes `.` and `..` from a path without asking the file system, as cargo does.
pub(crate) fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                // The root has no parent; anything else was pushed before.
                if normal.file_name().is_some() {
                    normal.pop();
                }
            }
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::manifest::parse_manifest;

    #[test]
    fn package_ids_of_replace_have_four_forms() {
        let parse = |text| parse_package_id(text).unwrap();
        let version = Some(Version::new(1, 0, 0));
        assert_eq!(parse("foo:1.0.0"), (None, "foo".to_owned(), version.clone()));
        assert_eq!(parse("foo@1.0.0"), (None, "foo".to_owned(), version.clone()));
        let url = Some("https://example.org/r/foo".to_owned());
        assert_eq!(
            parse("https://example.org/r/foo.git#bar:1.0.0"),
            (url.clone(), "bar".to_owned(), version.clone())
        );
        assert_eq!(parse("https://example.org/r/foo#1.0.0"), (url, "foo".to_owned(), version));
        assert_eq!(parse_package_id("foo:one"), None);
        assert_eq!(parse_package_id(""), None);
    }

    #[test]
    fn paths_are_normalized_without_the_file_system() {
        assert_eq!(normalize(Path::new("/a/./b/../../c")), Path::new("/c"));
        assert_eq!(normalize(Path::new("/../../x")), Path::new("/x"));
    }

    #[test]
    fn an_inherited_dependency_points_at_the_workspace_and_may_be_optional_here() {
        let root = parse_manifest(
            "[workspace.dependencies]\nx = { package = \"y\", path = \"libs/y\", version = \"1\" }\n",
        )
        .unwrap();
        let member = parse_manifest(
            "[dev-dependencies]\nx = { workspace = true, optional = true }\nz.workspace = true\n",
        )
        .unwrap();
        let section = root.workspace.unwrap();
        let resolver = Resolver {
            display: "m/Cargo.toml",
            dir: Path::new("/w/m"),
            parent: Some(Parent { section: &section, display: "Cargo.toml", dir: Path::new("/w") }),
            registries: &[],
        };
        let x = resolver.resolve(&member.dependencies[0]).unwrap();
        assert_eq!((x.name.as_str(), x.optional), ("y", true));
        assert_eq!((x.at.file.as_str(), x.at.line), ("Cargo.toml", 2));
        assert!(matches!(x.want, Want::Path { dir, .. } if dir == Path::new("/w/libs/y")));
        let error = resolver.resolve(&member.dependencies[1]).unwrap_err();
        assert_eq!(error.line, Some(3));
        assert!(error.message.contains("`z` is inherited"), "{}", error.message);
    }
}
