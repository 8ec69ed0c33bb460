//! Models that are split over files: `NAME-00001-of-0000N.gguf` and so on, as llama.cpp's
//! `llama-gguf-split` writes them.
//!
//! The first part has all metadata, every part the tensors that lie in it. The names and the keys
//! `split.*` must agree, so that a part of another model is never taken.

use std::path::{Path, PathBuf};

use super::{Gguf, GgufError};

/// A file name of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartName<'a> {
    /// What all parts have in common.
    pub(crate) stem: &'a str,
    /// From 1.
    pub(crate) number: usize,
    pub(crate) count: usize,
}

impl<'a> PartName<'a> {
    /// `STEM-00001-of-00003.gguf`; `None` for other names.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (rest, extension) = name.rsplit_once('.')?;
        if !extension.eq_ignore_ascii_case("gguf") {
            return None;
        }
        let digits = |text: &str| -> Option<usize> {
            let fits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            fits.then(|| text.parse().ok()).flatten()
        };
        let (rest, count) = rest.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (digits(number)?, digits(count)?);
        (1..=count).contains(&number).then_some(Self { stem, number, count })
    }

    fn file(&self, number: usize) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count)
    }
}

/// The files of the model that `path`, whose header is `gguf`, is a part of; `None` where it is whole.
pub(super) fn parts_of(gguf: &Gguf, path: &Path) -> Result<Option<Vec<PathBuf>>, GgufError> {
    let count = gguf.opt_u64("split.count")?.unwrap_or(0);
    if count <= 1 {
        return Ok(None);
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let name = PartName::parse(&file).filter(|name| name.count as u64 == count);
    let Some(name) = name else {
        let what =
            format!("it is one of {count}, so its name must end in `-0000N-of-{count:05}.gguf`");
        return Err(GgufError::Part { file: file.into_owned(), what });
    };
    Ok(Some((1..=name.count).map(|number| path.with_file_name(name.file(number))).collect()))
}

/// All parts as one model.
pub(super) fn read(parts: Vec<PathBuf>) -> Result<Gguf, GgufError> {
    let mut whole: Option<Gguf> = None;
    for (index, path) in parts.iter().enumerate() {
        let file = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bad = |what: String| GgufError::Part { file: file(), what };
        let (mut part, _) = Gguf::read_one(path).map_err(|error| bad(describe(&error)))?;
        for (key, expected) in [("split.count", parts.len()), ("split.no", index)] {
            let found = part.opt_u64(key)?;
            if found != Some(expected as u64) {
                let found = found.map_or("missing".to_owned(), |found| found.to_string());
                return Err(bad(format!("`{key}` is {found}, its name says {expected}")));
            }
        }
        for tensor in part.tensors.values_mut() {
            tensor.part = index;
        }
        let Some(whole) = &mut whole else {
            whole = Some(part);
            continue;
        };
        whole.file_bytes += part.file_bytes;
        for (name, tensor) in part.tensors {
            if whole.tensors.insert(name.clone(), tensor).is_some() {
                return Err(bad(format!("tensor `{name}` is in an earlier part too")));
            }
        }
    }
    let mut whole = whole.ok_or_else(|| GgufError::MissingKey { key: "split.count".to_owned() })?;
    if let Some(announced) = whole.opt_u64("split.tensors.count")?
        && announced != whole.tensors.len() as u64
    {
        let what = format!("is {announced}, the parts have {} tensors", whole.tensors.len());
        return Err(GgufError::BadKey { key: "split.tensors.count".to_owned(), what });
    }
    whole.parts = parts;
    Ok(whole)
}

fn describe(error: &GgufError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_by_its_name() {
        let part = PartName::parse("a-b-00002-of-00003.gguf").unwrap();
        assert_eq!(part, PartName { stem: "a-b", number: 2, count: 3 });
        assert_eq!(part.file(1), "a-b-00001-of-00003.gguf");
        for other in [
            "a.gguf",
            "a-00000-of-00003.gguf",
            "a-00004-of-00003.gguf",
            "a-2-of-3.gguf",
            "a-0000x-of-00003.gguf",
            "a-00001-of-00003.bin",
        ] {
            assert_eq!(PartName::parse(other), None, "{other}");
        }
    }
}
