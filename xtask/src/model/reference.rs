//! Model references: what a word on the command line or in a sweep's definition means. The types and
//! rules; the folders are looked into by `model::store`.
//!
//! A word is, in this order: the name of a synthetic geometry (`bench-configs/models/NAME.toml`), the
//! name of a folder under `models/`, a path, or a glob. Paths and globs are relative to the workspace.

use std::fmt;
use std::path::{Component, Path};

/// Where the synthetic geometries are defined, relative to the workspace.
pub(crate) const GEOMETRIES_DIR: &str = "bench-configs/models";

/// Where local models live, relative to the workspace.
pub(crate) const MODELS_DIR: &str = "models";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelKind {
    /// A geometry; its weights are generated.
    Synthetic,
    Gguf,
    /// A folder of weights in another form, or of several GGUF files.
    Directory,
    Missing,
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModelKind::Synthetic => "a synthetic geometry",
            ModelKind::Gguf => "a GGUF file",
            ModelKind::Directory => "a folder of weights",
            ModelKind::Missing => "missing",
        })
    }
}

/// A model that a word stands for; one that is missing is a value as well, since it becomes a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedModel {
    /// What rows and the OOM record call it.
    pub(crate) name: String,
    /// What to load: relative to the workspace where inside it, else absolute. The file itself where
    /// a folder holds one GGUF file.
    pub(crate) path: String,
    /// The same for tracked files, which must not tell of the user's folders: outside the workspace it
    /// is `external:` and the last part of the path.
    pub(crate) tracked_path: String,
    pub(crate) kind: ModelKind,
    /// Bytes of its weight files (`*.gguf`, `*.safetensors`), or of the tensors that a geometry will be
    /// generated with; `None` where neither is known.
    pub(crate) weight_bytes: Option<u64>,
    /// What the user should know: why it is missing, or that another model has the same name.
    pub(crate) note: Option<String>,
}

/// Whether a word is a pattern rather than a name.
pub(crate) fn is_glob(word: &str) -> bool {
    word.contains(['*', '?', '['])
}

/// Whether a word can name a folder under `models/` or a geometry: one plain part, which cannot lead
/// elsewhere.
pub(crate) fn is_plain_name(word: &str) -> bool {
    let mut parts = Path::new(word).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == word)
        && !word.contains(['\\', '\0'])
}

/// The path as tracked files may show it.
pub(crate) fn render_tracked_path(path: &str) -> String {
    let parsed = Path::new(path);
    let leaves = parsed.is_absolute() || parsed.components().any(|c| c == Component::ParentDir);
    if !leaves {
        return path.to_owned();
    }
    let last = parsed.file_name().map(|name| name.to_string_lossy().into_owned());
    format!("external:{}", last.unwrap_or_default())
}

/// The name of a local model: `own`, the name of its folder or file, unless a synthetic geometry has
/// that name. Then it is the path, so that rows and records never mix the two.
pub(crate) fn choose_name(own: &str, tracked_path: &str, synthetic: &[String]) -> String {
    if synthetic.iter().any(|name| name == own) { tracked_path.to_owned() } else { own.to_owned() }
}

/// Stem, number and count of a part of a split model, `STEM-00001-of-00003.gguf`.
pub(crate) fn split_name(name: &str) -> Option<(&str, usize, usize)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| -> Option<usize> {
        let fits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| text.parse().ok()).flatten()
    };
    let (number, count) = (digits(number)?, digits(count)?);
    (1..=count).contains(&number).then_some((stem, number, count))
}

/// Whether these names, sorted, are all parts of one model.
pub(crate) fn is_one_split(names: &[String]) -> bool {
    let Some((stem, _, count)) = names.first().and_then(|name| split_name(name)) else {
        return false;
    };
    count == names.len()
        && names
            .iter()
            .zip(1..)
            .all(|(name, number)| split_name(name) == Some((stem, number, count)))
}

pub(crate) fn is_weight_file(name: &str) -> bool {
    is_gguf_file(name) || has_extension(name, "safetensors")
}

pub(crate) fn is_gguf_file(name: &str) -> bool {
    has_extension(name, "gguf")
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_plain_part() {
        for name in ["tiny", "qwen2.5-0.5b", "a b", "név", "-x", "a:b"] {
            assert!(is_plain_name(name), "{name}");
        }
        for path in ["", ".", "..", "a/b", "/a", "a/", "./a", "../a", "a\\b"] {
            assert!(!is_plain_name(path), "{path}");
        }
    }

    #[test]
    fn tracked_paths_tell_nothing_of_the_users_folders() {
        assert_eq!(render_tracked_path("models/a/a.gguf"), "models/a/a.gguf");
        assert_eq!(render_tracked_path("/home/me/a.gguf"), "external:a.gguf");
        assert_eq!(render_tracked_path("../me/a.gguf"), "external:a.gguf");
    }

    #[test]
    fn a_local_model_never_takes_the_name_of_a_synthetic_one() {
        let synthetic = ["tiny".to_owned()];
        assert_eq!(choose_name("other", "models/other/o.gguf", &synthetic), "other");
        assert_eq!(choose_name("tiny", "models/tiny", &synthetic), "models/tiny");
    }

    #[test]
    fn weight_files_are_known_by_their_extension() {
        assert!(is_weight_file("a.gguf") && is_weight_file("A.GGUF") && is_gguf_file("a.gguf"));
        assert!(is_weight_file("model-00001-of-00002.safetensors"));
        assert_eq!(split_name("a-b-00002-of-00003.gguf"), Some(("a-b", 2, 3)));
        for other in ["a.gguf", "a-00000-of-00003.gguf", "a-00004-of-00003.gguf", "a-1-of-3.gguf"] {
            assert_eq!(split_name(other), None, "{other}");
        }
        let names = |numbers: &[usize]| -> Vec<String> {
            numbers.iter().map(|number| format!("a-0000{number}-of-00002.gguf")).collect()
        };
        assert!(is_one_split(&names(&[1, 2])) && !is_one_split(&names(&[2])));
        assert!(!is_weight_file("model.safetensors.index.json") && !is_weight_file("gguf"));
    }
}
