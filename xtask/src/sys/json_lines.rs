//! The journal: one JSON object a line, on disk before the call returns.
//!
//! It owns the file and the moment of writing; what the lines mean is their writer's business.
//! Nothing in a journal is ever changed: a last line that a crash cut off gets a line end and stays.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::base::scrub::Scrub;

#[derive(Debug)]
pub(crate) struct JournalFile {
    file: File,
    path: PathBuf,
    scrub: Option<Scrub>,
}

impl JournalFile {
    /// The same journal, which from now on writes nothing of this machine's paths.
    pub(crate) fn with_scrub(self, scrub: Scrub) -> JournalFile {
        JournalFile { scrub: Some(scrub), ..self }
    }

    /// Starts a new journal.
    ///
    /// # Errors
    /// When there is a file of that name already, or it cannot be made.
    pub(crate) fn create_new(path: &Path) -> anyhow::Result<JournalFile> {
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot create the journal `{}`", path.display()))?;
        super::files::sync_parent(path)?;
        Ok(JournalFile { file, path: path.to_owned(), scrub: None })
    }

    /// Opens a journal to go on with it.
    pub(crate) fn open_append(path: &Path) -> anyhow::Result<JournalFile> {
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().read(true).append(true).open(path)?;
            if ends_within_a_line(&mut file)? {
                file.write_all(b"\n")?;
            }
            Ok(file)
        };
        let file =
            open().with_context(|| format!("cannot open the journal `{}`", path.display()))?;
        Ok(JournalFile { file, path: path.to_owned(), scrub: None })
    }

    /// Appends one line, by one write, and waits until the disk has it.
    pub(crate) fn append(&mut self, entry: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(entry).context("cannot write an entry as JSON")?;
        if let Some(scrub) = &self.scrub {
            // Paths stand in JSON as they are, and what replaces them needs no escape either.
            line = scrub.text(&line);
        }
        line.push('\n');
        super::files::append_whole(&mut self.file, line.as_bytes())
            .with_context(|| format!("cannot write to the journal `{}`", self.path.display()))
    }
}

/// Whether the last line has no end; the file's position is its end afterwards.
pub(super) fn ends_within_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last[0] != b'\n')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_appended_and_an_existing_journal_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        JournalFile::create_new(&path).unwrap().append(&json!({"a": 1})).unwrap();
        assert!(JournalFile::create_new(&path).is_err());
        JournalFile::open_append(&path).unwrap().append(&json!({"b": "x\ny"})).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"b\":\"x\\ny\"}\n");
    }

    #[test]
    fn paths_of_this_machine_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let scrub = Scrub::new(&[("/home/ann/arc", ".")]);
        let mut journal = JournalFile::create_new(&path).unwrap().with_scrub(scrub);
        journal.append(&json!({"a": "/home/ann/arc/target \"/home/ann/arc\""})).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"a\":\"./target \\\".\\\"\"}\n");
    }

    #[test]
    fn a_line_that_a_crash_cut_off_stays_and_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, "{\"a\":1}\n{\"b\":").unwrap();
        JournalFile::open_append(&path).unwrap().append(&json!({"c": 1})).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"b\":\n{\"c\":1}\n");
    }
}
