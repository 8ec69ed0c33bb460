//! `cargo xtask verify-lock` is `lockcheck` under another name: one report, one verdict. What the check
//! finds is tested in `lockcheck`.
#![allow(clippy::disallowed_methods)]

use std::path::Path;
use std::process::{Command, Output};

use lockcheck::{Scope, Strictness, check, read, report};

/// Writes a package that asks for serde 2, with a lock that holds serde 1.
fn write_drifted() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\n\n[dependencies]\nserde = \"2\"\n",
    );
    write(
        "Cargo.lock",
        "version = 4\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = \
         [\"serde\"]\n\n[[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \
         \"registry+https://github.com/rust-lang/crates.io-index\"\n",
    );
    dir
}

fn verify_lock(manifest: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["verify-lock", "--manifest-path"])
        .arg(manifest)
        .args(args)
        .env("CARGO_HOME", manifest.with_file_name("no-cargo-home"))
        .output()
        .unwrap()
}

#[test]
fn the_command_gives_the_report_and_the_verdict_of_the_library() {
    let dir = write_drifted();
    let manifest = dir.path().join("Cargo.toml");
    let workspace = read::find_root(Some(&manifest)).unwrap().read_workspace().unwrap();
    let mut checked = check(&workspace, Scope::Everything, Strictness::Deny);
    checked.manifest_path = Some(manifest.display().to_string());
    assert_eq!(checked.findings.len(), 1);
    let reports = [checked];

    let human = verify_lock(&manifest, &["--strict"]);
    assert_eq!(human.status.code(), Some(1));
    let text = String::from_utf8(human.stdout).unwrap();
    assert_eq!(text, format!("{}\n", report::render_human(&reports, "verify-lock")));
    let json = verify_lock(&manifest, &["--strict", "--json"]);
    assert_eq!(json.status.code(), Some(1));
    let text = String::from_utf8(json.stdout).unwrap();
    assert_eq!(text, format!("{}\n", report::render_json(&reports)));
}

#[test]
fn what_cannot_be_read_ends_with_2_and_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = verify_lock(&dir.path().join("Cargo.toml"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error: cannot read `"), "{stderr}");
}

#[test]
fn the_help_shows_the_command_as_it_is_called() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(["verify-lock", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.starts_with("Check offline that Cargo.lock holds"), "{help}");
    assert!(help.contains("cargo xtask verify-lock --strict --github"), "{help}");
    assert!(help.contains("Usage: cargo xtask verify-lock [OPTIONS]"), "{help}");
}
