//! Turns what the user named as the model into a GGUF file.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::gguf::PartName;
use super::synthetic::ensure_synthetic;

/// A model that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSource {
    /// The GGUF file.
    pub gguf: PathBuf,
    /// Name after the file or folder that the user gave.
    pub name: String,
}

/// Finds the model: a description (`.toml`), a `.gguf` file, or a folder that holds one `.gguf` or all
/// parts of one.
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
        let part = path.file_name().and_then(|name| PartName::parse(name.to_str()?));
        if let Some(part) = part {
            return part.stem.to_owned();
        }
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
        // The parts of one model stand for it, and the first of them for all.
        if is_one_split(&found) {
            found.truncate(1);
        }
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
    // Opening a pipe would wait for whoever writes to it.
    if !metadata.is_file() {
        bail!("the model `{shown}` is neither a file nor a folder");
    }
    Ok(ModelSource { gguf: path.to_owned(), name: name(path) })
}

/// Whether these files, sorted, are all parts of one model.
fn is_one_split(files: &[PathBuf]) -> bool {
    let names: Vec<_> = files
        .iter()
        .map(|file| file.file_name().and_then(|name| PartName::parse(name.to_str()?)))
        .collect();
    let Some(Some(first)) = names.first() else { return false };
    first.count == names.len()
        && names.iter().zip(1..).all(|(name, number)| {
            let expected = PartName { number, ..first.clone() };
            name.as_ref() == Some(&expected)
        })
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

    #[test]
    fn a_folder_may_hold_the_parts_of_one_model() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("big");
        std::fs::create_dir(&folder).unwrap();
        let part = |number: usize| folder.join(format!("m-0000{number}-of-00002.gguf"));
        for number in [1, 2] {
            std::fs::write(part(number), "").unwrap();
        }
        let source = find_model(&folder).unwrap();
        assert_eq!((source.gguf, source.name.as_str()), (part(1), "big"));
        assert_eq!(find_model(&part(2)).unwrap().name, "m");
        std::fs::write(folder.join("other.gguf"), "").unwrap();
        assert!(find_model(&folder).unwrap_err().to_string().contains("several models"));
        std::fs::remove_file(folder.join("other.gguf")).unwrap();
        std::fs::remove_file(part(1)).unwrap();
        // What is missing is said by whoever reads it.
        assert_eq!(find_model(&folder).unwrap().gguf, part(2));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_no_model() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("model.gguf");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name is a string that ends in 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let error = find_model(&pipe).unwrap_err().to_string();
        assert!(error.ends_with("is neither a file nor a folder"), "{error}");
        assert!(crate::model::gguf::Gguf::read(&pipe).is_err());
    }
}
