//! Real files that are no part of the project, and what is said where they are absent.

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
    skip(&format!("no `{path}` in `{}` (ARC_SHARED_DATA)", data.display()));
    None
}

/// Says that a test, or a part of it, is skipped, and why.
#[expect(clippy::print_stderr, reason = "it is the test that tells")]
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
