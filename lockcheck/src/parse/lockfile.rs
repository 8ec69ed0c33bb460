//! `Cargo.lock` as a graph of packages. It reads text of the versions 1 to 4 and says what is broken
//! in it; whether it agrees with any manifest is for others.

use std::collections::HashMap;
use std::ops::Range;

use semver::Version;
use toml::de::{DeTable, DeValue};

use super::source::{LockedSource, RefEncoding, parse_locked_source};
use super::spanned::{self, Lines, TextError};

/// The newest lock version whose meaning is known here.
pub(crate) const NEWEST_VERSION: u32 = 4;

/// The index of a package within [`LockFile::packages`].
pub(crate) type PackageIndex = usize;

/// A lockfile that could be read.
#[derive(Debug)]
pub(crate) struct LockFile {
    /// The version that it states; 1 and 2 state none and count as 2.
    pub(crate) version: u32,
    /// Every `[[package]]`, in the order of the file; of an entry given twice the first.
    pub(crate) packages: Vec<LockedPackage>,
    /// Every `[[patch.unused]]`.
    pub(crate) unused_patches: Vec<UnusedPatch>,
    /// What is broken in it though it could be read: entries given twice.
    pub(crate) problems: Vec<TextError>,
    by_name: HashMap<String, Vec<PackageIndex>>,
}

impl LockFile {
    /// The packages of a name.
    pub(crate) fn named(&self, name: &str) -> &[PackageIndex] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

/// One `[[package]]`.
#[derive(Debug)]
pub(crate) struct LockedPackage {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: Version,
    /// Where it comes from.
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
    /// The `source` as the lock has it, or `path` for a package on disk.
    pub(crate) fn describe_source(&self) -> String {
        match self.source.commit() {
            _ if self.source_text.is_empty() => "path (no source)".to_owned(),
            Some(commit) => format!("{}#{commit}", self.source_text),
            None => self.source_text.clone(),
        }
    }
}

/// One `[[patch.unused]]`.
#[derive(Debug)]
pub(crate) struct UnusedPatch {
    /// The name of the package that the patch offers.
    pub(crate) name: String,
    /// The version that the patch offers.
    pub(crate) version: Version,
    /// Where the patch comes from.
    pub(crate) source: LockedSource,
    /// The line of its `name`.
    pub(crate) line: usize,
}

/// Why nothing could be made of a lockfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockError {
    /// It is of a version whose meaning is not known here.
    UnknownVersion(TextError),
    /// It is no lockfile, or a broken one.
    Broken(TextError),
}

impl LockError {
    /// What is wrong, and where.
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

/// Reads a lockfile. An error means that nothing could be made of it.
pub(crate) fn parse_lock(text: &str) -> Result<LockFile, LockError> {
    if let Some(line) = find_conflict_marker(text) {
        let message = "it holds merge conflict markers".to_owned();
        return Err(LockError::Broken(TextError { line: Some(line), message }));
    }
    let lines = Lines::new(text);
    let document = spanned::parse_document(text, &lines)?;
    let root = document.get_ref();
    let version = parse_version(root, &lines).map_err(LockError::UnknownVersion)?;
    let encoding = if version >= 4 { RefEncoding::Percent } else { RefEncoding::Literal };
    let reader = Reader { lines: &lines, encoding };

    let mut entries = Vec::new();
    // Version 1 has the root package in a table of its own.
    if let Some(table) = spanned::table(root, "root", &lines)? {
        entries.push(reader.parse_package(table, 0..0)?);
    }
    for (table, span) in reader.tables(root, "package")? {
        entries.push(reader.parse_package(table, span)?);
    }
    let mut unused_patches = Vec::new();
    if let Some(patch) = spanned::table(root, "patch", &lines)? {
        for (table, span) in reader.tables(patch, "unused")? {
            let (package, _) = reader.parse_package(table, span)?;
            let LockedPackage { name, version, source, line, .. } = package;
            unused_patches.push(UnusedPatch { name, version, source, line });
        }
    }
    Ok(link(version, entries, unused_patches))
}

/// The 1-based line of the first merge conflict marker.
fn find_conflict_marker(text: &str) -> Option<usize> {
    let is_marker = |line: &str| {
        ["<<<<<<<", "|||||||", ">>>>>>>"].iter().any(|marker| line.starts_with(marker))
            || line.trim_end() == "======="
    };
    text.lines().position(is_marker).map(|at| at + 1)
}

fn parse_version(root: &DeTable<'_>, lines: &Lines) -> Result<u32, TextError> {
    let Some(value) = root.get("version") else { return Ok(2) };
    let unknown = |found: &str| {
        let message = format!(
            "lock version {found} is not known here (1 to {NEWEST_VERSION} are); it is not guessed \
             at"
        );
        lines.error(value.span(), message)
    };
    let DeValue::Integer(integer) = value.get_ref() else {
        return Err(unknown(value.get_ref().type_str()));
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

struct Reader<'l> {
    lines: &'l Lines,
    encoding: RefEncoding,
}

impl Reader<'_> {
    fn tables<'v, 't>(
        &self,
        parent: &'v DeTable<'t>,
        key: &str,
    ) -> Result<Vec<(&'v DeTable<'t>, Range<usize>)>, TextError> {
        let Some(value) = parent.get(key) else { return Ok(Vec::new()) };
        let items = value.get_ref().as_array().ok_or_else(|| {
            self.lines.error(value.span(), format!("`{key}` must be an array of tables"))
        })?;
        items
            .iter()
            .map(|item| Ok((spanned::as_table(item, key, self.lines)?, item.span())))
            .collect()
    }

    fn parse_package(
        &self,
        table: &DeTable<'_>,
        span: Range<usize>,
    ) -> Result<(LockedPackage, Links), TextError> {
        let required = |key: &str| {
            let value = table.get(key).ok_or_else(|| {
                self.lines.error(span.clone(), format!("a package entry has no `{key}`"))
            })?;
            Ok((spanned::as_str(value, key, self.lines)?, value.span()))
        };
        let (name, name_span) = required("name")?;
        let (version_text, version_span) = required("version")?;
        let version = Version::parse(version_text).map_err(|error| {
            let message = format!("`{version_text}` of `{name}` is no version: {error}");
            self.lines.error(version_span, message)
        })?;
        let source_text = spanned::string(table, "source", self.lines)?;
        let source = match source_text {
            None => LockedSource::Path,
            Some(text) => parse_locked_source(text, self.encoding),
        };
        let dependencies = spanned::strings(table, "dependencies", self.lines)?;
        let links = Links {
            dependencies: dependencies.into_iter().map(|(text, _)| text).collect(),
            replace: spanned::string(table, "replace", self.lines)?.map(str::to_owned),
        };
        let package = LockedPackage {
            name: name.to_owned(),
            version,
            source,
            source_text: without_commit(source_text.unwrap_or_default()).to_owned(),
            line: self.lines.line(name_span),
            dependencies: Vec::new(),
            dangling: Vec::new(),
            replacement: None,
        };
        Ok((package, links))
    }
}

fn without_commit(source: &str) -> &str {
    source.split('#').next().unwrap_or(source)
}

/// Resolves the names in `dependencies` and `replace`, and finds entries that are given twice.
fn link(
    version: u32,
    entries: Vec<(LockedPackage, Links)>,
    unused_patches: Vec<UnusedPatch>,
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
            let message = format!("`{} {}` is given twice", package.name, package.version);
            problems.push(TextError { line: Some(package.line), message });
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
