//! `Cargo.toml` and the parts of `.cargo/config.toml` that say which code is wanted. It reads text
//! and keeps lines; following paths, globs and inheritance is for others.

use semver::{Version, VersionReq};
use toml::de::DeTable;

use super::family::{self, Settings};
use super::source::{GitReference, GitSource};
use super::spanned::{self, Lines, TextError, Value};

/// What a manifest says about dependencies.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    /// `[package]`, absent in a virtual manifest.
    pub(crate) package: Option<PackageSection>,
    /// `[workspace]`.
    pub(crate) workspace: Option<WorkspaceSection>,
    /// Every dependency of every kind and target.
    pub(crate) dependencies: Vec<RawDependency>,
    /// `[patch.*]`.
    pub(crate) patches: Vec<RawPatch>,
    /// `[replace]`: the key is a package id.
    pub(crate) replaces: Vec<RawDependency>,
}

/// `[package]`.
#[derive(Debug)]
pub(crate) struct PackageSection {
    /// The name.
    pub(crate) name: String,
    /// The version.
    pub(crate) version: RawVersion,
    /// The line of the version, or of the section where it has none.
    pub(crate) line: usize,
    /// `workspace = "…"`: the folder of the root, with its line.
    pub(crate) workspace_pointer: Option<(String, usize)>,
}

/// A package's own version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RawVersion {
    /// Given, or 0.0.0 where left out.
    Own(Version),
    /// `version.workspace = true`.
    Inherited,
}

/// `[workspace]`.
#[derive(Debug, Default)]
pub(crate) struct WorkspaceSection {
    /// `members`, with lines.
    pub(crate) members: Vec<(String, usize)>,
    /// `exclude`, with lines.
    pub(crate) exclude: Vec<(String, usize)>,
    /// `[workspace.package] version`.
    pub(crate) version: Option<Version>,
    /// `[workspace.dependencies]`.
    pub(crate) dependencies: Vec<RawDependency>,
    /// `[workspace.metadata.arc.verify-lock]`.
    pub(crate) settings: Settings,
}

/// When a dependency is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    /// `[dependencies]`.
    Normal,
    /// `[dev-dependencies]`.
    Dev,
    /// `[build-dependencies]`.
    Build,
}

/// A dependency as declared.
#[derive(Debug, Clone)]
pub(crate) struct RawDependency {
    /// The key that declares it.
    pub(crate) key: String,
    /// The line of the key.
    pub(crate) line: usize,
    /// The section, as `[dependencies]`.
    pub(crate) section: String,
    /// When it is built.
    pub(crate) kind: DependencyKind,
    /// `optional = true`.
    pub(crate) optional: bool,
    /// What is asked for.
    pub(crate) spec: RawSpec,
}

impl RawDependency {
    /// The name of the package asked for: `package`, or else the key.
    pub(crate) fn package_name(&self) -> &str {
        match &self.spec {
            RawSpec::Own(Detail { package: Some(package), .. }) => package,
            _ => &self.key,
        }
    }
}

/// What a dependency asks for.
#[derive(Debug, Clone)]
pub(crate) enum RawSpec {
    /// `workspace = true`.
    Inherited,
    /// Said here.
    Own(Detail),
}

/// A dependency that says itself what it asks for.
#[derive(Debug, Clone)]
pub(crate) struct Detail {
    /// `package = "…"`.
    pub(crate) package: Option<String>,
    /// The version requirement; none admits every version.
    pub(crate) req: Option<VersionReq>,
    /// Where from.
    pub(crate) source: RawSource,
}

/// Where a dependency is to come from.
#[derive(Debug, Clone)]
pub(crate) enum RawSource {
    /// The default registry.
    DefaultRegistry,
    /// A registry by the name that the configuration gives it.
    NamedRegistry(String),
    /// A registry by its index.
    RegistryIndex(String),
    /// A git repository.
    Git(GitSource),
    /// A folder, relative to the manifest.
    Path(String),
}

/// One entry of `[patch.KEY]`.
#[derive(Debug, Clone)]
pub(crate) struct RawPatch {
    /// The key: a registry's name or a url.
    pub(crate) source_key: String,
    /// What is to be used instead.
    pub(crate) dependency: RawDependency,
}

/// The parts of `.cargo/config.toml` that matter for the lock.
#[derive(Debug, Default)]
pub(crate) struct CargoConfig {
    /// `[patch.*]`.
    pub(crate) patches: Vec<RawPatch>,
    /// `paths = […]`, with lines.
    pub(crate) path_overrides: Vec<(String, usize)>,
    /// `[registries.NAME] index`.
    pub(crate) registries: Vec<(String, String)>,
    /// `include`: more files, relative to this one.
    pub(crate) includes: Vec<String>,
}

/// Reads a manifest.
pub(crate) fn parse_manifest(text: &str) -> Result<Manifest, TextError> {
    let lines = Lines::new(text);
    let document = spanned::parse_document(text, &lines)?;
    let root = document.get_ref();
    let reader = Reader { lines: &lines };
    let mut manifest = Manifest {
        package: reader.parse_package(root)?,
        workspace: reader.parse_workspace(root)?,
        patches: reader.parse_patches(root)?,
        ..Manifest::default()
    };
    reader.parse_sections(root, "", &mut manifest.dependencies)?;
    if let Some(targets) = spanned::table(root, "target", &lines)? {
        for (target, value) in targets {
            let prefix = format!("target.{}.", quote_key(target.get_ref()));
            let table = spanned::as_table(value, target.get_ref(), &lines)?;
            reader.parse_sections(table, &prefix, &mut manifest.dependencies)?;
        }
    }
    if let Some(table) = spanned::table(root, "replace", &lines)? {
        manifest.replaces =
            reader.parse_dependencies(table, "[replace]", DependencyKind::Normal)?;
    }
    Ok(manifest)
}

/// Reads a cargo configuration file.
pub(crate) fn parse_cargo_config(text: &str) -> Result<CargoConfig, TextError> {
    let lines = Lines::new(text);
    let document = spanned::parse_document(text, &lines)?;
    let root = document.get_ref();
    let reader = Reader { lines: &lines };
    let mut config = CargoConfig {
        patches: reader.parse_patches(root)?,
        path_overrides: spanned::strings(root, "paths", &lines)?,
        ..CargoConfig::default()
    };
    if let Some(registries) = spanned::table(root, "registries", &lines)? {
        for (name, value) in registries {
            let table = spanned::as_table(value, name.get_ref(), &lines)?;
            if let Some(index) = spanned::string(table, "index", &lines)? {
                config.registries.push((name.get_ref().to_string(), index.to_owned()));
            }
        }
    }
    if let Some(value) = root.get("include") {
        config.includes = reader.parse_includes(value)?;
    }
    Ok(config)
}

fn quote_key(key: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !key.is_empty() && key.bytes().all(bare) { key.to_owned() } else { format!("'{key}'") }
}

struct Reader<'l> {
    lines: &'l Lines,
}

impl Reader<'_> {
    fn parse_package(&self, root: &DeTable<'_>) -> Result<Option<PackageSection>, TextError> {
        // `[project]` is the name that the section had in old manifests.
        let Some((key, value)) =
            root.get_key_value("package").or_else(|| root.get_key_value("project"))
        else {
            return Ok(None);
        };
        let table = spanned::as_table(value, key.get_ref(), self.lines)?;
        let name = spanned::string(table, "name", self.lines)?
            .ok_or_else(|| self.lines.error(key.span(), "the package has no `name`"))?;
        let (version, line) = match table.get("version") {
            None => (RawVersion::Own(Version::new(0, 0, 0)), self.lines.line(key.span())),
            Some(value) => {
                let inherited = value.get_ref().as_table().is_some_and(is_inherited);
                let version = if inherited {
                    RawVersion::Inherited
                } else {
                    RawVersion::Own(self.parse_version(value)?)
                };
                (version, self.lines.line(value.span()))
            }
        };
        let workspace_pointer = match table.get("workspace") {
            None => None,
            Some(value) => {
                let folder = spanned::as_str(value, "workspace", self.lines)?;
                Some((folder.to_owned(), self.lines.line(value.span())))
            }
        };
        Ok(Some(PackageSection { name: name.to_owned(), version, line, workspace_pointer }))
    }

    fn parse_version(&self, value: &Value<'_>) -> Result<Version, TextError> {
        let text = spanned::as_str(value, "version", self.lines)?;
        Version::parse(text.trim()).map_err(|error| {
            self.lines.error(value.span(), format!("`{text}` is no version: {error}"))
        })
    }

    fn parse_workspace(&self, root: &DeTable<'_>) -> Result<Option<WorkspaceSection>, TextError> {
        let Some(table) = spanned::table(root, "workspace", self.lines)? else { return Ok(None) };
        let mut section = WorkspaceSection {
            members: spanned::strings(table, "members", self.lines)?,
            exclude: spanned::strings(table, "exclude", self.lines)?,
            ..WorkspaceSection::default()
        };
        if let Some(package) = spanned::table(table, "package", self.lines)?
            && let Some(version) = package.get("version")
        {
            if version.get_ref().as_table().is_some_and(is_inherited) {
                let message = "`workspace.package.version` inherits from itself";
                return Err(self.lines.error(version.span(), message));
            }
            section.version = Some(self.parse_version(version)?);
        }
        if let Some(dependencies) = spanned::table(table, "dependencies", self.lines)? {
            let name = "[workspace.dependencies]";
            section.dependencies =
                self.parse_dependencies(dependencies, name, DependencyKind::Normal)?;
            if let Some(inherited) = section
                .dependencies
                .iter()
                .find(|dependency| matches!(dependency.spec, RawSpec::Inherited))
            {
                return Err(TextError {
                    line: Some(inherited.line),
                    message: format!(
                        "`workspace.dependencies.{}` inherits from itself",
                        inherited.key
                    ),
                });
            }
        }
        let mut metadata = Some(table);
        for key in ["metadata", "arc", "verify-lock"] {
            metadata = match metadata {
                Some(table) => spanned::table(table, key, self.lines)?,
                None => None,
            };
        }
        if let Some(table) = metadata {
            section.settings = family::parse_settings(table, self.lines)?;
        }
        Ok(Some(section))
    }

    fn parse_sections(
        &self,
        table: &DeTable<'_>,
        prefix: &str,
        into: &mut Vec<RawDependency>,
    ) -> Result<(), TextError> {
        // The underscored names are deprecated and still read.
        for (name, kind) in [
            ("dependencies", DependencyKind::Normal),
            ("dev-dependencies", DependencyKind::Dev),
            ("dev_dependencies", DependencyKind::Dev),
            ("build-dependencies", DependencyKind::Build),
            ("build_dependencies", DependencyKind::Build),
        ] {
            if let Some(section) = spanned::table(table, name, self.lines)? {
                into.extend(self.parse_dependencies(
                    section,
                    &format!("[{prefix}{name}]"),
                    kind,
                )?);
            }
        }
        Ok(())
    }

    fn parse_patches(&self, root: &DeTable<'_>) -> Result<Vec<RawPatch>, TextError> {
        let Some(sources) = spanned::table(root, "patch", self.lines)? else {
            return Ok(Vec::new());
        };
        let mut patches = Vec::new();
        for (source, value) in sources {
            let table = spanned::as_table(value, source.get_ref(), self.lines)?;
            let section = format!("[patch.{}]", quote_key(source.get_ref()));
            for dependency in self.parse_dependencies(table, &section, DependencyKind::Normal)? {
                patches.push(RawPatch { source_key: source.get_ref().to_string(), dependency });
            }
        }
        Ok(patches)
    }

    fn parse_dependencies(
        &self,
        table: &DeTable<'_>,
        section: &str,
        kind: DependencyKind,
    ) -> Result<Vec<RawDependency>, TextError> {
        table
            .iter()
            .map(|(key, value)| {
                let name = key.get_ref();
                let (spec, optional) = self.parse_spec(name, value)?;
                Ok(RawDependency {
                    key: name.to_string(),
                    line: self.lines.line(key.span()),
                    section: section.to_owned(),
                    kind,
                    optional,
                    spec,
                })
            })
            .collect()
    }

    fn parse_spec(&self, name: &str, value: &Value<'_>) -> Result<(RawSpec, bool), TextError> {
        if value.get_ref().is_str() {
            let req = Some(self.parse_req(name, value)?);
            let detail = Detail { package: None, req, source: RawSource::DefaultRegistry };
            return Ok((RawSpec::Own(detail), false));
        }
        let table = value.get_ref().as_table().ok_or_else(|| {
            let message = format!("dependency `{name}` must be a string or a table");
            self.lines.error(value.span(), message)
        })?;
        let optional = flag(table, "optional");
        if is_inherited(table) {
            return Ok((RawSpec::Inherited, optional));
        }
        let req = table.get("version").map(|value| self.parse_req(name, value)).transpose()?;
        let text = |key: &str| spanned::string(table, key, self.lines);
        let source = match (text("git")?, text("path")?) {
            (Some(_), Some(_)) => {
                let message = format!("dependency `{name}` gives both `git` and `path`");
                return Err(self.lines.error(value.span(), message));
            }
            (Some(url), None) => {
                RawSource::Git(GitSource::new(url, self.parse_reference(name, value, table)?))
            }
            (None, Some(path)) => RawSource::Path(path.to_owned()),
            (None, None) => match (text("registry")?, text("registry-index")?) {
                (Some(registry), _) => RawSource::NamedRegistry(registry.to_owned()),
                (None, Some(index)) => RawSource::RegistryIndex(index.to_owned()),
                (None, None) if req.is_some() => RawSource::DefaultRegistry,
                (None, None) => {
                    let message =
                        format!("dependency `{name}` gives no version, git, path or workspace");
                    return Err(self.lines.error(value.span(), message));
                }
            },
        };
        let package = text("package")?.map(str::to_owned);
        Ok((RawSpec::Own(Detail { package, req, source }), optional))
    }

    fn parse_reference(
        &self,
        name: &str,
        value: &Value<'_>,
        table: &DeTable<'_>,
    ) -> Result<GitReference, TextError> {
        let text = |key: &str| spanned::string(table, key, self.lines);
        let given: Vec<GitReference> = [
            text("branch")?.map(|name| GitReference::Branch(name.to_owned())),
            text("tag")?.map(|name| GitReference::Tag(name.to_owned())),
            text("rev")?.map(|rev| GitReference::Rev(rev.to_owned())),
        ]
        .into_iter()
        .flatten()
        .collect();
        match <[GitReference; 1]>::try_from(given) {
            Ok([reference]) => Ok(reference),
            Err(given) if given.is_empty() => Ok(GitReference::DefaultBranch),
            Err(_) => {
                let message =
                    format!("dependency `{name}` gives more than one of `branch`, `tag` and `rev`");
                Err(self.lines.error(value.span(), message))
            }
        }
    }

    fn parse_req(&self, name: &str, value: &Value<'_>) -> Result<VersionReq, TextError> {
        let text = spanned::as_str(value, "version", self.lines)?;
        VersionReq::parse(text).map_err(|error| {
            let message = format!("`{text}` of dependency `{name}` is no requirement: {error}");
            self.lines.error(value.span(), message)
        })
    }

    fn parse_includes(&self, value: &Value<'_>) -> Result<Vec<String>, TextError> {
        let items = match value.get_ref().as_array() {
            Some(items) => items.iter().collect(),
            None => vec![value],
        };
        items
            .into_iter()
            .map(|item| match item.get_ref().as_table() {
                Some(table) => Ok(spanned::string(table, "path", self.lines)?.unwrap_or_default()),
                None => spanned::as_str(item, "include", self.lines),
            })
            .map(|path| path.map(str::to_owned))
            .collect()
    }
}

fn flag(table: &DeTable<'_>, key: &str) -> bool {
    table.get(key).and_then(|value| value.get_ref().as_bool()).unwrap_or(false)
}

fn is_inherited(table: &DeTable<'_>) -> bool {
    flag(table, "workspace")
}

#[cfg(test)]
mod tests;
