//! Texts of files, with errors that name path and line, and paths as people are shown them.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use anyhow::Context as _;

use crate::diagnostic::HintExt as _;
use crate::lock::manifest::{Manifest, parse_manifest};
use crate::lock::spanned::TextError;
use crate::lock::workspace::normalize;

/// The largest file that is read. The largest lock seen in the wild is under half a megabyte; what
/// is larger than this is something else.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// How paths are shown.
#[derive(Debug, Clone)]
pub(crate) enum Shown {
    /// Relative to this folder.
    RelativeTo(PathBuf),
    /// As they are.
    Absolute,
}

impl Shown {
    /// A path as it is shown, with forward slashes.
    pub(crate) fn display(&self, path: &Path) -> String {
        let shown = match self {
            Self::Absolute => path.to_owned(),
            Self::RelativeTo(base) => relative(base, path),
        };
        shown.to_string_lossy().replace('\\', "/")
    }

    /// The manifest of a folder as it is shown.
    pub(crate) fn manifest(&self, dir: &Path) -> String {
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

/// An error in a text, with its file and line.
pub(crate) fn place_error(display: &str, error: &TextError) -> anyhow::Error {
    match error.line {
        Some(line) => anyhow::anyhow!("{display}:{line}: {}", error.message),
        None => anyhow::anyhow!("{display}: {}", error.message),
    }
}

/// Reads a text file. Folders, files that are too large and bytes that are no UTF-8 are errors.
pub(crate) fn read_text(path: &Path, shown: &Shown) -> anyhow::Result<String> {
    let display = shown.display(path);
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot read `{display}`"))?;
    if metadata.is_dir() {
        return Err(anyhow::anyhow!("`{display}` is a directory, not a file"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(anyhow::anyhow!(
            "`{display}` has {} bytes, more than the {MAX_FILE_BYTES} that are read",
            metadata.len()
        ))
        .hint("no manifest and no lock is that large: look at what wrote it");
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    // A device or a pipe has no length to go by, so the limit holds while reading, too.
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read `{display}`"))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow::anyhow!("{display}:{line}: not UTF-8")
    })
}

/// Reads a text file that need not be there.
pub(crate) fn read_if_there(path: &Path, shown: &Shown) -> anyhow::Result<Option<String>> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => read_text(path, shown).map(Some),
    }
}

/// Manifests by their folder, each read once.
#[derive(Debug)]
pub(crate) struct Manifests {
    shown: Shown,
    by_dir: HashMap<PathBuf, Rc<Manifest>>,
}

impl Manifests {
    /// None read yet.
    pub(crate) fn new(shown: Shown) -> Self {
        Self { shown, by_dir: HashMap::new() }
    }

    /// How paths are shown.
    pub(crate) fn shown(&self) -> &Shown {
        &self.shown
    }

    /// Whether a folder has a manifest.
    pub(crate) fn is_there(&self, dir: &Path) -> bool {
        self.by_dir.contains_key(dir) || dir.join("Cargo.toml").exists()
    }

    /// The manifest of a folder.
    pub(crate) fn read(&mut self, dir: &Path) -> anyhow::Result<Rc<Manifest>> {
        if let Some(manifest) = self.by_dir.get(dir) {
            return Ok(Rc::clone(manifest));
        }
        let path = dir.join("Cargo.toml");
        let text = read_text(&path, &self.shown)?;
        let manifest = parse_manifest(&text)
            .map_err(|error| place_error(&self.shown.display(&path), &error))?;
        let manifest = Rc::new(manifest);
        self.by_dir.insert(dir.to_owned(), Rc::clone(&manifest));
        Ok(manifest)
    }

    /// The root folder of the workspace that the manifest in `dir` belongs to, as cargo finds it:
    /// itself, where its `workspace` key points, or the nearest folder above whose `[workspace]` does
    /// not exclude it.
    pub(crate) fn find_root(&mut self, dir: &Path) -> anyhow::Result<Option<PathBuf>> {
        let own = self.read(dir)?;
        if own.workspace.is_some() {
            return Ok(Some(dir.to_owned()));
        }
        if let Some((pointer, line)) =
            own.package.as_ref().and_then(|package| package.workspace_pointer.as_ref())
        {
            let root = normalize(&dir.join(pointer));
            if !self.is_there(&root) || self.read(&root)?.workspace.is_none() {
                return Err(anyhow::anyhow!(
                    "{}:{line}: `package.workspace` points at `{}`, which is no workspace root",
                    self.shown.manifest(dir),
                    self.shown.manifest(&root)
                ))
                .hint("point it at the folder whose manifest has `[workspace]`");
            }
            return Ok(Some(root));
        }
        for above in dir.ancestors().skip(1) {
            if !self.is_there(above) {
                continue;
            }
            if let Some(section) = &self.read(above)?.workspace
                && !super::members::is_excluded(section, above, dir)
            {
                return Ok(Some(above.to_owned()));
            }
        }
        Ok(None)
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
