//! Paths that match a pattern.
//!
//! `glob` matches names, and the folders are listed here: its own walk panics at a name that is not
//! UTF-8.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use glob::{MatchOptions, Pattern};

/// A name that begins with a dot is matched by a dot alone, as in a shell.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// What a pattern stands for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Matches {
    /// In the order of their names.
    pub(crate) paths: Vec<PathBuf>,
    /// What would match and was left out, because its name is not UTF-8.
    pub(crate) skipped: Vec<PathBuf>,
}

/// Finds what matches a pattern, which is relative to `root` unless it is absolute. `**` stands for
/// any number of folders; links are not followed there.
///
/// # Errors
/// When it is not a pattern. A folder that cannot be read holds nothing.
pub(crate) fn find_matches(root: &Path, pattern: &str) -> anyhow::Result<Matches> {
    let parts = pattern
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .map(parse_part)
        .collect::<Result<Vec<Part>, _>>()
        .with_context(|| format!("`{pattern}` is not a pattern"))?;
    let start = if pattern.starts_with('/') { Path::new("/") } else { root };
    let mut matches = Matches::default();
    expand(start, &parts, &mut matches);
    matches.paths.dedup();
    Ok(matches)
}

/// One part of a pattern, between slashes.
enum Part {
    Literal(String),
    Wild(Pattern),
    AnyFolders,
}

fn parse_part(part: &str) -> Result<Part, glob::PatternError> {
    Ok(match part {
        "**" => Part::AnyFolders,
        _ if part.contains(['*', '?', '[']) => Part::Wild(Pattern::new(part)?),
        _ => Part::Literal(part.to_owned()),
    })
}

fn expand(folder: &Path, parts: &[Part], matches: &mut Matches) {
    let Some((part, rest)) = parts.split_first() else {
        matches.paths.push(folder.to_owned());
        return;
    };
    match part {
        Part::Literal(name) => {
            let path = folder.join(name);
            if path.symlink_metadata().is_ok() {
                expand(&path, rest, matches);
            }
        }
        Part::Wild(pattern) => {
            for name in list_names(folder) {
                let path = folder.join(&name);
                if !pattern.matches_with(&name.to_string_lossy(), OPTIONS) {
                    continue;
                }
                if name.to_str().is_none() {
                    matches.skipped.push(path);
                } else if rest.is_empty() || path.is_dir() {
                    expand(&path, rest, matches);
                }
            }
        }
        Part::AnyFolders => {
            expand(folder, rest, matches);
            for name in list_names(folder) {
                let path = folder.join(&name);
                let is_hidden = name.to_string_lossy().starts_with('.');
                if !is_hidden && path.is_dir() && !path.is_symlink() {
                    match name.to_str() {
                        Some(_) => expand(&path, parts, matches),
                        None => matches.skipped.push(path),
                    }
                }
            }
        }
    }
}

fn list_names(folder: &Path) -> Vec<OsString> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for path in ["m/b/w.gguf", "m/a/deep/w.gguf", "m/.hidden/w.gguf", "m/c d/w.gguf", "x"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        folder
    }

    fn found(folder: &Path, pattern: &str) -> Vec<String> {
        let matches = find_matches(folder, pattern).unwrap();
        let relative =
            |path: &PathBuf| path.strip_prefix(folder).unwrap_or(path).to_str().unwrap().to_owned();
        matches.paths.iter().map(relative).collect()
    }

    #[test]
    fn names_are_matched_part_by_part_and_sorted() {
        let folder = folder();
        let root = folder.path();
        assert_eq!(found(root, "m/*"), ["m/a", "m/b", "m/c d"]);
        assert_eq!(found(root, "./m//?"), ["m/a", "m/b"]);
        assert_eq!(found(root, "m/[!a]/*.gguf"), ["m/b/w.gguf"]);
        assert_eq!(found(root, "m/.h*"), ["m/.hidden"]);
        assert_eq!(found(root, "x/*"), [""; 0]);
        assert_eq!(found(root, "m/*/none"), [""; 0]);
        assert_eq!(found(root, "m/../m/b*"), ["m/../m/b"]);
        let absolute = format!("{}/m/b*", Pattern::escape(root.to_str().unwrap()));
        assert_eq!(found(root, &absolute), ["m/b"]);
        let error = find_matches(root, "m/[a").unwrap_err();
        assert_eq!(error.to_string(), "`m/[a` is not a pattern");
    }

    #[test]
    fn two_stars_are_any_number_of_folders() {
        let folder = folder();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("m/loop")).unwrap();
        let all = ["m/a/deep/w.gguf", "m/b/w.gguf", "m/c d/w.gguf"];
        assert_eq!(found(folder.path(), "m/**/*.gguf"), all);
        assert_eq!(found(folder.path(), "**/deep"), ["m/a/deep"]);
    }

    // Other systems take no such names.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_that_is_not_utf8_is_left_out_and_told() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = folder();
        let strange = folder.path().join("m").join(std::ffi::OsStr::from_bytes(b"b\xff"));
        std::fs::create_dir(&strange).unwrap();
        let matches = find_matches(folder.path(), "m/b*").unwrap();
        assert_eq!(matches.paths, [folder.path().join("m/b")]);
        assert_eq!(matches.skipped, [strange]);
        assert!(find_matches(folder.path(), "m/a*").unwrap().skipped.is_empty());
    }
}
