//! Looks models up: the geometries of the workspace, the folder `models/`, paths and globs. The rules
//! are `model_ref`'s.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use formats::geometry::Geometry;

use crate::base::nearest::nearest;
use crate::model::reference::{
    GEOMETRIES_DIR, MODELS_DIR, ModelKind, ResolvedModel, choose_name, is_gguf_file, is_glob,
    is_one_split, is_plain_name, is_weight_file, render_tracked_path, split_name,
};
use crate::sys::glob::{Matches, find_matches};
use crate::sys::terminal;

/// Resolves each word, in order; a glob may stand for several models. A word that stands for nothing
/// yields a missing model, whose note says why.
///
/// # Errors
/// A word that is not a pattern though it looks like one, or a folder that cannot be read.
pub(crate) fn resolve_models(root: &Path, words: &[String]) -> anyhow::Result<Vec<ResolvedModel>> {
    let store = Store { root, synthetic: read_synthetic_names(root)? };
    let mut models = Vec::new();
    for word in words {
        let exists_as_it_stands = root.join(word).exists();
        if is_glob(word) && !exists_as_it_stands {
            models.extend(store.resolve_glob(word)?);
        } else {
            models.push(store.resolve_word(word)?);
        }
    }
    Ok(models)
}

/// Every model that a plain name can mean: the synthetic ones, then the local ones, each sorted by
/// name.
pub(crate) fn read_all_models(root: &Path) -> anyhow::Result<Vec<ResolvedModel>> {
    let store = Store { root, synthetic: read_synthetic_names(root)? };
    let mut models = Vec::new();
    for name in &store.synthetic {
        models.push(store.resolve_word(name)?);
    }
    for name in read_local_names(root)? {
        models.push(store.resolve_path(&format!("{MODELS_DIR}/{name}"))?);
    }
    Ok(models)
}

/// The names of the synthetic geometries, sorted.
fn read_synthetic_names(root: &Path) -> anyhow::Result<Vec<String>> {
    let names = read_names(&root.join(GEOMETRIES_DIR))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(".toml")).map(str::to_owned).collect())
}

/// The names under `models/`, hidden ones left out, sorted; links to nothing are among them.
fn read_local_names(root: &Path) -> anyhow::Result<Vec<String>> {
    read_names(&root.join(MODELS_DIR))
}

/// The names in a folder, hidden ones and those that are not UTF-8 left out, sorted; none where there
/// is no such folder.
fn read_names(dir: &Path) -> anyhow::Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read `{}`", dir.display()));
        }
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read `{}`", dir.display()))?;
        if let Ok(name) = entry.file_name().into_string()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The workspace, seen as a store of models.
struct Store<'a> {
    root: &'a Path,
    synthetic: Vec<String>,
}

impl Store<'_> {
    fn resolve_word(&self, word: &str) -> anyhow::Result<ResolvedModel> {
        if is_plain_name(word) {
            let local = format!("{MODELS_DIR}/{word}");
            let local_exists = self.root.join(&local).exists();
            if self.synthetic.iter().any(|name| name == word) {
                let path = format!("{GEOMETRIES_DIR}/{word}.toml");
                let mut model = self.synthetic_model(word, &path);
                if local_exists {
                    model.note = Some(format!(
                        "`{word}` is the synthetic geometry; the local model of that name is \
                         `{local}`"
                    ));
                }
                return Ok(model);
            }
            if local_exists {
                return self.resolve_path(&local);
            }
        }
        if !word.is_empty() && self.root.join(word).exists() {
            return self.resolve_path(word);
        }
        Ok(self.missing(word))
    }

    fn resolve_glob(&self, word: &str) -> anyhow::Result<Vec<ResolvedModel>> {
        let Matches { paths, skipped } = find_matches(self.root, word)?;
        for path in skipped {
            terminal::log(&format!(
                "warning: skipping `{}`, whose name is not UTF-8",
                self.relative(&path).display()
            ));
        }
        let mut models = Vec::new();
        for path in paths {
            let model = self.resolve_path(&path.to_string_lossy())?;
            // A pattern such as `models/*` also meets notes and empty folders.
            if model.kind == ModelKind::Synthetic || model.weight_bytes.is_some() {
                models.push(model);
            }
        }
        if models.is_empty() {
            let mut model = self.missing(word);
            model.note = Some(format!("no model matches `{word}`"));
            models.push(model);
        }
        Ok(models)
    }

    /// The model at a path that was given, or found, to be there.
    fn resolve_path(&self, word: &str) -> anyhow::Result<ResolvedModel> {
        let path = self.relative(Path::new(word));
        let full = self.root.join(&path);
        let display = path.to_string_lossy().into_owned();
        let own_name = |part: Option<&OsStr>| {
            part.map_or_else(|| display.clone(), |part| part.to_string_lossy().into_owned())
        };
        let Ok(metadata) = std::fs::metadata(&full) else {
            let mut model = self.missing(&own_name(path.file_name()));
            model.path.clone_from(&display);
            model.tracked_path = render_tracked_path(&display);
            if full.is_symlink() {
                model.note = Some(format!("`{display}` is a dangling link"));
            }
            return Ok(model);
        };
        if metadata.is_dir() {
            let weights = read_weights(&full)?;
            let (weights_path, kind) = match &weights.gguf_files[..] {
                [only] => (path.join(only).to_string_lossy().into_owned(), ModelKind::Gguf),
                // The first part of a split model stands for all, whose sizes are summed.
                [first, ..] if is_one_split(&weights.gguf_files) => {
                    (path.join(first).to_string_lossy().into_owned(), ModelKind::Gguf)
                }
                _ => (display.clone(), ModelKind::Directory),
            };
            let own = match path.file_name() {
                Some(name) => own_name(Some(name)),
                // A path such as `..` has no name of its own; the folder that it leads to has.
                None => own_name(full.canonicalize().unwrap_or_default().file_name()),
            };
            return Ok(ResolvedModel {
                name: choose_name(&own, &render_tracked_path(&display), &self.synthetic),
                tracked_path: render_tracked_path(&weights_path),
                path: weights_path,
                kind,
                weight_bytes: weights.bytes,
                note: None,
            });
        }
        let stem = own_name(path.file_stem());
        if path.extension() == Some(OsStr::new("toml")) {
            return Ok(self.synthetic_model(&stem, &display));
        }
        let tracked_path = render_tracked_path(&display);
        let is_weight = is_weight_file(&display);
        Ok(ResolvedModel {
            name: choose_name(&stem, &tracked_path, &self.synthetic),
            tracked_path,
            kind: if is_gguf_file(&display) { ModelKind::Gguf } else { ModelKind::Directory },
            path: display,
            weight_bytes: is_weight.then(|| metadata.len() + other_parts_bytes(&full)),
            note: None,
        })
    }

    /// The geometry at `path`. Its weights need not be there yet; their size is known all the same.
    fn synthetic_model(&self, name: &str, path: &str) -> ResolvedModel {
        let text = std::fs::read_to_string(self.root.join(path)).unwrap_or_default();
        ResolvedModel {
            name: name.to_owned(),
            path: path.to_owned(),
            tracked_path: render_tracked_path(path),
            kind: ModelKind::Synthetic,
            weight_bytes: Geometry::parse(&text).ok().map(|geometry| geometry.weight_bytes()),
            note: None,
        }
    }

    /// The path from the workspace where it lies inside, without `.` parts; else as it is.
    fn relative(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix(self.root).unwrap_or(path);
        let plain: PathBuf =
            inside.components().filter(|part| *part != std::path::Component::CurDir).collect();
        if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain }
    }

    fn missing(&self, word: &str) -> ResolvedModel {
        let models = self.root.join(MODELS_DIR);
        let note = if models.is_symlink() && !models.exists() {
            format!("`{MODELS_DIR}` is a dangling link")
        } else {
            let local = read_local_names(self.root).unwrap_or_default();
            let known = self.synthetic.iter().chain(&local).map(String::as_str);
            let near = nearest(word, known).map(|near| format!("; did you mean `{near}`?"));
            format!(
                "`{word}` is neither a geometry nor a folder under `{MODELS_DIR}/` nor a path{}",
                near.unwrap_or_default()
            )
        };
        let local = format!("{MODELS_DIR}/{word}");
        let path = if is_plain_name(word) { local } else { word.to_owned() };
        ResolvedModel {
            name: word.to_owned(),
            tracked_path: render_tracked_path(&path),
            path,
            kind: ModelKind::Missing,
            weight_bytes: None,
            note: Some(note),
        }
    }
}

/// Bytes of the other parts of the split model that this file is a part of.
fn other_parts_bytes(file: &Path) -> u64 {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Some((stem, number, count)) = split_name(&name) else { return 0 };
    let others = (1..=count).filter(|&other| other != number);
    let bytes = others.filter_map(|other| {
        let part = file.with_file_name(format!("{stem}-{other:05}-of-{count:05}.gguf"));
        Some(std::fs::metadata(part).ok()?.len())
    });
    bytes.sum()
}

/// The weight files directly within a folder, links followed.
struct Weights {
    gguf_files: Vec<String>,
    bytes: Option<u64>,
}

fn read_weights(dir: &Path) -> anyhow::Result<Weights> {
    let mut weights = Weights { gguf_files: Vec::new(), bytes: None };
    for name in read_names(dir)? {
        let Ok(metadata) = std::fs::metadata(dir.join(&name)) else { continue };
        if is_weight_file(&name) && metadata.is_file() {
            weights.bytes = Some(weights.bytes.unwrap_or(0) + metadata.len());
            if is_gguf_file(&name) {
                weights.gguf_files.push(name);
            }
        }
    }
    Ok(weights)
}

#[cfg(test)]
mod tests;
