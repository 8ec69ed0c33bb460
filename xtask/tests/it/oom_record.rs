//! `cargo xtask oom-record` over the real binary: what it prints, its exit code, and the record's bytes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A workspace with a record.
struct Workspace {
    dir: tempfile::TempDir,
}

impl Workspace {
    fn new(record: &[u8]) -> Workspace {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Cargo.toml"), "").unwrap();
        std::fs::create_dir(dir.path().join("bench-configs")).unwrap();
        std::fs::create_dir(dir.path().join("benchmarks")).unwrap();
        std::fs::write(dir.path().join("benchmarks/.oom-record"), record).unwrap();
        Workspace { dir }
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn record_path(&self) -> PathBuf {
        self.root().join("benchmarks/.oom-record")
    }

    fn record(&self) -> Vec<u8> {
        std::fs::read(self.record_path()).unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("oom-record")
            .args(args)
            .current_dir(self.root())
            .output()
            .unwrap()
    }

    /// Runs git with an identity and settings of its own, so that those of the machine do not matter.
    fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=Test", "-c", "user.email=test@example.invalid"])
            .args(["-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"])
            .args(args)
            .current_dir(self.root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    fn commit(&self, message: &str) -> String {
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "--short", "HEAD"])
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const RECORD: &str = "llama,2048,2026-07-01,8f14e45,,benchmarks/a.csv\n\
                      torn,51\n\
                      \"a,b: \"\"c\"\"\",512,2026-07-09,unknown,987654321,benchmarks/b.csv\n\
                      llama-8b,8192,2026-07-09,8f14e45,,benchmarks/b.csv\n";

#[test]
fn list_prints_the_events_and_warns_of_each_malformed_line_once() {
    let workspace = Workspace::new(RECORD.as_bytes());
    let output = workspace.run(&["list"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stderr),
        "warning: OOM record, line 2: skipped, 2 of 6 fields: `torn,51`\n"
    );
    assert_eq!(text(&output.stdout).lines().count(), 4);
    let one = workspace.run(&["list", "--model", "llama", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!(
        json,
        serde_json::json!([{
            "line": 1, "model": "llama", "prompt_target_len": 2048, "date": "2026-07-01",
            "commit": "8f14e45", "peak_bytes": null, "source_csv": "benchmarks/a.csv",
        }])
    );
}

#[test]
fn a_missing_record_is_an_empty_one_and_none_is_made() {
    let workspace = Workspace::new(b"");
    std::fs::remove_file(workspace.record_path()).unwrap();
    for args in [&["list"][..], &["explain", "llama", "1"], &["prune", "--model", "llama"]] {
        let output = workspace.run(args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(!workspace.record_path().exists());
    }
}

#[test]
fn explain_shows_the_line_that_forbids_the_cell() {
    let workspace = Workspace::new(RECORD.as_bytes());
    let output = workspace.run(&["explain", "a,b: \"c\"", "512"]);
    assert_eq!(output.status.code(), Some(0));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("skipped before launch (SKIP:oom_record)"), "{stdout}");
    assert!(stdout.contains("\"a,b: \"\"c\"\"\",512,2026-07-09,unknown,987654321"), "{stdout}");
    let output = workspace.run(&["explain", "llama-8b", "2048"]);
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("llama-8b at 2048 tokens: launched"), "{stdout}");
}

#[test]
fn prune_by_model_shows_the_diff_and_keeps_every_other_byte() {
    let workspace = Workspace::new(RECORD.as_bytes());
    let dry = workspace.run(&["prune", "--model", "llama", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(0));
    assert_eq!(workspace.record(), RECORD.as_bytes());
    assert!(text(&dry.stderr).ends_with("oom-record: 1 event would be removed (dry run)\n"));
    let output = workspace.run(&["prune", "--model", "llama"]);
    assert_eq!(output.stdout, dry.stdout);
    assert_eq!(
        text(&output.stdout),
        "--- benchmarks/.oom-record\n+++ benchmarks/.oom-record\n@@ -1,3 +1,2 @@\n\
         -llama,2048,2026-07-01,8f14e45,,benchmarks/a.csv\n torn,51\n \"a,b: \
         \"\"c\"\"\",512,2026-07-09,unknown,987654321,benchmarks/b.csv\n"
    );
    let (_, rest) = RECORD.split_once('\n').unwrap();
    assert_eq!(workspace.record(), rest.as_bytes());
    let names: Vec<_> = std::fs::read_dir(workspace.root().join("benchmarks")).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left behind: {names:?}");
}

#[test]
fn prune_keeps_bytes_that_are_no_text_and_a_torn_end() {
    let workspace = Workspace::new(b"\xff\xfe,1\nold,1,2026-01-01,x,,s\r\nnew,1,2026-02-01,x,,s");
    let output = workspace.run(&["prune", "--before", "2026-02-01"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(workspace.record(), b"\xff\xfe,1\nnew,1,2026-02-01,x,,s");
}

#[test]
fn prune_by_a_fix_drops_the_commits_before_it_alone() {
    let workspace = Workspace::new(b"");
    workspace.git(&["init", "--quiet"]);
    let old = workspace.commit("old");
    let trunk = workspace.git(&["rev-parse", "--abbrev-ref", "HEAD"]);
    let fix = workspace.commit("fix");
    let later = workspace.commit("later");
    workspace.git(&["checkout", "--quiet", "-b", "side", &old]);
    let side = workspace.commit("side");
    workspace.git(&["checkout", "--quiet", &trunk]);
    let line = |model: &str, commit: &str| format!("{model},512,2026-07-01,{commit},,a.csv\n");
    let kept = [
        line("b", &fix),
        line("c", &later),
        line("d", &side),
        line("e", "unknown"),
        line("f", "0123456"),
        line("g", "--all"),
        "torn\n".to_owned(),
    ]
    .concat();
    std::fs::write(workspace.record_path(), line("a", &old) + &kept).unwrap();
    let output = workspace.run(&["prune", "--fixed-by", &fix]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(text(&workspace.record()), kept);
    assert_eq!(
        stderr,
        "oom-record: line 2 stays: it was recorded with the fix itself\noom-record: line 5 stays: \
         commit `unknown` is not in this repository\noom-record: line 6 stays: commit `0123456` is \
         not in this repository\noom-record: line 7 stays: commit `--all` is not in this \
         repository\noom-record: line 8 stays: it is malformed\noom-record: 1 event removed\n"
    );
    let explained = workspace.run(&["explain", "b", "512"]);
    let stdout = text(&explained.stdout);
    assert!(stdout.contains(&format!("with commit {fix}, 1 commit before HEAD")), "{stdout}");
}

#[test]
fn prune_by_a_fix_that_git_does_not_know_changes_nothing() {
    let record = b"a,512,2026-07-01,8f14e45,,a.csv\n";
    let workspace = Workspace::new(record);
    let output = workspace.run(&["prune", "--fixed-by", "HEAD"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: git knows no repository here: "));
    workspace.git(&["init", "--quiet"]);
    workspace.commit("first");
    let output = workspace.run(&["prune", "--fixed-by", "v9"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "error: git knows no commit `v9`\nhint: name the commit, tag or branch that holds the fix; \
         `git log` lists commits\n"
    );
    assert_eq!(workspace.record(), record);
}

#[test]
fn prune_needs_exactly_one_rule() {
    let workspace = Workspace::new(RECORD.as_bytes());
    for args in [
        &["prune"][..],
        &["prune", "--dry-run"],
        &["prune", "--model", "llama", "--before", "2026-07-09"],
        &["prune", "--before", "yesterday"],
    ] {
        assert_eq!(workspace.run(args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(workspace.record(), RECORD.as_bytes());
}

#[test]
fn a_record_behind_a_link_stays_behind_it() {
    let workspace = Workspace::new(b"");
    let real = workspace.root().join("real-record");
    std::fs::write(&real, RECORD).unwrap();
    std::fs::remove_file(workspace.record_path()).unwrap();
    std::os::unix::fs::symlink(&real, workspace.record_path()).unwrap();
    assert_eq!(workspace.run(&["prune", "--model", "llama"]).status.code(), Some(0));
    assert!(workspace.record_path().is_symlink());
    assert_eq!(std::fs::read(&real).unwrap(), RECORD.split_once('\n').unwrap().1.as_bytes());
}
