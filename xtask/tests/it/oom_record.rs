//! `cargo xtask oom-record` over the real binary: what it prints, its exit code, and the record's bytes.

use testkit::{Cell, Ran, Redaction, Script, Workspace, assert_shown};

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

/// A workspace with a model `a` that a sweep recorded at two lengths.
fn recorded(script: &Script) -> Workspace {
    let workspace = Workspace::new(XTASK, &["a"]);
    workspace.write(
        "bench-configs/sweep/s.toml",
        "models = [\"a\"]\nlengths = [512]\nrunner = \"scripted\"\nmax_tokens = 7\n",
    );
    workspace.write_scripted_runner("scripted", "report");
    let oom = Cell::new().runs_out_of_memory("CUDA error: out of memory\n");
    workspace.script(&Script::new().cell(oom));
    let args = ["sweep", "--config", "bench-configs/sweep/s.toml", "--output", "benchmarks/o.csv"];
    workspace.run(&args).exits_with(0);
    let longer = "a,8192,2026-07-01,unknown,,benchmarks/gone.csv\n";
    workspace.write(PATH, workspace.read(PATH) + longer);
    workspace.script(script);
    workspace
}

#[test]
fn explain_says_how_well_it_is_known() {
    let workspace = recorded(&Script::new());
    let ran = run(&workspace, &["explain", "a", "600"]).exits_with(0);
    assert!(
        ran.stdout
            .contains("\n  evidence: allocator: the output says `CUDA error: out of memory`\n"),
        "{ran}"
    );
    assert!(ran.stdout.contains("\n  cargo xtask oom-record confirm a\n"), "{ran}");
}

#[test]
fn confirm_launches_the_shortest_recorded_cell_once_and_prunes_what_it_disproves() {
    let workspace = recorded(&Script::new());
    let before = workspace.launches().len();
    let ran = run(&workspace, &["confirm", "a"]).exits_with(0);
    assert_eq!(workspace.launches()[before..], ["a 512"]);
    assert_eq!(workspace.read(PATH), "a,8192,2026-07-01,unknown,,benchmarks/gone.csv\n");
    for part in [
        "launching a at 512 tokens once, with runner `scripted`; recorded: a,512,",
        "oom-record: a ran at 512 tokens: 1 event removed\n",
        "the event at 8192 tokens stays; `confirm` again would launch that length\n",
    ] {
        assert!(ran.stderr.contains(part), "no `{part}` in {ran}");
    }
    assert!(ran.stdout.contains("\n-a,512,"), "{ran}");
    let notes = workspace.read_json_lines("benchmarks/.oom-confirm.jsonl");
    let events: Vec<&str> = notes.iter().map(|note| note["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["cell_launch", "cell_end"]);
    let command = notes[0]["command"].as_array().unwrap();
    let has = |name: &str, value: &str| {
        command.windows(2).any(|pair| pair[0] == name && pair[1] == value)
    };
    assert!(has("--max-tokens", "7"), "as the sweep ran it: {command:?}");
}

#[test]
fn confirm_keeps_what_runs_out_of_memory_again_and_what_it_cannot_decide() {
    let oom = Cell::new().runs_out_of_memory("std::bad_alloc\n");
    let workspace = recorded(&Script::new().cell(oom));
    let record = workspace.read(PATH);
    let ran = run(&workspace, &["confirm", "a"]).exits_with(0);
    assert!(
        ran.stderr.contains("confirmed: a ran out of memory at 512 tokens again: exit code 1"),
        "{ran}"
    );
    assert!(ran.stderr.contains("(evidence: allocator)"), "{ran}");
    let after = workspace.read(PATH);
    let new = after.strip_prefix(&record).unwrap();
    assert!(new.starts_with("a,512,"), "{new}");
    assert!(new.ends_with(",benchmarks/.oom-confirm.jsonl,oom-record confirm\n"), "{new}");
    let explained = run(&workspace, &["explain", "a", "512"]).stdout;
    assert!(
        explained.contains("evidence: allocator: the output says `std::bad_alloc` (C++)"),
        "{explained}"
    );

    workspace.script(&Script::new().cell(Cell::new().stderr("broken pipe\n").exit(3)));
    let ran = run(&workspace, &["confirm", "a"]).exits_with(1);
    assert!(
        ran.stderr.contains("this decides nothing, and the record is as it was: FAIL:bench"),
        "{ran}"
    );
    assert_eq!(workspace.read(PATH), after);
}

#[test]
fn confirm_may_be_limited_so_that_it_cannot_hurt_the_machine() {
    let workspace = recorded(&Script::new().cell(Cell::new().set("touch_mib", 2000)));
    let ran = run(&workspace, &["confirm", "a", "--cell-memory-limit-mb", "500"]).exits_with(0);
    assert!(ran.stderr.contains("with runner `scripted` and 500 MiB of address space"), "{ran}");
    assert!(ran.stderr.contains("memory allocation of 2097152000 bytes failed"), "{ran}");
}

#[test]
fn confirm_refuses_what_it_cannot_launch() {
    let workspace = recorded(&Script::new());
    let record = workspace.read(PATH) + "a+kv8,1,d,c,,s\ngone,1,d,c,,s\n";
    workspace.write(PATH, &record);
    let launches = workspace.launches().len();
    for (model, said) in [
        ("b", "error: the record holds no event of `b`"),
        ("a+kv8", "error: no journal says what the variant `kv8` is"),
        ("gone", "error: there is no model `gone` any more"),
    ] {
        let ran = run(&workspace, &["confirm", model]).exits_with(2);
        assert!(ran.stderr.contains(said), "{ran}");
    }
    assert_eq!(workspace.launches().len(), launches);
    assert_eq!(workspace.read(PATH), record);
}
