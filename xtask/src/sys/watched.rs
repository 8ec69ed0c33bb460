//! Files that must not change while something is measured with them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::files::read_sha256;
use crate::base::diagnostic::HintExt as _;

/// A file with the hash of what it held when the watch began.
///
/// Looking is cheap: the content is hashed again only where the file's identity, size or times differ
/// from the last look. The time of the last change of its entry (`ctime`) is among them, which a
/// program cannot set back.
#[derive(Debug)]
pub(crate) struct Watched {
    what: &'static str,
    path: PathBuf,
    sha256: String,
    state: FileState,
}

/// What tells that a file may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(metadata: &Metadata) -> FileState {
        FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Watched {
    /// Begins to watch. `what` names the file in messages, for example `the program`.
    pub(crate) fn begin(what: &'static str, path: &Path) -> anyhow::Result<Watched> {
        let state = read_state(what, path)?;
        let sha256 = read_sha256(path)?;
        Ok(Watched { what, path: path.to_owned(), sha256, state })
    }

    /// SHA-256 of the content, in lower-case hex.
    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Looks whether the content is what it was.
    ///
    /// # Errors
    /// When it is not, or cannot be read any more.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let state = read_state(self.what, &self.path)?;
        if state == self.state {
            return Ok(());
        }
        let now = read_sha256(&self.path)?;
        if now == self.sha256 {
            self.state = state;
            return Ok(());
        }
        Err(anyhow::anyhow!(
            "{} `{}` changed during the run: its SHA-256 was {} and is now {}",
            self.what,
            self.path.display(),
            &self.sha256[..12],
            &now[..12]
        ))
        .hint(
            "runs before and after the change cannot be compared; start over. A file that the command \
             writes to is no pin: name it in `writes` of the runner's definition",
        )
    }
}

fn read_state(what: &str, path: &Path) -> anyhow::Result<FileState> {
    let metadata = std::fs::metadata(path)
        .with_context(|| format!("cannot read {what} `{}`", path.display()))?;
    Ok(FileState::of(&metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_an_error_and_a_touch_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, "one").unwrap();
        let mut watched = Watched::begin("the program", &path).unwrap();
        watched.check().unwrap();
        // The same content in another file under the same name.
        std::fs::write(folder.path().join("other"), "one").unwrap();
        std::fs::rename(folder.path().join("other"), &path).unwrap();
        watched.check().unwrap();
        // Other content of the same size.
        std::fs::write(&path, "two").unwrap();
        let error = watched.check().unwrap_err();
        assert!(error.to_string().contains("changed during the run"), "{error:#}");
        std::fs::remove_file(&path).unwrap();
        let error = watched.check().unwrap_err();
        assert!(error.to_string().starts_with("cannot read the program"), "{error:#}");
    }
}
