//! `cargo xtask report` from outside: what it reads, writes, refuses and exits with.

use testkit::{Redaction, Workspace, assert_shown};

use crate::XTASK;

const HEADER: &str = "model,model_path,prompt_tokens,generated_tokens,prefill_ms,prefill_tok_s,\
                      decode_ms,decode_tok_s,date,hardware,mlx_version,build_type,max_tokens,\
                      prompt,prompt_target_len\n";

fn workspace() -> Workspace {
    Workspace::new(XTASK, &["a"])
}

/// A sweep with one measured cell and one that ran out of memory.
fn write_sweep(workspace: &Workspace, path: &str, date: &str) {
    let row = |numbers: &str, len: u64, class: &str| {
        format!("a,p,{numbers},{date},CPU_8GB,0.1.0,release,32,\"\",{len}{class}\n")
    };
    let (fast, oom) = ("512,32,1.00,500.00,1.00,50.00", ",,,,,");
    workspace.write(path, format!("{HEADER}{}{}", row(fast, 512, ""), row(oom, 2048, ",SKIP:oom")));
}

#[test]
fn the_newest_sweep_is_drawn_and_what_is_not_one_is_passed_over() {
    let workspace = workspace();
    write_sweep(&workspace, "benchmarks/b.csv", "2026-07-03");
    write_sweep(&workspace, "benchmarks/a.csv", "2026-07-04");
    workspace.write(
        "benchmarks/a.csv.journal.jsonl",
        "{\"event\":\"sweep_start\",\"commit\":\"da5e04e\"}\n{\"event\":\"cell_la",
    );
    workspace.write("benchmarks/other.csv", "a,b\n1,2\n");
    assert_shown!(
        Redaction::new(&workspace),
        workspace.run(&["report", "--out", "docs/new/a.svg"]),
        @r"
    exit code 0
    --- stdout
    docs/new/a.svg
    --- stderr
    note: cannot draw `[ROOT]/benchmarks/other.csv`: line 1: no column `model`, so it is not the CSV of a sweep; passed over
    warning: `benchmarks/a.csv.journal.jsonl`, line 2 is cut off; ignored
    report: `benchmarks/a.csv`: 1 model, 1 cell measured, 1 not
    ");
    let picture = workspace.read("docs/new/a.svg");
    assert!(picture.starts_with("<svg ") && picture.contains("commit da5e04e"), "{picture}");
    assert!(picture.contains("2026-07-04") && picture.contains("a at 2,048 tokens: SKIP:oom"));
}

#[test]
fn a_csv_that_is_named_is_drawn_and_an_older_picture_replaced() {
    let workspace = workspace();
    write_sweep(&workspace, "elsewhere/b.csv", "2026-07-03");
    workspace.write("b.svg", "old");
    assert_shown!(
        Redaction::new(&workspace),
        workspace.run(&["report", "elsewhere/b.csv", "--out", "b.svg"]),
        @r"
    exit code 0
    --- stdout
    b.svg
    --- stderr
    note: `elsewhere/b.csv` has no journal beside it, so the picture names no commit
    report: `elsewhere/b.csv`: 1 model, 1 cell measured, 1 not
    ");
    assert!(workspace.read("b.svg").starts_with("<svg "));
}

#[test]
fn what_cannot_be_drawn_says_why_and_writes_nothing() {
    let workspace = workspace();
    workspace.write("empty.csv", "");
    workspace.write("header.csv", HEADER);
    for (csv, why) in [
        ("empty.csv", "it is empty"),
        ("header.csv", "it holds no row below its header: nothing was measured yet"),
    ] {
        let ran = workspace.run(&["report", csv, "--out", "a.svg"]).exits_with(2);
        assert_eq!(ran.stderr, format!("error: cannot draw `{csv}`\n  caused by: {why}\n"));
    }
    assert_shown!(
        Redaction::new(&workspace),
        workspace.run(&["report", "none.csv", "--out", "a.svg"]),
        @r"
    exit code 2
    --- stderr
    error: cannot read `none.csv`
      caused by: No such file or directory (os error 2)
    hint: cargo xtask sweep writes a CSV into benchmarks/ and prints its path
    ");
    assert_shown!(
        Redaction::new(&workspace),
        workspace.run(&["report", "--out", "a.svg"]),
        @r"
    exit code 2
    --- stderr
    error: no sweep in `[ROOT]/benchmarks`
    hint: cargo xtask sweep makes one; or name a CSV: cargo xtask report CSV --out FILE.svg
    ");
    assert!(!workspace.path("a.svg").exists());
}

#[test]
fn an_output_that_is_not_a_picture_is_refused_before_anything_is_read() {
    let workspace = workspace();
    write_sweep(&workspace, "a.csv", "2026-07-03");
    let before = workspace.read("a.csv");
    assert_shown!(
        Redaction::new(&workspace),
        workspace.run(&["report", "a.csv", "--out", "a.csv"]),
        @r"
    exit code 2
    --- stderr
    error: cannot tell from `a.csv` what to write; the known endings are `.svg`
    hint: cargo xtask report --out FILE.svg
    ");
    assert_eq!(workspace.read("a.csv"), before);
    workspace.run(&["report", "a.csv", "--out", "a.html"]).exits_with(2);
}

#[test]
fn the_help_has_an_example() {
    let help = workspace().run(&["report", "--help"]).exits_with(0).stdout;
    assert!(help.contains("cargo xtask report --out docs/sweep.svg"), "{help}");
}
