//! `Cargo.toml` and the parts of `.cargo/config.toml` that say which code is wanted. It reads text
//! and keeps lines; following paths, globs and inheritance is for others.

use semver::{Version, VersionReq};

use super::family::{self, Settings};
use super::source::{GitReference, GitSource};
use super::spanned::{Item, Table, TextError, parse_document};

#[derive(Debug, Default)]
pub(crate) struct Manifest {
    /// `[package]`, absent in a virtual manifest.
    pub(crate) package: Option<PackageSection>,
    pub(crate) workspace: Option<WorkspaceSection>,
    /// Every dependency of every kind and target.
    pub(crate) dependencies: Vec<RawDependency>,
    pub(crate) patches: Vec<RawPatch>,
    /// `[replace]`: the key is a package id.
    pub(crate) replaces: Vec<RawDependency>,
}

#[derive(Debug)]
pub(crate) struct PackageSection {
    pub(crate) name: String,
    pub(crate) version: RawVersion,
    /// The line of the version, or of the section where it has none.
    pub(crate) line: usize,
    /// `workspace = "…"`: the folder of the root, with its line.
    pub(crate) workspace_pointer: Option<(String, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RawVersion {
    /// Given, or 0.0.0 where left out.
    Own(Version),
    /// `version.workspace = true`.
    Inherited,
}

#[derive(Debug, Default)]
pub(crate) struct WorkspaceSection {
    pub(crate) members: Vec<(String, usize)>,
    pub(crate) exclude: Vec<(String, usize)>,
    pub(crate) version: Option<Version>,
    pub(crate) dependencies: Vec<RawDependency>,
    pub(crate) settings: Settings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    Normal,
    Dev,
    Build,
}

#[derive(Debug, Clone)]
pub(crate) struct RawDependency {
    pub(crate) key: String,
    pub(crate) line: usize,
    /// The section, as `[dependencies]`.
    pub(crate) section: String,
    pub(crate) kind: DependencyKind,
    pub(crate) optional: bool,
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

#[derive(Debug, Clone)]
pub(crate) enum RawSpec {
    Inherited,
    Own(Detail),
}

/// A dependency that says itself what it asks for.
#[derive(Debug, Clone)]
pub(crate) struct Detail {
    pub(crate) package: Option<String>,
    /// The version requirement; none admits every version.
    pub(crate) req: Option<VersionReq>,
    pub(crate) source: RawSource,
}

/// Where a dependency is to come from.
#[derive(Debug, Clone)]
pub(crate) enum RawSource {
    DefaultRegistry,
    /// A registry by the name that the configuration gives it.
    NamedRegistry(String),
    /// A registry by its index.
    RegistryIndex(String),
    Git(GitSource),
    /// A folder, relative to the manifest.
    Path(String),
}

/// One entry of `[patch.KEY]`.
#[derive(Debug, Clone)]
pub(crate) struct RawPatch {
    /// The key: a registry's name or a url.
    pub(crate) source_key: String,
    pub(crate) dependency: RawDependency,
}

/// The parts of `.cargo/config.toml` that matter for the lock.
#[derive(Debug, Default)]
pub(crate) struct CargoConfig {
    pub(crate) patches: Vec<RawPatch>,
    /// `paths = […]`, with lines.
    pub(crate) path_overrides: Vec<(String, usize)>,
    /// `[registries.NAME] index`.
    pub(crate) registries: Vec<(String, String)>,
    /// `include`: more files, relative to this one.
    pub(crate) includes: Vec<String>,
}

pub(crate) fn parse_manifest(text: &str) -> Result<Manifest, TextError> {
    parse_document(text, |root| {
        let mut manifest = Manifest {
            package: parse_package(&root)?,
            workspace: parse_workspace(&root)?,
            patches: parse_patches(&root)?,
            dependencies: parse_sections(&root, "")?,
            ..Manifest::default()
        };
        if let Some(targets) = root.table("target")? {
            for target in targets.items() {
                let prefix = format!("target.{}.", quote_key(target.key));
                manifest.dependencies.extend(parse_sections(&target.as_table()?, &prefix)?);
            }
        }
        if let Some(table) = root.table("replace")? {
            manifest.replaces = parse_dependencies(&table, "[replace]", DependencyKind::Normal)?;
        }
        Ok(manifest)
    })
}

pub(crate) fn parse_cargo_config(text: &str) -> Result<CargoConfig, TextError> {
    parse_document(text, |root| {
        let mut config = CargoConfig {
            patches: parse_patches(&root)?,
            path_overrides: root.strings("paths")?,
            includes: parse_includes(&root)?,
            ..CargoConfig::default()
        };
        if let Some(registries) = root.table("registries")? {
            for registry in registries.items() {
                if let Some(index) = registry.as_table()?.string("index")? {
                    config.registries.push((registry.key.to_owned(), index.to_owned()));
                }
            }
        }
        Ok(config)
    })
}

fn quote_key(key: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !key.is_empty() && key.bytes().all(bare) { key.to_owned() } else { format!("'{key}'") }
}

fn parse_package(root: &Table<'_>) -> Result<Option<PackageSection>, TextError> {
    // `[project]` is the name that the section had in old manifests.
    let Some(section) = root.get("package").or_else(|| root.get("project")) else {
        return Ok(None);
    };
    let table = section.as_table()?;
    let section_line = section.key_line();
    let name = table
        .string("name")?
        .ok_or_else(|| TextError::at(section_line, "the package has no `name`"))?;
    let (version, line) = match table.get("version") {
        None => (RawVersion::Own(Version::new(0, 0, 0)), section_line),
        Some(item) if is_inherited(&item) => (RawVersion::Inherited, item.line()),
        Some(item) => (RawVersion::Own(parse_version(&item)?), item.line()),
    };
    let workspace_pointer = match table.get("workspace") {
        None => None,
        Some(folder) => Some((folder.as_str()?.to_owned(), folder.line())),
    };
    Ok(Some(PackageSection { name: name.to_owned(), version, line, workspace_pointer }))
}

fn parse_version(item: &Item<'_>) -> Result<Version, TextError> {
    let text = item.as_str()?;
    Version::parse(text.trim())
        .map_err(|error| item.error(format!("`{text}` is not a version: {error}")))
}

fn parse_workspace(root: &Table<'_>) -> Result<Option<WorkspaceSection>, TextError> {
    let Some(table) = root.table("workspace")? else { return Ok(None) };
    let mut section = WorkspaceSection {
        members: table.strings("members")?,
        exclude: table.strings("exclude")?,
        ..WorkspaceSection::default()
    };
    if let Some(version) = table.table("package")?.and_then(|package| package.get("version")) {
        if is_inherited(&version) {
            return Err(version.error("`workspace.package.version` inherits from itself"));
        }
        section.version = Some(parse_version(&version)?);
    }
    if let Some(dependencies) = table.table("dependencies")? {
        let name = "[workspace.dependencies]";
        section.dependencies = parse_dependencies(&dependencies, name, DependencyKind::Normal)?;
        let mut dependencies = section.dependencies.iter();
        if let Some(own) = dependencies.find(|it| matches!(it.spec, RawSpec::Inherited)) {
            let message = format!("`workspace.dependencies.{}` inherits from itself", own.key);
            return Err(TextError::at(own.line, message));
        }
    }
    let mut metadata = Some(table);
    for key in ["metadata", "arc", "verify-lock"] {
        metadata = match metadata {
            Some(table) => table.table(key)?,
            None => None,
        };
    }
    if let Some(table) = metadata {
        section.settings = family::parse_settings(&table)?;
    }
    Ok(Some(section))
}

fn parse_sections(table: &Table<'_>, prefix: &str) -> Result<Vec<RawDependency>, TextError> {
    let mut dependencies = Vec::new();
    // The underscored names are deprecated and still read.
    for (name, kind) in [
        ("dependencies", DependencyKind::Normal),
        ("dev-dependencies", DependencyKind::Dev),
        ("dev_dependencies", DependencyKind::Dev),
        ("build-dependencies", DependencyKind::Build),
        ("build_dependencies", DependencyKind::Build),
    ] {
        if let Some(section) = table.table(name)? {
            dependencies.extend(parse_dependencies(&section, &format!("[{prefix}{name}]"), kind)?);
        }
    }
    Ok(dependencies)
}

fn parse_patches(root: &Table<'_>) -> Result<Vec<RawPatch>, TextError> {
    let Some(sources) = root.table("patch")? else { return Ok(Vec::new()) };
    let mut patches = Vec::new();
    for source in sources.items() {
        let section = format!("[patch.{}]", quote_key(source.key));
        let dependencies =
            parse_dependencies(&source.as_table()?, &section, DependencyKind::Normal)?;
        let patch = |dependency| RawPatch { source_key: source.key.to_owned(), dependency };
        patches.extend(dependencies.into_iter().map(patch));
    }
    Ok(patches)
}

fn parse_dependencies(
    table: &Table<'_>,
    section: &str,
    kind: DependencyKind,
) -> Result<Vec<RawDependency>, TextError> {
    let parse = |item: Item<'_>| {
        let (spec, optional) = parse_spec(&item)?;
        Ok(RawDependency {
            key: item.key.to_owned(),
            line: item.key_line(),
            section: section.to_owned(),
            kind,
            optional,
            spec,
        })
    };
    table.items().map(parse).collect()
}

fn parse_spec(item: &Item<'_>) -> Result<(RawSpec, bool), TextError> {
    let name = item.key;
    if item.value().is_str() {
        let req = Some(parse_req(name, item)?);
        let detail = Detail { package: None, req, source: RawSource::DefaultRegistry };
        return Ok((RawSpec::Own(detail), false));
    }
    if !item.value().is_table() {
        return Err(item.error(format!("dependency `{name}` must be a string or a table")));
    }
    let table = item.as_table()?;
    let optional = table.flag("optional");
    if is_inherited(item) {
        return Ok((RawSpec::Inherited, optional));
    }
    let req = table.get("version").map(|version| parse_req(name, &version)).transpose()?;
    let text = |key: &str| table.string(key);
    let source = match (text("git")?, text("path")?) {
        (Some(_), Some(_)) => {
            return Err(item.error(format!("dependency `{name}` has both `git` and `path`")));
        }
        (Some(url), None) => RawSource::Git(GitSource::new(url, parse_reference(item, &table)?)),
        (None, Some(path)) => RawSource::Path(path.to_owned()),
        (None, None) => match (text("registry")?, text("registry-index")?) {
            (Some(registry), _) => RawSource::NamedRegistry(registry.to_owned()),
            (None, Some(index)) => RawSource::RegistryIndex(index.to_owned()),
            (None, None) if req.is_some() => RawSource::DefaultRegistry,
            (None, None) => {
                let message =
                    format!("dependency `{name}` has no `version`, `git`, `path` or `workspace`");
                return Err(item.error(message));
            }
        },
    };
    let package = text("package")?.map(str::to_owned);
    Ok((RawSpec::Own(Detail { package, req, source }), optional))
}

fn parse_reference(item: &Item<'_>, table: &Table<'_>) -> Result<GitReference, TextError> {
    let text = |key: &str| Ok(table.string(key)?.map(str::to_owned));
    match (text("branch")?, text("tag")?, text("rev")?) {
        (None, None, None) => Ok(GitReference::DefaultBranch),
        (Some(branch), None, None) => Ok(GitReference::Branch(branch)),
        (None, Some(tag), None) => Ok(GitReference::Tag(tag)),
        (None, None, Some(rev)) => Ok(GitReference::Rev(rev)),
        _ => Err(item.error(format!(
            "dependency `{}` has more than one of `branch`, `tag` and `rev`",
            item.key
        ))),
    }
}

fn parse_req(name: &str, item: &Item<'_>) -> Result<VersionReq, TextError> {
    let text = item.as_str()?;
    VersionReq::parse(text).map_err(|error| {
        let message =
            format!("`{text}` of dependency `{name}` is not a version requirement: {error}");
        item.error(message)
    })
}

/// `include` is a path, an array of paths, or an array of tables with a `path`.
fn parse_includes(root: &Table<'_>) -> Result<Vec<String>, TextError> {
    let Some(include) = root.get("include") else { return Ok(Vec::new()) };
    let items = if include.value().is_array() { include.as_array()? } else { vec![include] };
    let path = |item: &Item<'_>| {
        let path = match item.value().is_table() {
            true => item.as_table()?.string("path")?.unwrap_or_default(),
            false => item.as_str()?,
        };
        Ok(path.to_owned())
    };
    items.iter().map(path).collect()
}

fn is_inherited(item: &Item<'_>) -> bool {
    item.as_table().is_ok_and(|table| table.flag("workspace"))
}

#[cfg(test)]
mod tests;
