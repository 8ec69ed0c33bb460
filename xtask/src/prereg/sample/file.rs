//! `samples.jsonl` on disk: appended to with every line on disk before the next step.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::Context as _;

use super::{Samples, parse_samples};
use crate::sys::files::{AppendFile, exists, read_text_if_present};

/// What a file holds; nothing where there is none.
///
/// # Errors
/// When it cannot be read, or a line is not a record.
pub(crate) fn read_samples(path: &Path) -> anyhow::Result<Samples> {
    let text = read_text_if_present(path)?.unwrap_or_default();
    parse_samples(&text)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("`{}` is damaged", path.display()))
}

/// Opens a file, or creates it, and returns what it holds.
///
/// A last line that a crash cut off was never a sample: it is removed from the file and returned for
/// the journal, so that nothing is lost.
///
/// # Errors
/// As [`read_samples`]; and when it cannot be written.
pub(crate) fn open_samples(path: &Path) -> anyhow::Result<(AppendFile, Samples)> {
    let samples = read_samples(path)?;
    if !exists(path) {
        return Ok((AppendFile::create_new(path, "")?, samples));
    }
    if !samples.torn.is_empty() {
        OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|file| {
                file.set_len(samples.whole_bytes as u64)?;
                file.sync_all()
            })
            .with_context(|| format!("cannot repair `{}`", path.display()))?;
    }
    Ok((AppendFile::open_append(path)?, samples))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prereg::sample::Record;

    #[test]
    fn a_torn_line_is_removed_and_returned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.jsonl");
        let line = |why: &str| Record::Stopped { why: why.to_owned() }.render().unwrap();
        let (mut file, samples) = open_samples(&path).unwrap();
        assert_eq!((samples.records.len(), samples.torn.as_str()), (0, ""));
        file.append(&line("a")).unwrap();
        file.append("{\"b\"").unwrap();
        let (mut file, samples) = open_samples(&path).unwrap();
        assert_eq!((samples.records.len(), samples.torn.as_str()), (1, "{\"b\""));
        file.append(&line("c")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), line("a") + &line("c"));
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.jsonl");
        std::fs::write(&path, "{}\n{\"b\"").unwrap();
        let error = format!("{:#}", open_samples(&path).map(|_| ()).unwrap_err());
        assert!(error.contains("samples.jsonl` is damaged: line 1: "), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n{\"b\"");
    }
}
