//! Where the root of the workspace is, and which other workspaces lie below it.

use std::path::{Path, PathBuf};

use super::manifests::Manifests;
use super::members::find_members;
use super::text::Shown;
use super::workspace;
use crate::Error;
use crate::parse::workspace::{Workspace, normalize};

/// The root folder of a workspace.
#[derive(Debug, Clone)]
pub struct Root {
    dir: PathBuf,
    shown: Shown,
}

/// Finds the root of the workspace that a manifest belongs to; without one, that of the nearest
/// manifest at or above the current folder. A package that is in no workspace is its own root.
///
/// # Errors
///
/// When there is no such manifest, when it or the root manifest cannot be read, or when the manifest
/// lies in the folder of a workspace that does not have it as a member.
pub fn find_root(manifest_path: Option<&Path>) -> Result<Root, Error> {
    let here = std::env::current_dir().map_err(Error::CurrentDir)?;
    let (dir, shown) = find_start(&normalize(&here), manifest_path)?;
    let mut manifests = Manifests::new(shown.clone());
    let root = manifests.find_root(&dir)?.unwrap_or_else(|| dir.clone());
    if root != dir && !find_members(&mut manifests, &root)?.contains(&dir) {
        return Err(Error::NotAMember { path: shown.manifest(&dir), root: shown.manifest(&root) });
    }
    Ok(Root { dir: root, shown })
}

/// The folder of the manifest to start from, and how paths are shown: as they were given.
fn find_start(here: &Path, manifest_path: Option<&Path>) -> Result<(PathBuf, Shown), Error> {
    let Some(given) = manifest_path else {
        let dir = here
            .ancestors()
            .find(|dir| dir.join("Cargo.toml").exists())
            .ok_or_else(|| Error::NoManifest { dir: here.display().to_string() })?;
        return Ok((dir.to_owned(), Shown::RelativeTo(here.to_owned())));
    };
    let path = normalize(&here.join(given));
    let display = given.display().to_string();
    if path.is_dir() {
        let meant = given.join("Cargo.toml").display().to_string();
        return Err(Error::ManifestIsDirectory { path: display, meant });
    }
    if path.file_name().is_none_or(|name| name != "Cargo.toml") {
        return Err(Error::NotAManifest { path: display });
    }
    let dir = path.parent().unwrap_or(&path).to_owned();
    let shown =
        if given.is_absolute() { Shown::Absolute } else { Shown::RelativeTo(here.to_owned()) };
    Ok((dir, shown))
}

impl Root {
    /// Reads the workspace: every manifest that counts, cargo's configuration, and the lock.
    ///
    /// # Errors
    ///
    /// When a manifest, a configuration file or the lock cannot be read. A path dependency that leads
    /// to no manifest is not an error: see [`Workspace::missing_paths`].
    pub fn read_workspace(&self) -> Result<Workspace, Error> {
        workspace::read_workspace(&self.dir, &self.shown)
    }

    /// The root manifest, as it is shown.
    pub fn manifest(&self) -> String {
        self.shown.manifest(&self.dir)
    }

    /// The roots of other workspaces below that have a lock of their own: nested ones and excluded
    /// ones. Build folders, hidden folders and symbolic links are not entered.
    ///
    /// # Errors
    ///
    /// When a folder cannot be listed or a manifest cannot be read.
    pub fn find_nested(&self) -> Result<Vec<Root>, Error> {
        let mut manifests = Manifests::new(self.shown.clone());
        let mut found = Vec::new();
        let mut stack = vec![self.dir.clone()];
        while let Some(dir) = stack.pop() {
            let failed = |source| Error::List { path: self.shown.display(&dir), source };
            for entry in std::fs::read_dir(&dir).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name();
                let hidden = name.as_encoded_bytes().starts_with(b".");
                // The type of the entry itself: a symbolic link to a folder is not one.
                let is_dir = entry.file_type().map_err(failed)?.is_dir();
                if is_dir && !hidden && name != "target" {
                    stack.push(entry.path());
                }
            }
            let is_candidate = dir != self.dir
                && dir.join("Cargo.lock").is_file()
                && dir.join("Cargo.toml").is_file();
            if is_candidate && manifests.find_root(&dir)?.is_none_or(|root| root == dir) {
                found.push(dir);
            }
        }
        found.sort();
        Ok(found.into_iter().map(|dir| Root { dir, shown: self.shown.clone() }).collect())
    }
}
