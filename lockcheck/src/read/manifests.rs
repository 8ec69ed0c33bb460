//! Manifests by their folder, and the workspace that each belongs to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::text::{Shown, read_text};
use crate::Error;
use crate::parse::manifest::{Manifest, parse_manifest};
use crate::parse::workspace::{is_excluded, normalize};

#[derive(Debug)]
pub(super) struct Manifests {
    shown: Shown,
    by_dir: HashMap<PathBuf, Rc<Manifest>>,
}

impl Manifests {
    pub(super) fn new(shown: Shown) -> Self {
        Self { shown, by_dir: HashMap::new() }
    }

    pub(super) fn shown(&self) -> &Shown {
        &self.shown
    }

    pub(super) fn is_there(&self, dir: &Path) -> bool {
        self.by_dir.contains_key(dir) || dir.join("Cargo.toml").exists()
    }

    pub(super) fn read(&mut self, dir: &Path) -> Result<Rc<Manifest>, Error> {
        if let Some(manifest) = self.by_dir.get(dir) {
            return Ok(Rc::clone(manifest));
        }
        let path = dir.join("Cargo.toml");
        let text = read_text(&path, &self.shown)?;
        let manifest =
            parse_manifest(&text).map_err(|error| error.in_file(&self.shown.display(&path)))?;
        let manifest = Rc::new(manifest);
        self.by_dir.insert(dir.to_owned(), Rc::clone(&manifest));
        Ok(manifest)
    }

    /// The root folder of the workspace that the manifest in `dir` belongs to, as cargo finds it:
    /// itself, where its `workspace` key points, or the nearest folder above whose `[workspace]` does
    /// not exclude it.
    pub(super) fn find_root(&mut self, dir: &Path) -> Result<Option<PathBuf>, Error> {
        let own = self.read(dir)?;
        if own.workspace.is_some() {
            return Ok(Some(dir.to_owned()));
        }
        if let Some((pointer, line)) =
            own.package.as_ref().and_then(|package| package.workspace_pointer.as_ref())
        {
            let root = normalize(&dir.join(pointer));
            if !self.is_there(&root) || self.read(&root)?.workspace.is_none() {
                return Err(Error::NotARoot {
                    path: self.shown.manifest(dir),
                    line: *line,
                    root: self.shown.manifest(&root),
                });
            }
            return Ok(Some(root));
        }
        for above in dir.ancestors().skip(1) {
            if self.is_there(above)
                && let Some(section) = &self.read(above)?.workspace
                && !is_excluded(section, above, dir)
            {
                return Ok(Some(above.to_owned()));
            }
        }
        Ok(None)
    }
}
