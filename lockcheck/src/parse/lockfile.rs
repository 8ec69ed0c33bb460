//! `Cargo.lock` as a graph of packages. It reads text of the versions 1 to 4 and says what is broken
//! in it; whether it agrees with any manifest is for others.

use std::collections::HashMap;

use semver::Version;
use toml::de::DeValue;

use super::source::{LockedSource, RefEncoding, parse_locked_source};
use super::spanned::{Table, TextError, parse_document};

/// The newest lock version whose meaning is known here.
pub(crate) const NEWEST_VERSION: u32 = 4;

/// The index of a package within [`LockFile::packages`].
pub(crate) type PackageIndex = usize;

#[derive(Debug)]
pub(crate) struct LockFile {
    /// The version that it states; 1 and 2 state none and count as 2.
    pub(crate) version: u32,
    /// Every `[[package]]`, in the order of the file; of an entry given twice the first.
    pub(crate) packages: Vec<LockedPackage>,
    /// Every `[[patch.unused]]`: what the patch offers.
    pub(crate) unused_patches: Vec<LockedPackage>,
    /// What is broken in it though it could be read: entries given twice.
    pub(crate) problems: Vec<TextError>,
    by_name: HashMap<String, Vec<PackageIndex>>,
}

impl LockFile {
    pub(crate) fn named(&self, name: &str) -> &[PackageIndex] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

#[derive(Debug)]
pub(crate) struct LockedPackage {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) source: LockedSource,
    /// The `source` string up to `#`, as written; empty for a package on disk.
    pub(crate) source_text: String,
    /// The line of its `name`.
    pub(crate) line: usize,
    /// The packages that its `dependencies` name, in their order.
    pub(crate) dependencies: Vec<PackageIndex>,
    /// Entries of `dependencies` that name no package of the lock.
    pub(crate) dangling: Vec<String>,
    /// The package that `[replace]` put in its place.
    pub(crate) replacement: Option<PackageIndex>,
}

impl LockedPackage {
    /// Name, version and source.
    pub(crate) fn describe(&self) -> String {
        format!("{} {} ({})", self.name, self.version, self.describe_source())
    }

    /// The `source` as the lock has it, or `path` for a package on disk.
    pub(crate) fn describe_source(&self) -> String {
        match self.source.commit() {
            _ if self.source_text.is_empty() => "path (no source)".to_owned(),
            Some(commit) => format!("{}#{commit}", self.source_text),
            None => self.source_text.clone(),
        }
    }
}

/// Why a lockfile cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Its version is newer than what is known here.
    UnknownVersion(TextError),
    /// It is not a lockfile, or a broken one.
    Broken(TextError),
}

impl LockError {
    pub(crate) fn text(&self) -> &TextError {
        match self {
            Self::UnknownVersion(text) | Self::Broken(text) => text,
        }
    }
}

impl From<TextError> for LockError {
    fn from(text: TextError) -> Self {
        Self::Broken(text)
    }
}

/// Reads a lockfile as a whole; what is wrong with single entries goes to [`LockFile::problems`].
pub(crate) fn parse_lock(text: &str) -> Result<LockFile, LockError> {
    if let Some(line) = find_conflict_marker(text) {
        let message = "it contains merge conflict markers".to_owned();
        return Err(LockError::Broken(TextError::at(line, message)));
    }
    parse_document(text, |root| {
        let version = parse_version(&root).map_err(LockError::UnknownVersion)?;
        let encoding = if version >= 4 { RefEncoding::Percent } else { RefEncoding::Literal };
        let parse = |table: &Table<'_>| parse_package(table, encoding);
        // Version 1 has the root package in a table of its own.
        let old_root = root.table("root")?;
        let tables = root.tables("package")?;
        let entries = old_root.iter().chain(&tables).map(parse).collect::<Result<_, _>>()?;
        let unused = match root.table("patch")? {
            Some(patch) => patch.tables("unused")?,
            None => Vec::new(),
        };
        let unused = unused.iter().map(|table| Ok(parse(table)?.0));
        Ok(link(version, entries, unused.collect::<Result<_, TextError>>()?))
    })
}

fn find_conflict_marker(text: &str) -> Option<usize> {
    let is_marker = |line: &str| {
        ["<<<<<<<", "|||||||", ">>>>>>>"].iter().any(|marker| line.starts_with(marker))
            || line.trim_end() == "======="
    };
    text.lines().position(is_marker).map(|at| at + 1)
}

fn parse_version(root: &Table<'_>) -> Result<u32, TextError> {
    let Some(item) = root.get("version") else { return Ok(2) };
    let unknown = |found: &str| {
        item.error(format!("lock version {found} is unknown; known are 1 to {NEWEST_VERSION}"))
    };
    let DeValue::Integer(integer) = item.value() else {
        return Err(unknown(item.value().type_str()));
    };
    match u32::from_str_radix(integer.as_str(), integer.radix()) {
        Ok(version @ 1..=NEWEST_VERSION) => Ok(version),
        _ => Err(unknown(integer.as_str())),
    }
}

/// What an entry names before the names are resolved.
#[derive(Debug, Default)]
struct Links {
    dependencies: Vec<String>,
    replace: Option<String>,
}

fn parse_package(
    table: &Table<'_>,
    encoding: RefEncoding,
) -> Result<(LockedPackage, Links), TextError> {
    let required = |key: &str| {
        table.get(key).ok_or_else(|| table.error(format!("a package entry has no `{key}`")))
    };
    let name = required("name")?;
    let version_item = required("version")?;
    let version_text = version_item.as_str()?;
    let version = Version::parse(version_text).map_err(|error| {
        let name = name.as_str().unwrap_or_default();
        version_item.error(format!("`{version_text}` of `{name}` is not a version: {error}"))
    })?;
    let source_text = table.string("source")?;
    let links = Links {
        dependencies: table.strings("dependencies")?.into_iter().map(|(text, _)| text).collect(),
        replace: table.string("replace")?.map(str::to_owned),
    };
    let package = LockedPackage {
        name: name.as_str()?.to_owned(),
        version,
        source: source_text.map_or(LockedSource::Path, |text| parse_locked_source(text, encoding)),
        source_text: without_commit(source_text.unwrap_or_default()).to_owned(),
        line: name.line(),
        dependencies: Vec::new(),
        dangling: Vec::new(),
        replacement: None,
    };
    Ok((package, links))
}

fn without_commit(source: &str) -> &str {
    source.split('#').next().unwrap_or(source)
}

/// Resolves the names in `dependencies` and `replace`, and finds entries that are given twice.
fn link(
    version: u32,
    entries: Vec<(LockedPackage, Links)>,
    unused_patches: Vec<LockedPackage>,
) -> LockFile {
    let mut packages: Vec<LockedPackage> = Vec::with_capacity(entries.len());
    let mut links = Vec::with_capacity(entries.len());
    let mut by_name: HashMap<String, Vec<PackageIndex>> = HashMap::new();
    let mut problems = Vec::new();
    for (package, package_links) in entries {
        let same_name = by_name.entry(package.name.clone()).or_default();
        let twice = same_name.iter().any(|&other| {
            let other = &packages[other];
            other.version == package.version && other.source_text == package.source_text
        });
        if twice {
            let message = format!("`{} {}` is listed twice", package.name, package.version);
            problems.push(TextError::at(package.line, message));
            continue;
        }
        same_name.push(packages.len());
        packages.push(package);
        links.push(package_links);
    }
    for (index, links) in links.into_iter().enumerate() {
        let mut dependencies = Vec::with_capacity(links.dependencies.len());
        let mut dangling = Vec::new();
        for text in links.dependencies {
            match resolve(&text, &packages, &by_name) {
                Some(target) => dependencies.push(target),
                None => dangling.push(text),
            }
        }
        let replacement = links.replace.and_then(|text| resolve(&text, &packages, &by_name));
        packages[index].dependencies = dependencies;
        packages[index].dangling = dangling;
        packages[index].replacement = replacement;
    }
    LockFile { version, packages, unused_patches, problems, by_name }
}

/// Resolves `name`, `name version` or `name version (source)`; what is left out is unique.
fn resolve(
    text: &str,
    packages: &[LockedPackage],
    by_name: &HashMap<String, Vec<PackageIndex>>,
) -> Option<PackageIndex> {
    let mut parts = text.splitn(3, ' ');
    let candidates = by_name.get(parts.next()?)?;
    let version = parts.next();
    let source = parts.next().map(|source| {
        let source = source.strip_prefix('(').unwrap_or(source);
        without_commit(source.strip_suffix(')').unwrap_or(source))
    });
    candidates.iter().copied().find(|&index| {
        let package = &packages[index];
        version.is_none_or(|version| package.version.to_string() == version)
            && source.is_none_or(|source| package.source_text == source)
    })
}

#[cfg(test)]
mod tests;
