//! `cargo xtask verify-lock` is `lockcheck` under another name: one report, one verdict. What the check
//! finds is tested in `lockcheck`.

use lockcheck::{Scope, Strictness, check, read, report};
use testkit::{Ran, Workspace};

use crate::XTASK;

/// A package that asks for serde 2, with a lock that holds serde 1.
fn drifted() -> Workspace {
    let workspace = Workspace::empty(XTASK);
    workspace.write(
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\n\n[dependencies]\nserde = \"2\"\n",
    );
    workspace.write(
        "Cargo.lock",
        "version = 4\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = \
         [\"serde\"]\n\n[[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \
         \"registry+https://github.com/rust-lang/crates.io-index\"\n",
    );
    workspace
}

/// With no configuration of cargo's but the workspace's.
fn verify_lock(workspace: &Workspace, args: &[&str]) -> Ran {
    let manifest = workspace.path("Cargo.toml");
    let start = ["verify-lock", "--manifest-path", &manifest.to_string_lossy()];
    workspace
        .command(&[&start, args].concat())
        .env("CARGO_HOME", workspace.path("no-cargo-home"))
        .run()
}

#[test]
fn the_command_gives_the_report_and_the_verdict_of_the_library() {
    let workspace = drifted();
    let manifest = workspace.path("Cargo.toml");
    let read = read::find_root(Some(&manifest)).unwrap().read_workspace().unwrap();
    let mut checked = check(&read, Scope::Everything, Strictness::Deny);
    checked.manifest_path = Some(manifest.display().to_string());
    assert_eq!(checked.findings.len(), 1);
    let reports = [checked];

    let human = verify_lock(&workspace, &["--strict"]).exits_with(1);
    assert_eq!(human.stdout, format!("{}\n", report::render_human(&reports, "verify-lock")));
    let json = verify_lock(&workspace, &["--strict", "--json"]).exits_with(1);
    assert_eq!(json.stdout, format!("{}\n", report::render_json(&reports)));
}

#[test]
fn what_cannot_be_read_ends_with_2_and_one_error() {
    let ran = verify_lock(&Workspace::empty(XTASK), &[]).exits_with(2);
    assert!(ran.stderr.starts_with("error: cannot read `"), "{ran}");
}

#[test]
fn the_help_shows_the_command_as_it_is_called() {
    let help = Workspace::empty(XTASK).run(&["verify-lock", "--help"]).exits_with(0).stdout;
    assert!(help.starts_with("Check offline that Cargo.lock holds"), "{help}");
    assert!(help.contains("cargo xtask verify-lock --strict --github"), "{help}");
    assert!(help.contains("Usage: cargo xtask verify-lock [OPTIONS]"), "{help}");
}
