//! Why a workspace could not be checked, and the way out where there is one. What the check *finds* is
//! no error: see [`Finding`](crate::Finding).

use std::error::Error as _;
use std::io;

/// Why a workspace could not be checked. Each says what it means in its message; paths are as they are
/// shown to people, lines are counted from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("cannot tell the current directory")]
    CurrentDir(#[source] io::Error),
    #[error("no `Cargo.toml` in `{dir}` or above")]
    NoManifest { dir: String },
    #[error("`{path}` is a directory, not a manifest")]
    ManifestIsDirectory { path: String, meant: String },
    #[error("`{path}` is not named Cargo.toml")]
    NotAManifest { path: String },
    #[error("cannot read `{path}`")]
    Read { path: String, source: io::Error },
    #[error("cannot list `{path}`")]
    List { path: String, source: io::Error },
    #[error("`{path}` is a directory, not a file")]
    IsDirectory { path: String },
    #[error("`{path}` has {bytes} bytes; the limit is {limit_bytes}")]
    TooLarge { path: String, bytes: u64, limit_bytes: u64 },
    #[error("{path}{}: {message}", .line.map_or_else(String::new, |line| format!(":{line}")))]
    Text { path: String, line: Option<usize>, message: String },
    #[error("`{path}` is included more than {limit} files deep")]
    IncludeDepth { path: String, limit: usize },
    #[error(
        "{path}:{line}: `package.workspace` points at `{root}`, which is not the root of a workspace"
    )]
    NotARoot { path: String, line: usize, root: String },
    #[error("`{path}` is not a member of the workspace `{root}`")]
    NotAMember { path: String, root: String },
    #[error("{place} is not a valid pattern")]
    MemberPattern { place: String, source: glob::PatternError },
    #[error("cannot list what {place} matches")]
    MemberList { place: String, source: glob::GlobError },
    #[error("{place} reaches `{path}`, a symbolic link that leads nowhere or in a circle")]
    MemberLinkBroken { place: String, path: String, source: io::Error },
    #[error("{place} reaches `{path}`, a symbolic link back to a folder that it lies in")]
    MemberLinkUp { place: String, path: String },
    #[error("{place} leads to `{path}`, which does not exist")]
    MemberMissing { place: String, path: String },
    #[error("no family is named `{name}`; known are {}", .known.join(", "))]
    UnknownFamily { name: String, known: Vec<String> },
    #[error("cannot run `{command}`")]
    Git { command: String, source: io::Error },
    #[error("`{command}` did not answer within {limit_s} s")]
    GitTimeout { command: String, limit_s: u64 },
    #[error("`{dir}` is not a git repository")]
    NotARepository { dir: String },
    #[error("`{dir}` has no revision `{rev}`")]
    NoRevision { dir: String, rev: String },
    #[error("revision `{rev}` has no `{file}` in `{dir}`")]
    NoFileAtRevision { dir: String, rev: String, file: String },
    #[error("the lock has no package of family `{family}`")]
    NoFamilyPackage { family: String },
    #[error("Cargo.lock of `{rev}` has no `{package}`")]
    NoOldPackage { rev: String, package: String },
    #[error("the lock has no commit of family `{family}` to compare with")]
    NoFamilyCommit { family: String },
}

impl Error {
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
