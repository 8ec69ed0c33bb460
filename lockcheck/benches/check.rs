//! The check as it is used: the built program, started, run and ended. `cargo bench -p lockcheck`
//! measures this workspace, a generated one and, where the shared data is, two real ones.
#![allow(clippy::print_stderr)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() {
    divan::main();
}

/// How many members the generated workspace has, and how many packages its lock.
const MEMBERS: usize = 18;
const PACKAGES: usize = 900;

#[derive(Clone)]
struct Workspace {
    name: &'static str,
    manifest: PathBuf,
}

impl fmt::Display for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[divan::bench(args = find_workspaces(), sample_count = 50)]
fn check(workspace: &Workspace) {
    let status = Command::new(env!("CARGO_BIN_EXE_lockcheck"))
        .args(["--manifest-path"])
        .arg(&workspace.manifest)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    // Both verdicts are done checks; anything else measured nothing.
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
}

fn find_workspaces() -> Vec<Workspace> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let data = std::env::var_os("ARC_SHARED_DATA")
        .map_or_else(|| root.join("../shared/data"), PathBuf::from)
        .join("lock-cases/real");
    let mut workspaces = vec![
        Workspace { name: "own", manifest: root.join("Cargo.toml") },
        Workspace { name: "generated", manifest: write_generated() },
    ];
    for name in ["arc-4860dff940", "floneum-4952b08497"] {
        let manifest = data.join(name).join("Cargo.toml");
        if manifest.is_file() {
            workspaces.push(Workspace { name, manifest });
        } else {
            eprintln!("skipped: no `{}` (ARC_SHARED_DATA)", manifest.display());
        }
    }
    workspaces
}

/// Writes a workspace in which every member has 40 dependencies and every package three.
fn write_generated() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("lockcheck-bench-{MEMBERS}-{PACKAGES}"));
    let package = |at: usize| format!("package-{at:04}");
    let mut lock = String::from("version = 4\n");
    let entry = |name: &str, source: &str, dependencies: &[String]| {
        let list: Vec<String> = dependencies.iter().map(|name| format!(" \"{name}\",\n")).collect();
        format!(
            "\n[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\n{source}dependencies = \
             [\n{}]\n",
            list.concat()
        )
    };
    for member in 0..MEMBERS {
        let name = format!("member-{member:02}");
        let uses: Vec<String> =
            (0..PACKAGES).skip(member).step_by(MEMBERS).take(50).map(package).collect();
        let list: Vec<String> = uses.iter().map(|name| format!("{name} = \"1\"\n")).collect();
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"1.0.0\"\n\n[dependencies]\n{}",
            list.concat()
        );
        std::fs::create_dir_all(dir.join(&name)).unwrap();
        std::fs::write(dir.join(&name).join("Cargo.toml"), manifest).unwrap();
        lock.push_str(&entry(&name, "", &uses));
    }
    let source = format!(
        "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{}\"\n",
        "0".repeat(64)
    );
    for at in 0..PACKAGES {
        let uses: Vec<String> = [at / 2, at / 3, at / 5].map(package).into();
        lock.push_str(&entry(&package(at), &source, &uses));
    }
    std::fs::write(dir.join("Cargo.lock"), lock).unwrap();
    std::fs::write(dir.join("Cargo.toml"), "[workspace]\nmembers = [\"member-*\"]\n").unwrap();
    dir.join("Cargo.toml")
}
