//! `samples.jsonl` on disk: appended to with every line on disk before the next step.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::Context as _;

use super::{Samples, parse_samples};
use crate::base::diagnostic::HintExt as _;
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
/// As [`read_samples`]; where a line does not hold the hash of the one before; and when it cannot be
/// written.
pub(crate) fn open_samples(path: &Path) -> anyhow::Result<(AppendFile, Samples)> {
    let samples = read_samples(path)?;
    if let Some(broken) = &samples.broken {
        return Err(anyhow::anyhow!("`{}` was edited: {broken}", path.display()))
            .hint("restore it from git: a run goes on only from what was measured");
    }
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
    use crate::prereg::sample::{Record, hash_line};

    #[test]
    fn a_torn_line_is_removed_and_returned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.jsonl");
        let stopped = |why: &str| Record::Stopped { why: why.to_owned() };
        let first = stopped("a").render(None).unwrap();
        let second = stopped("c").render(Some(&hash_line(&first))).unwrap();
        let (mut file, samples) = open_samples(&path).unwrap();
        assert_eq!((samples.records.len(), samples.torn.as_str()), (0, ""));
        file.append(&first).unwrap();
        file.append("{\"b\"").unwrap();
        let (mut file, samples) = open_samples(&path).unwrap();
        assert_eq!((samples.records.len(), samples.torn.as_str()), (1, "{\"b\""));
        file.append(&second).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{first}{second}"));
        // An edited line is left alone, and nothing is added after it.
        std::fs::write(&path, format!("{first}{second}").replacen("\"a\"", "\"b\"", 1)).unwrap();
        let error = format!("{:#}", open_samples(&path).map(|_| ()).unwrap_err());
        assert!(error.contains("samples.jsonl` was edited: line 2 does not hold"), "{error}");
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
