//! `cargo xtask oom-record` over the real binary: what it prints, its exit code, and the record's bytes.

use testkit::{Ran, Redaction, Workspace, assert_shown};

use crate::XTASK;

const PATH: &str = "benchmarks/.oom-record";

/// A workspace with a record.
fn workspace(record: impl AsRef<[u8]>) -> Workspace {
    let workspace = Workspace::new(XTASK, &[]);
    workspace.write(PATH, record);
    workspace
}

fn run(workspace: &Workspace, args: &[&str]) -> Ran {
    workspace.run(&[&["oom-record"], args].concat())
}

/// An empty commit, abbreviated.
fn commit(workspace: &Workspace, message: &str) -> String {
    workspace.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
    workspace.git(&["rev-parse", "--short", "HEAD"])
}

const RECORD: &str = "llama,2048,2026-07-01,8f14e45,,benchmarks/a.csv\n\
                      torn,51\n\
                      \"a,b: \"\"c\"\"\",512,2026-07-09,unknown,987654321,benchmarks/b.csv\n\
                      llama-8b,8192,2026-07-09,8f14e45,,benchmarks/b.csv\n";

#[test]
fn list_prints_the_events_and_warns_of_each_malformed_line_once() {
    let workspace = workspace(RECORD);
    assert_shown!(Redaction::new(&workspace), run(&workspace, &["list"]));
    assert_eq!(
        run(&workspace, &["list", "--model", "llama", "--json"]).json(),
        serde_json::json!([{
            "line": 1, "model": "llama", "prompt_target_len": 2048, "date": "2026-07-01",
            "commit": "8f14e45", "peak_bytes": null, "source_csv": "benchmarks/a.csv",
        }])
    );
}

#[test]
fn a_missing_record_is_an_empty_one_and_none_is_made() {
    let workspace = workspace("");
    workspace.remove(PATH);
    for args in [&["list"][..], &["explain", "llama", "1"], &["prune", "--model", "llama"]] {
        run(&workspace, args).exits_with(0);
        assert!(!workspace.path(PATH).exists());
    }
}

#[test]
fn explain_shows_the_line_that_forbids_the_cell() {
    let workspace = workspace(RECORD);
    assert_shown!(Redaction::new(&workspace), run(&workspace, &["explain", "a,b: \"c\"", "512"]));
    assert_shown!(Redaction::new(&workspace), run(&workspace, &["explain", "llama-8b", "2048"]));
}

#[test]
fn prune_by_model_shows_the_diff_and_keeps_every_other_byte() {
    let workspace = workspace(RECORD);
    let dry = run(&workspace, &["prune", "--model", "llama", "--dry-run"]).exits_with(0);
    assert_eq!(workspace.read_bytes(PATH), RECORD.as_bytes());
    assert!(dry.stderr.ends_with("oom-record: 1 event would be removed (dry run)\n"));
    let output = run(&workspace, &["prune", "--model", "llama"]);
    assert_eq!(output.stdout, dry.stdout);
    assert_shown!(Redaction::new(&workspace), output);
    let (_, rest) = RECORD.split_once('\n').unwrap();
    assert_eq!(workspace.read_bytes(PATH), rest.as_bytes());
    assert_eq!(workspace.names("benchmarks"), [".oom-record"], "nothing is left behind");
}

#[test]
fn prune_keeps_bytes_that_are_no_text_and_a_torn_end() {
    let workspace = workspace(b"\xff\xfe,1\nold,1,2026-01-01,x,,s\r\nnew,1,2026-02-01,x,,s");
    run(&workspace, &["prune", "--before", "2026-02-01"]).exits_with(0);
    assert_eq!(workspace.read_bytes(PATH), b"\xff\xfe,1\nnew,1,2026-02-01,x,,s");
}

#[test]
fn prune_by_a_fix_drops_the_commits_before_it_alone() {
    let workspace = workspace("");
    workspace.git(&["init", "--quiet"]);
    let old = commit(&workspace, "old");
    let trunk = workspace.git(&["rev-parse", "--abbrev-ref", "HEAD"]);
    let fix = commit(&workspace, "fix");
    let later = commit(&workspace, "later");
    workspace.git(&["checkout", "--quiet", "-b", "side", &old]);
    let side = commit(&workspace, "side");
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
    workspace.write(PATH, line("a", &old) + &kept);
    let ran = run(&workspace, &["prune", "--fixed-by", &fix]).exits_with(0);
    assert_eq!(workspace.read(PATH), kept);
    assert_shown!(
        Redaction::new(&workspace).text(&old, "[OLD]").text(&fix, "[FIX]").text(&later, "[LATER]"),
        ran
    );
    let stdout = run(&workspace, &["explain", "b", "512"]).stdout;
    assert!(stdout.contains(&format!("at commit {fix}, 1 commit before HEAD")), "{stdout}");
}

#[test]
fn prune_by_a_fix_that_git_does_not_know_changes_nothing() {
    let record = b"a,512,2026-07-01,8f14e45,,a.csv\n";
    let workspace = workspace(record);
    let output = run(&workspace, &["prune", "--fixed-by", "HEAD"]).exits_with(2);
    assert!(output.stderr.starts_with("error: git cannot be asked here: "));
    workspace.git(&["init", "--quiet"]);
    commit(&workspace, "first");
    let output = run(&workspace, &["prune", "--fixed-by", "v9"]).exits_with(2);
    assert_shown!(Redaction::new(&workspace), output);
    assert_eq!(workspace.read_bytes(PATH), record);
}

#[test]
fn prune_needs_exactly_one_rule() {
    let workspace = workspace(RECORD);
    for args in [
        &["prune"][..],
        &["prune", "--dry-run"],
        &["prune", "--model", "llama", "--before", "2026-07-09"],
        &["prune", "--before", "yesterday"],
    ] {
        run(&workspace, args).exits_with(2);
    }
    assert_eq!(workspace.read_bytes(PATH), RECORD.as_bytes());
}

#[test]
fn a_record_behind_a_link_stays_behind_it() {
    let workspace = workspace("");
    let real = workspace.path("real-record");
    workspace.write(&real, RECORD);
    workspace.remove(PATH);
    std::os::unix::fs::symlink(&real, workspace.path(PATH)).unwrap();
    run(&workspace, &["prune", "--model", "llama"]).exits_with(0);
    assert!(workspace.path(PATH).is_symlink());
    assert_eq!(workspace.read(&real), RECORD.split_once('\n').unwrap().1);
}
