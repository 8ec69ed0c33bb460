//! Real files that are no part of the project.

use std::path::{Path, PathBuf};

/// A file or folder of the shared data, in `ARC_SHARED_DATA` or beside the checkout; `None`, with a
/// line that says so, where it is absent.
pub fn shared_data(path: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = std::env::var_os("ARC_SHARED_DATA").map_or(beside, PathBuf::from);
    let found = data.join(path);
    if found.exists() {
        return Some(found);
    }
    #[expect(clippy::print_stderr, reason = "a test that skips says so")]
    {
        eprintln!("skipped: no `{path}` in `{}` (ARC_SHARED_DATA)", data.display());
    }
    None
}
