//! `samples.jsonl` on disk: created once, appended to with every line on disk before the next step.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::Context as _;

use crate::sys::files::{AppendFile, read_text_if_present};

/// Opens the file, creating it where there is none, and returns what it holds.
///
/// A last line that a crash cut off was never a sample: it is taken away from the file, and returned
/// for the journal, so that nothing is lost.
pub(crate) fn open_samples(path: &Path) -> anyhow::Result<(AppendFile, String, Option<String>)> {
    let Some(mut text) = read_text_if_present(path)? else {
        return Ok((AppendFile::create_new(path, "")?, String::new(), None));
    };
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let torn = text.split_off(whole);
    if torn.is_empty() {
        return Ok((AppendFile::open_append(path)?, text, None));
    }
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| {
            file.set_len(whole as u64)?;
            file.sync_all()
        })
        .with_context(|| format!("cannot repair `{}`", path.display()))?;
    Ok((AppendFile::open_append(path)?, text, Some(torn)))
}

/// The names of the folders in a folder, sorted; none where there is no such folder.
pub(crate) fn list_folders(path: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

pub(crate) fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// Copies a file, permissions included.
pub(crate) fn copy_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to)
        .map(|_| ())
        .with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_taken_away_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.jsonl");
        let (mut file, text, torn) = open_samples(&path).unwrap();
        assert_eq!((text.as_str(), torn), ("", None));
        file.append("{\"a\":1}\n").unwrap();
        file.append("{\"b\"").unwrap();
        let (mut file, text, torn) = open_samples(&path).unwrap();
        assert_eq!((text.as_str(), torn.as_deref()), ("{\"a\":1}\n", Some("{\"b\"")));
        file.append("{\"c\":1}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"c\":1}\n");
    }
}
