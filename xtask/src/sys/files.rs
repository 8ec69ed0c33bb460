//! Files: reading with the path in the error, whole replacement, and appends that are on disk.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

pub(crate) fn read_text_if_present(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// What is in a folder, in the order of names; empty where there is no such folder.
pub(crate) fn list_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// The names of the folders in a folder, sorted; empty where there is no such folder.
pub(crate) fn list_folders(folder: &Path) -> Vec<String> {
    let is_folder = |path: &PathBuf| path.is_dir();
    let name = |path: PathBuf| path.file_name()?.to_str().map(str::to_owned);
    list_files(folder).into_iter().filter(is_folder).filter_map(name).collect()
}

pub(crate) fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// Copies a file, permissions included.
pub(crate) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))
}

/// The path from the root of the file system, without asking what is there.
pub(crate) fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("`{}` is not a path", path.display()))
}

/// Makes one folder. Returns whether it is new.
pub(crate) fn create_folder_new(path: &Path) -> anyhow::Result<bool> {
    match std::fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("cannot create the folder `{}`", path.display()))
        }
    }
}

/// Replaces a file by this text as a whole: a reader, or a crash, sees the old one or the new one.
pub(crate) fn replace_text(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o644))
            .tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write `{}`", path.display()))
}

/// Makes a folder and what is above it.
pub(crate) fn create_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(path)
        .with_context(|| format!("cannot create the folder `{}`", path.display()))
}

/// Makes a fresh folder below `parent` that nobody else uses; it goes with the returned value.
pub(crate) fn create_scratch(parent: &Path, prefix: &str) -> anyhow::Result<tempfile::TempDir> {
    create_folder(parent)?;
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(parent)
        .with_context(|| format!("cannot create a folder in `{}`", parent.display()))
}

/// Appends bytes by one write and waits until the disk has them. If that fails half way, the part
/// that was written is taken back, so that the file keeps whole lines alone.
pub(crate) fn append_whole(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    let length_before = file.metadata()?.len();
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if written.is_err() {
        // The error that matters is the first one.
        let _ = file.set_len(length_before);
    }
    written
}

/// Makes the creation of a file durable: its folder's entry is on disk.
pub(crate) fn sync_parent(path: &Path) -> anyhow::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let sync = || File::open(parent)?.sync_all();
    sync().with_context(|| format!("cannot sync the folder `{}`", parent.display()))
}

/// A CSV that grows row by row.
#[derive(Debug)]
pub(crate) struct AppendFile {
    file: File,
    path: PathBuf,
}

impl AppendFile {
    /// Starts a file with its first bytes.
    ///
    /// # Errors
    /// When there is something of that name already, or it cannot be made.
    pub(crate) fn create_new(path: &Path, first: &str) -> anyhow::Result<AppendFile> {
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot create `{}`", path.display()))?;
        sync_parent(path)?;
        let mut file = AppendFile { file, path: path.to_owned() };
        file.append(first)?;
        Ok(file)
    }

    /// Opens a file to go on with it. What is in it is not looked at.
    pub(crate) fn open_append(path: &Path) -> anyhow::Result<AppendFile> {
        let file = OpenOptions::new()
            .append(true)
            .open(path)
            .with_context(|| format!("cannot open `{}`", path.display()))?;
        Ok(AppendFile { file, path: path.to_owned() })
    }

    /// Appends by one write and waits until the disk has it.
    pub(crate) fn append(&mut self, text: &str) -> anyhow::Result<()> {
        append_whole(&mut self.file, text.as_bytes())
            .with_context(|| format!("cannot write to `{}`", self.path.display()))
    }
}

/// The SHA-256 of a file's bytes in lower-case hex.
pub(crate) fn read_sha256(path: &Path) -> anyhow::Result<String> {
    use sha2::Digest as _;
    let hash = || -> std::io::Result<String> {
        let mut hasher = sha2::Sha256::new();
        std::io::copy(&mut File::open(path)?, &mut hasher)?;
        Ok(hex::encode(hasher.finalize()))
    };
    hash().with_context(|| format!("cannot read `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_never_started_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let mut file = AppendFile::create_new(&path, "header\n").unwrap();
        file.append("row\n").unwrap();
        assert!(AppendFile::create_new(&path, "header\n").is_err());
        AppendFile::open_append(&path).unwrap().append("row 2\n").unwrap();
        assert_eq!(read_text(&path).unwrap(), "header\nrow\nrow 2\n");
    }

    #[test]
    fn the_hash_is_the_usual_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(
            read_sha256(&path).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn an_absent_file_is_no_error_where_it_may_be_absent() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_text_if_present(&folder.path().join("none")).unwrap(), None);
        assert!(read_text(&folder.path().join("none")).is_err());
        assert!(list_files(&folder.path().join("none")).is_empty());
    }
}
