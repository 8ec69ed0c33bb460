//! The command that repairs a lock. It names packages as cargo wants them named; it runs nothing.

use crate::finding::Repair;
use crate::parse::lockfile::{LockFile, PackageIndex};
use crate::parse::source::LockedSource;

/// The repair of an entry: update it. For a git source that moves all crates of the source.
pub(crate) fn update(lock: &LockFile, index: PackageIndex) -> Repair {
    Repair::UpdatePackage(package_spec(lock, index))
}

/// The shortest package id by which cargo knows an entry of the lock.
fn package_spec(lock: &LockFile, index: PackageIndex) -> String {
    let package = &lock.packages[index];
    let same_name = lock.named(&package.name);
    if same_name.len() <= 1 {
        return package.name.clone();
    }
    let with_version = format!("{}@{}", package.name, package.version);
    let same_version =
        same_name.iter().filter(|&&other| lock.packages[other].version == package.version).count();
    match &package.source {
        LockedSource::Registry(_) if same_version > 1 => {
            format!("{}#{with_version}", package.source_text)
        }
        LockedSource::Git { .. } => format!("{}#{with_version}", package.source_text),
        LockedSource::Registry(_) | LockedSource::Path => with_version,
    }
}

/// The repair as a command line, with `--manifest-path` where one was given.
pub(crate) fn render_repair(repair: &Repair, manifest_path: Option<&str>) -> String {
    let command = match repair {
        Repair::UpdatePackage(spec) => format!("cargo update -p {}", quote(spec)),
        Repair::UpdateWorkspace => "cargo update -w".to_owned(),
        Repair::GenerateLock => "cargo generate-lockfile".to_owned(),
        Repair::RestoreLock => {
            "restore Cargo.lock from version control, then cargo update -w".to_owned()
        }
        Repair::ByHand(text) => return text.clone(),
    };
    match manifest_path {
        Some(path) => format!("{command} --manifest-path {}", quote(path)),
        None => command,
    }
}

/// Whether the repair fetches.
pub(crate) fn needs_network(repair: &Repair) -> bool {
    !matches!(repair, Repair::ByHand(_))
}

/// Quotes a word for a shell where it must be.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./@:+,=%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::lockfile::parse_lock;

    fn spec(entries: &[(&str, &str, &str)], index: usize) -> String {
        let text: String = entries
            .iter()
            .map(|(name, version, source)| {
                let source = match *source {
                    "" => String::new(),
                    source => format!("source = \"{source}\"\n"),
                };
                format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n{source}\n")
            })
            .collect();
        package_spec(&parse_lock(&text).unwrap(), index)
    }

    const GIT: &str = "git+https://example.org/c?rev=abcd1234#abcd1234";
    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

    #[test]
    fn a_name_is_enough_where_it_is_unique() {
        assert_eq!(spec(&[("c", "1.0.0", GIT), ("d", "1.0.0", GIT)], 0), "c");
    }

    #[test]
    fn an_ambiguous_git_entry_is_named_by_its_old_id() {
        let entries = [("c", "1.0.0", GIT), ("c", "1.0.0", "git+https://example.org/c#beef")];
        assert_eq!(spec(&entries, 0), "git+https://example.org/c?rev=abcd1234#c@1.0.0");
        assert_eq!(
            render_repair(&Repair::UpdatePackage(spec(&entries, 0)), Some("my dir/Cargo.toml")),
            "cargo update -p 'git+https://example.org/c?rev=abcd1234#c@1.0.0' --manifest-path 'my \
             dir/Cargo.toml'"
        );
    }

    #[test]
    fn an_ambiguous_registry_entry_is_named_by_its_version() {
        assert_eq!(spec(&[("c", "1.0.0", REGISTRY), ("c", "2.0.0", REGISTRY)], 1), "c@2.0.0");
        let same_version = [("c", "1.0.0", REGISTRY), ("c", "1.0.0", GIT)];
        assert_eq!(spec(&same_version, 0), format!("{REGISTRY}#c@1.0.0"));
    }
}
