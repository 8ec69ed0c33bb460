//! The members of a workspace: globs, exclusions and path dependencies, as cargo follows them.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

use super::manifests::Manifests;
use crate::Error;
use crate::parse::manifest::{Manifest, RawDependency, RawSource, RawSpec, WorkspaceSection};
use crate::parse::workspace::{is_excluded, normalize};

/// The folders of the members of the workspace whose root manifest is in `root_dir`, the root's own
/// package first. Without `[workspace]` that package is the only one.
pub(super) fn find_members(
    manifests: &mut Manifests,
    root_dir: &Path,
) -> Result<Vec<PathBuf>, Error> {
    let root = manifests.read(root_dir)?;
    let mut members = Vec::new();
    let mut queue = VecDeque::new();
    if root.package.is_some() {
        queue.push_back((root_dir.to_owned(), Via::Listed));
    }
    let Some(section) = &root.workspace else {
        members.extend(queue.pop_front().map(|(dir, _)| dir));
        return Ok(members);
    };
    for (pattern, line) in &section.members {
        for dir in expand(manifests, root_dir, pattern, *line)? {
            queue.push_back((dir, Via::Listed));
        }
    }
    let mut seen = HashSet::new();
    while let Some((dir, via)) = queue.pop_front() {
        if seen.contains(&dir) || is_excluded(section, root_dir, &dir) {
            continue;
        }
        if via == Via::Path && !is_member_by_path(manifests, root_dir, &dir)? {
            continue;
        }
        let manifest = manifests.read(&dir)?;
        queue.extend(paths_of(&manifest, &dir, section, root_dir).map(|dir| (dir, Via::Path)));
        seen.insert(dir.clone());
        members.push(dir);
    }
    Ok(members)
}

/// How a member was come upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Via {
    Listed,
    Path,
}

/// Whether a path dependency makes its target a member: it is there, below the root or belonging to
/// it, and no workspace of its own.
fn is_member_by_path(
    manifests: &mut Manifests,
    root_dir: &Path,
    dir: &Path,
) -> Result<bool, Error> {
    if !manifests.is_there(dir) || manifests.read(dir)?.workspace.is_some() {
        return Ok(false);
    }
    Ok(dir.starts_with(root_dir) || manifests.find_root(dir)?.as_deref() == Some(root_dir))
}

/// The folders that the path dependencies of a manifest lead to.
fn paths_of<'m>(
    manifest: &'m Manifest,
    dir: &'m Path,
    section: &'m WorkspaceSection,
    root_dir: &'m Path,
) -> impl Iterator<Item = PathBuf> + 'm {
    let own_path = |raw: &RawDependency, base: &Path| match &raw.spec {
        RawSpec::Own(detail) => match &detail.source {
            RawSource::Path(path) => Some(normalize(&base.join(path))),
            _ => None,
        },
        RawSpec::Inherited => None,
    };
    manifest.dependencies.iter().filter_map(move |raw| match raw.spec {
        RawSpec::Own(_) => own_path(raw, dir),
        RawSpec::Inherited => {
            let shared = section.dependencies.iter().find(|shared| shared.key == raw.key)?;
            own_path(shared, root_dir)
        }
    })
}

/// The folders that one entry of `members` stands for.
fn expand(
    manifests: &Manifests,
    root_dir: &Path,
    pattern: &str,
    line: usize,
) -> Result<Vec<PathBuf>, Error> {
    let shown = manifests.shown();
    let place = format!("{}:{line}: member `{pattern}`", shown.manifest(root_dir));
    let escaped = glob::Pattern::escape(&root_dir.to_string_lossy());
    let found = glob::glob(&format!("{escaped}/{pattern}"))
        .map_err(|source| Error::MemberPattern { place: place.clone(), source })?
        .collect::<Result<Vec<PathBuf>, _>>()
        .map_err(|source| Error::MemberList { place: place.clone(), source })?;
    // A pattern that matches nothing is taken as a path.
    let literal = found.is_empty();
    let candidates = if literal { vec![root_dir.join(pattern)] } else { found };
    let mut dirs = Vec::new();
    for candidate in candidates {
        if !literal {
            if candidate.is_file() {
                continue;
            }
            check_no_loop(&candidate, &place, &shown.display(&candidate))?;
        }
        let dir = normalize(&candidate);
        if !manifests.is_there(&dir) {
            return Err(Error::MemberMissing { place, path: shown.manifest(&dir) });
        }
        dirs.push(dir);
    }
    Ok(dirs)
}

/// Refuses symbolic links that lead nowhere or back to a folder they lie in.
fn check_no_loop(candidate: &Path, place: &str, display: &str) -> Result<(), Error> {
    let resolve = |path: &Path| {
        std::fs::canonicalize(path).map_err(|source| Error::MemberLinkBroken {
            place: place.to_owned(),
            path: display.to_owned(),
            source,
        })
    };
    let real = resolve(candidate)?;
    let parent = candidate.parent().map(resolve).transpose()?;
    if parent.is_some_and(|parent| parent.starts_with(&real)) {
        return Err(Error::MemberLinkUp { place: place.to_owned(), path: display.to_owned() });
    }
    Ok(())
}
