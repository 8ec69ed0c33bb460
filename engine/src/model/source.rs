//! Turns what the user named as the model into a GGUF file.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::synthetic::ensure_synthetic;

/// A model that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSource {
    /// The GGUF file.
    pub gguf: PathBuf,
    /// Name after the file or folder that the user gave.
    pub name: String,
}

/// Finds the model: a description (`.toml`), a `.gguf` file, or a folder that holds one `.gguf`.
///
/// A description's file is written first if it is not there yet.
///
/// # Errors
/// Nothing is there, a folder holds no or several GGUF files, or a description is wrong.
pub fn find_model(path: &Path) -> anyhow::Result<ModelSource> {
    let shown = path.display();
    let metadata =
        std::fs::metadata(path).with_context(|| format!("cannot find the model `{shown}`"))?;
    let name = |path: &Path| {
        path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into())
    };
    if metadata.is_dir() {
        let mut found = Vec::new();
        for entry in
            std::fs::read_dir(path).with_context(|| format!("cannot list the folder `{shown}`"))?
        {
            let file = entry.with_context(|| format!("cannot list the folder `{shown}`"))?.path();
            if has_extension(&file, "gguf") {
                found.push(file);
            }
        }
        found.sort();
        return match found.as_slice() {
            [gguf] => {
                let folder = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                let name = folder
                    .file_name()
                    .map_or_else(|| name(gguf), |n| n.to_string_lossy().into_owned());
                Ok(ModelSource { gguf: gguf.clone(), name })
            }
            [] => bail!("the folder `{shown}` holds no `.gguf` file"),
            several => {
                let names: Vec<_> = several.iter().map(|f| format!("`{}`", f.display())).collect();
                bail!("the folder `{shown}` holds several models, name one: {}", names.join(", "))
            }
        };
    }
    if has_extension(path, "toml") {
        return Ok(ModelSource { gguf: ensure_synthetic(path)?, name: name(path) });
    }
    Ok(ModelSource { gguf: path.to_owned(), name: name(path) })
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_must_hold_exactly_one_model() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("my-model");
        std::fs::create_dir(&folder).unwrap();
        let error = find_model(&folder).unwrap_err().to_string();
        assert!(error.ends_with("holds no `.gguf` file"), "{error}");
        std::fs::write(folder.join("weights.GGUF"), "").unwrap();
        std::fs::write(folder.join("tokenizer.json"), "").unwrap();
        let source = find_model(&folder).unwrap();
        assert_eq!(source.name, "my-model");
        assert_eq!(source.gguf, folder.join("weights.GGUF"));
        std::fs::write(folder.join("more.gguf"), "").unwrap();
        let error = find_model(&folder).unwrap_err().to_string();
        assert!(error.contains("several models") && error.contains("more.gguf"), "{error}");
    }

    #[test]
    fn a_missing_path_is_named() {
        let error = find_model(Path::new("no/such.gguf")).unwrap_err().to_string();
        assert_eq!(error, "cannot find the model `no/such.gguf`");
    }
}
