//! Why a workspace could not be checked, and the way out where there is one. What the check *finds* is
//! no error: see [`Finding`](crate::Finding).

use std::error::Error as _;
use std::io;

use crate::parse::spanned::TextError;

/// Why a workspace could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process has no current directory.
    #[error("cannot tell the current directory")]
    CurrentDir(#[source] io::Error),
    /// No folder at or above the current one has a manifest.
    #[error("no `Cargo.toml` in `{dir}` or above")]
    NoManifest {
        /// The current folder.
        dir: String,
    },
    /// The path given for a manifest leads to a folder.
    #[error("`{path}` is a directory, not a manifest")]
    ManifestIsDirectory {
        /// The path as given.
        path: String,
        /// The manifest that is probably meant.
        meant: String,
    },
    /// The path given for a manifest has another name.
    #[error("`{path}` is not named Cargo.toml")]
    NotAManifest {
        /// The path as given.
        path: String,
    },
    /// A file cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// A folder cannot be listed.
    #[error("cannot list `{path}`")]
    List {
        /// The folder.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// There is a folder where a file should be.
    #[error("`{path}` is a directory, not a file")]
    IsDirectory {
        /// The folder.
        path: String,
    },
    /// A file is too large to be a manifest or a lock.
    #[error("`{path}` has {bytes} bytes; the limit is {limit_bytes}")]
    TooLarge {
        /// The file.
        path: String,
        /// Its size.
        bytes: u64,
        /// The largest size that is read.
        limit_bytes: u64,
    },
    /// A text is not what it should be.
    #[error("{path}{}: {message}", .line.map_or_else(String::new, |line| format!(":{line}")))]
    Text {
        /// The file.
        path: String,
        /// The 1-based line, where one can be told.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// Configuration files include one another without end.
    #[error("`{path}` is included more than {limit} files deep")]
    IncludeDepth {
        /// The file that is not read any more.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// `package.workspace` leads to no workspace.
    #[error(
        "{path}:{line}: `package.workspace` points at `{root}`, which is not the root of a workspace"
    )]
    NotARoot {
        /// The manifest.
        path: String,
        /// Its 1-based line.
        line: usize,
        /// The manifest that it points at.
        root: String,
    },
    /// A manifest is in the folder of a workspace, but not part of it.
    #[error("`{path}` is not a member of the workspace `{root}`")]
    NotAMember {
        /// The manifest.
        path: String,
        /// The root manifest.
        root: String,
    },
    /// An entry of `members` is not a glob pattern.
    #[error("{place} is not a valid pattern")]
    MemberPattern {
        /// Manifest, line and entry.
        place: String,
        /// What is wrong with it.
        source: glob::PatternError,
    },
    /// The folders of an entry of `members` cannot be listed.
    #[error("cannot list what {place} matches")]
    MemberList {
        /// Manifest, line and entry.
        place: String,
        /// What the system says.
        source: glob::GlobError,
    },
    /// An entry of `members` matches a broken symbolic link.
    #[error("{place} reaches `{path}`, a symbolic link that leads nowhere or in a circle")]
    MemberLinkBroken {
        /// Manifest, line and entry.
        place: String,
        /// The link.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// An entry of `members` matches a symbolic link that leads back up.
    #[error("{place} reaches `{path}`, a symbolic link back to a folder that it lies in")]
    MemberLinkUp {
        /// Manifest, line and entry.
        place: String,
        /// The link.
        path: String,
    },
    /// An entry of `members` leads to no manifest.
    #[error("{place} leads to `{path}`, which does not exist")]
    MemberMissing {
        /// Manifest, line and entry.
        place: String,
        /// The manifest that is missing.
        path: String,
    },
    /// The workspace has no such family.
    #[error("no family is named `{name}`; known are {}", .known.join(", "))]
    UnknownFamily {
        /// The name asked for.
        name: String,
        /// The families of the workspace.
        known: Vec<String>,
    },
    /// git could not be run, or its answer could not be read.
    #[error("cannot run `{command}`")]
    Git {
        /// The command line.
        command: String,
        /// What the system says.
        source: io::Error,
    },
    /// git does not answer.
    #[error("`{command}` did not answer within {limit_s} s")]
    GitTimeout {
        /// The command line.
        command: String,
        /// How long it was waited for.
        limit_s: u64,
    },
    /// A folder is in no git repository.
    #[error("`{dir}` is not a git repository")]
    NotARepository {
        /// The folder.
        dir: String,
    },
    /// A repository does not have a revision.
    #[error("`{dir}` has no revision `{rev}`")]
    NoRevision {
        /// The repository.
        dir: String,
        /// The revision.
        rev: String,
    },
    /// A revision of a repository does not have a file.
    #[error("revision `{rev}` has no `{file}` in `{dir}`")]
    NoFileAtRevision {
        /// The folder that the file was looked for in.
        dir: String,
        /// The revision.
        rev: String,
        /// The file.
        file: String,
    },
    /// The lock has nothing of a family.
    #[error("the lock has no package of family `{family}`")]
    NoFamilyPackage {
        /// The family.
        family: String,
    },
    /// The older lock does not have the package that stands for the family.
    #[error("Cargo.lock of `{rev}` has no `{package}`")]
    NoOldPackage {
        /// The revision of the older lock.
        rev: String,
        /// The package.
        package: String,
    },
    /// The family is not locked at a commit.
    #[error("the lock has no commit of family `{family}` to compare with")]
    NoFamilyCommit {
        /// The family.
        family: String,
    },
}

impl Error {
    /// A text of `path` that is not what it should be.
    pub(crate) fn in_text(path: &str, error: TextError) -> Self {
        let TextError { line, message } = error;
        Self::Text { path: path.to_owned(), line, message }
    }

    /// What helps, in a sentence.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoManifest { .. } => "run it in a workspace, or give --manifest-path",
            Self::ManifestIsDirectory { meant, .. } => {
                return Some(format!("give --manifest-path {meant}"));
            }
            Self::NotAManifest { .. } => {
                "give the path of a Cargo.toml; its lock is found beside the workspace root"
            }
            Self::TooLarge { .. } => "no manifest and no lock is that large: look at what wrote it",
            Self::NotARoot { .. } => "point it at the folder whose manifest has `[workspace]`",
            Self::NotAMember { root, .. } => {
                return Some(format!(
                    "add it to `members` or `exclude` in `{root}`, or give it a `[workspace]`"
                ));
            }
            Self::MemberLinkBroken { .. } | Self::MemberLinkUp { .. } => {
                "remove the link, or leave it out with `exclude`"
            }
            Self::MemberMissing { .. } => {
                "add the manifest, or leave the folder out with `exclude`"
            }
            Self::UnknownFamily { .. } => {
                "define it in [workspace.metadata.arc.verify-lock.families] of the root manifest"
            }
            Self::Git { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "is git installed?"
            }
            Self::NotARepository { .. } => "give the folder of a clone",
            Self::NoOldPackage { .. } => "give the old commit with --old REV",
            Self::NoFamilyCommit { .. } => {
                "the family does not come from git; give the new commit with --new REV"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }

    /// The error as the command line shows it: its causes a line each, then the hint.
    pub fn render(&self) -> String {
        let mut text = format!("error: {self}");
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(&format!("\n  caused by: {error}"));
            cause = error.source();
        }
        if let Some(hint) = self.hint() {
            text.push_str(&format!("\nhint: {hint}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_in_order_and_the_hint_last() {
        let error = Error::Git {
            command: "git status".to_owned(),
            source: io::Error::new(io::ErrorKind::NotFound, "no such program"),
        };
        assert_eq!(
            error.render(),
            "error: cannot run `git status`\n  caused by: no such program\nhint: is git installed?"
        );
    }
}
