//! Tells release builds the commit that they are built from.
//!
//! Debug builds do without, so that a commit does not rebuild the tests.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    // Outside of a checkout, or without git, the commit is simply not known.
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return };
    println!("cargo::rustc-env=ARC_BUILD_COMMIT={commit}");
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
