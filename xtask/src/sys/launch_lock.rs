//! One measuring command at a time in one checkout: two would measure each other.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;

/// Where the lock lies, below the workspace root. Git ignores it.
const LOCK_PATH: &str = "benchmarks/.sweep.lock";

const TRIES: u32 = 20;
const TRY_EVERY: Duration = Duration::from_millis(25);

/// Held as long as cells are launched. The system gives it back when the process ends, however
/// that comes about.
#[derive(Debug)]
pub(crate) struct LaunchLock {
    _file: File,
}

impl LaunchLock {
    /// Takes the lock of this checkout for a command, for example `sweep`.
    ///
    /// # Errors
    /// When another process holds it; the error names that one.
    pub(crate) fn acquire(root: &Path, command: &str) -> anyhow::Result<LaunchLock> {
        let path = root.join(LOCK_PATH);
        super::files::create_folder(path.parent().unwrap_or(root))?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open `{}`", path.display()))?;
        match lock_soon(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Who holds it is a help, not a condition.
                let _ = file.read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "another process".to_owned(),
                    holder => holder.to_owned(),
                };
                return Err(anyhow::anyhow!(
                    "{holder} is already measuring in this checkout (lock `{LOCK_PATH}`)"
                ))
                .hint("wait for it or stop it; two at once would disturb each other");
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock `{}`", path.display()));
            }
        }
        let mut note = || -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "`cargo xtask {command}` (process {})", std::process::id())
        };
        note().with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(LaunchLock { _file: file })
    }
}

/// Tries for a moment: what a process had locked that was killed while it started another stays locked until
/// that one has become its program.
fn lock_soon(file: &File) -> Result<(), TryLockError> {
    for _ in 0..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(TRY_EVERY),
            tried => return tried,
        }
    }
    file.try_lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_until_the_first_is_done() {
        let root = tempfile::tempdir().unwrap();
        let first = LaunchLock::acquire(root.path(), "sweep").unwrap();
        let error = LaunchLock::acquire(root.path(), "ab").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("`cargo xtask sweep` (process "), "{text}");
        drop(first);
        LaunchLock::acquire(root.path(), "ab").unwrap();
    }
}
