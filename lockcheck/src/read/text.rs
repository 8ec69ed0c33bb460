//! Texts of files, with errors that name path and line, and paths as people are shown them.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use crate::Error;

/// The largest file that is read. The largest lock seen in the wild is under half a megabyte; what
/// is larger than this is something else.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Debug, Clone)]
pub(super) enum Shown {
    RelativeTo(PathBuf),
    Absolute,
}

impl Shown {
    /// A path as it is shown, with forward slashes.
    pub(super) fn display(&self, path: &Path) -> String {
        let shown = match self {
            Self::Absolute => path.to_owned(),
            Self::RelativeTo(base) => relative(base, path),
        };
        shown.to_string_lossy().replace('\\', "/")
    }

    pub(super) fn manifest(&self, dir: &Path) -> String {
        self.display(&dir.join("Cargo.toml"))
    }
}

/// `path` as seen from the folder `base`; both are absolute and normal.
fn relative(base: &Path, path: &Path) -> PathBuf {
    let (base, parts): (Vec<_>, Vec<_>) =
        (base.components().collect(), path.components().collect());
    let common = base.iter().zip(&parts).take_while(|(a, b)| a == b).count();
    if common == 0 {
        return path.to_owned();
    }
    let up = base[common..].iter().map(|_| Component::ParentDir);
    up.chain(parts[common..].iter().copied()).collect()
}

/// Reads a text file. Folders, files that are too large and bytes that are not UTF-8 are errors.
pub(super) fn read_text(path: &Path, shown: &Shown) -> Result<String, Error> {
    let display = shown.display(path);
    let failed = |source| Error::Read { path: display.clone(), source };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::IsDirectory { path: display });
    }
    let bytes = metadata.len();
    if bytes > MAX_FILE_BYTES {
        return Err(Error::TooLarge { path: display, bytes, limit_bytes: MAX_FILE_BYTES });
    }
    let mut text = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    // A device or a pipe has no length to go by, so the limit holds while reading, too.
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut text))
        .map_err(failed)?;
    String::from_utf8(text).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::Text { path: display, line: Some(line), message: "not UTF-8".to_owned() }
    })
}

/// Reads a text file that need not be there.
pub(super) fn read_if_there(path: &Path, shown: &Shown) -> Result<Option<String>, Error> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => read_text(path, shown).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_from_where_one_stands() {
        let shown = Shown::RelativeTo(PathBuf::from("/a/b"));
        assert_eq!(shown.display(Path::new("/a/b/c/Cargo.toml")), "c/Cargo.toml");
        assert_eq!(shown.display(Path::new("/a/x/Cargo.toml")), "../x/Cargo.toml");
        assert_eq!(Shown::Absolute.display(Path::new("/a/x")), "/a/x");
    }

    #[test]
    fn bytes_that_are_no_text_have_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("Cargo.toml");
        std::fs::write(&path, b"[package]\nname = \"\xff\"\n").unwrap();
        let error = read_text(&path, &Shown::RelativeTo(dir.path().to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "Cargo.toml:2: not UTF-8");
    }
}
