//! The file of the OOM record: reading it, and appending to it so that no event is lost.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;

use crate::base::flag::{Flag, parse_flag};
use crate::oom_record::prune::{PrunePlan, drop_lines};
use crate::oom_record::{OomEntry, OomRecord, parse_record, render_entry};
use crate::sys::files::append_whole;

/// Set to on, it keeps the record from keeping cells from being launched.
const IGNORE_VAR: &str = "MLXCEL_BENCH_IGNORE_OOM_RECORD";

/// Whether the variable asks to launch what the record holds. A value that is neither on nor off is
/// warned of, and the record stays in force.
pub(crate) fn is_ignored_by_variable() -> bool {
    let raw = crate::sys::env::read_var(IGNORE_VAR);
    match parse_flag(raw.as_deref()) {
        Flag::On => true,
        Flag::Off => false,
        Flag::Unrecognised => {
            let value = raw.unwrap_or_default();
            crate::sys::terminal::log(&format!(
                "warning: {IGNORE_VAR}: `{value}` is neither on nor off; the OOM record remains in force"
            ));
            false
        }
    }
}

/// Reads the record; a missing or empty file is an empty record. Bytes that are not UTF-8 are shown
/// as replacement characters, so that they make their own line malformed and no other.
pub(crate) fn read_record(path: &Path) -> anyhow::Result<OomRecord> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(parse_record(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(OomRecord::default()),
        Err(error) => {
            Err(error).with_context(|| format!("cannot read the OOM record `{}`", path.display()))
        }
    }
}

/// Appends one event and returns when it is on disk. Processes that append or prune at once take
/// turns; a last line that was torn by a crash is closed first, so that it spoils no other.
pub(crate) fn append_entry(path: &Path, entry: &OomEntry) -> anyhow::Result<()> {
    let append = || -> std::io::Result<()> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        if let Some(dir) = dir {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = lock(path)?;
        let mut text = if ends_within_a_line(&mut file)? { "\n".to_owned() } else { String::new() };
        text.push_str(&render_entry(entry));
        append_whole(&mut file, text.as_bytes())?;
        // A new file is safe only when its directory entry is on disk as well.
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    };
    append().with_context(|| format!("cannot append to the OOM record `{}`", path.display()))
}

/// A record, and what pruning does to it.
#[derive(Debug)]
pub(crate) struct Pruned {
    /// Which lines go, and why others stay.
    pub(crate) plan: PrunePlan,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// Says what pruning by `plan` would do, and changes nothing.
pub(crate) fn preview_prune(
    path: &Path,
    plan: impl FnOnce(&OomRecord) -> anyhow::Result<PrunePlan>,
) -> anyhow::Result<Pruned> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot read the OOM record `{}`", path.display()));
        }
    };
    Ok(plan_over(&bytes, plan)?.0)
}

/// Drops the lines that `plan` names. The file is replaced by a rename, while whoever wants to append
/// waits; an event that was appended before is seen by `plan`.
pub(crate) fn prune(
    path: &Path,
    plan: impl FnOnce(&OomRecord) -> anyhow::Result<PrunePlan>,
) -> anyhow::Result<Pruned> {
    // Where there is no record, none is to be made. A link stays a link: what it leads to is replaced.
    let Ok(path) = path.canonicalize() else { return preview_prune(path, plan) };
    let failed = || format!("cannot rewrite the OOM record `{}`", path.display());
    let mut file = lock(&path).with_context(failed)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(failed)?;
    let (pruned, after) = plan_over(&bytes, plan)?;
    if pruned.plan.dropped.is_empty() {
        return Ok(pruned);
    }
    let replace = || -> std::io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let mut new = tempfile::Builder::new().prefix(".oom-record.").tempfile_in(dir)?;
        new.write_all(&after)?;
        new.as_file().set_permissions(file.metadata()?.permissions())?;
        new.as_file().sync_all()?;
        new.persist(&path)?;
        File::open(dir)?.sync_all()
    };
    replace().with_context(failed)?;
    Ok(pruned)
}

fn plan_over(
    bytes: &[u8],
    plan: impl FnOnce(&OomRecord) -> anyhow::Result<PrunePlan>,
) -> anyhow::Result<(Pruned, Vec<u8>)> {
    let before = String::from_utf8_lossy(bytes).into_owned();
    let plan = plan(&parse_record(&before))?;
    // Dropped by number, so that bytes which are not text stay as they are.
    let after = drop_lines(bytes, &plan.dropped);
    let pruned = Pruned { plan, before, after: String::from_utf8_lossy(&after).into_owned() };
    Ok((pruned, after))
}

/// Opens the record, creating it if need be, and holds its lock until the file is dropped.
pub(crate) fn lock(path: &Path) -> std::io::Result<File> {
    loop {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        file.lock()?;
        // Pruning replaces the file by a rename. Whoever waited for the lock of the old file would
        // write into a file that nobody sees any more.
        let locked = file.metadata()?;
        match std::fs::metadata(path) {
            Ok(at_path) if (at_path.dev(), at_path.ino()) == (locked.dev(), locked.ino()) => {
                return Ok(file);
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

fn ends_within_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(model: &str, len: u64) -> OomEntry {
        OomEntry {
            model: model.to_owned(),
            prompt_target_len: len,
            date: "2026-07-06".to_owned(),
            commit: "unknown".to_owned(),
            peak_bytes: None,
            source_csv: "benchmarks/a.csv".to_owned(),
            found_by: None,
        }
    }

    #[test]
    fn a_missing_and_an_empty_file_are_an_empty_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".oom-record");
        assert_eq!(read_record(&path).unwrap(), OomRecord::default());
        std::fs::write(&path, "").unwrap();
        assert_eq!(read_record(&path).unwrap(), OomRecord::default());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = read_record(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the OOM record `"), "{error}");
    }

    #[test]
    fn the_first_append_creates_folder_and_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("benchmarks/.oom-record");
        append_entry(&path, &entry("tiny", 512)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "tiny,512,2026-07-06,unknown,,benchmarks/a.csv\n");
    }

    #[test]
    fn a_torn_last_line_is_closed_before_the_next_event() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".oom-record");
        std::fs::write(&path, "other,512,2026-0").unwrap();
        append_entry(&path, &entry("tiny", 512)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "other,512,2026-0\ntiny,512,2026-07-06,unknown,,benchmarks/a.csv\n");
        assert!(read_record(&path).unwrap().blocking("tiny", 512).is_some());
    }

    #[test]
    fn bytes_that_are_not_text_spoil_their_own_line_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".oom-record");
        std::fs::write(&path, b"\xff\xfe\n").unwrap();
        append_entry(&path, &entry("tiny", 512)).unwrap();
        let record = read_record(&path).unwrap();
        assert_eq!(record.warnings().len(), 1);
        assert!(record.blocking("tiny", 512).is_some());
    }

    #[test]
    fn events_appended_at_once_are_all_kept_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".oom-record");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for len in 1..=20 {
                        append_entry(path, &entry(&format!("model-{writer}"), len)).unwrap();
                    }
                });
            }
        });
        let record = read_record(&path).unwrap();
        assert!(record.warnings().is_empty());
        assert_eq!(record.entries().count(), 160);
    }

    #[test]
    fn a_waiter_does_not_write_into_a_file_that_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".oom-record");
        append_entry(&path, &entry("old", 1)).unwrap();
        let held = lock(&path).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| append_entry(&path, &entry("new", 2)));
            // The waiter has the old file open once it blocks; there is no event to wait for, and a
            // shorter pause would only make the test weaker, never wrong.
            std::thread::sleep(std::time::Duration::from_millis(100));
            let replacement = dir.path().join("replacement");
            std::fs::write(&replacement, "").unwrap();
            std::fs::rename(&replacement, &path).unwrap();
            drop(held);
            waiter.join().unwrap().unwrap();
        });
        assert!(read_record(&path).unwrap().blocking("new", 2).is_some());
    }
}
