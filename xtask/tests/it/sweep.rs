//! `cargo xtask sweep` from outside: what it prints, refuses, writes and exits with. The promises
//! about memory and about what is on disk are in `scenarios.rs`.

use testkit::{Cell, Ran, Redaction, Script, Workspace, assert_shown};

use crate::XTASK;

const CONFIG: [&str; 2] = ["--config", "bench-configs/sweep/other.toml"];

/// A workspace with models `a` and `b` and the scripted runner.
fn workspace() -> Workspace {
    let workspace = Workspace::new(XTASK, &["a", "b"]);
    for name in ["small", "longprompt", "other"] {
        workspace.write(
            format!("bench-configs/sweep/{name}.toml"),
            "models = [\"a\", \"b\"]\nlengths = [512, 2048]\nrunner = \"scripted\"\n",
        );
    }
    workspace.write_scripted_runner("scripted", "report");
    workspace.write_scripted_runner("text", "profile-text");
    workspace.write_scripted_runner("llama", "llama-bench-json");
    workspace.script(&Script::new());
    workspace
}

fn sweep(workspace: &Workspace, args: &[&str]) -> Ran {
    workspace.run(&[&["sweep"], args].concat())
}

/// A sweep of `other` to `out.csv`.
fn sweep_other(workspace: &Workspace, args: &[&str]) -> Ran {
    sweep(workspace, &[&CONFIG, &["--output", "out.csv"], args].concat())
}

#[test]
fn a_sweep_shows_each_cell_and_a_table() {
    let workspace = workspace();
    let broken = Cell::new().model("b").len(512).stderr("broken pipe\n").exit(3);
    workspace.script(&Script::new().cell(broken));
    let args = [&["sweep"], &CONFIG[..], &["--output", "out.csv"]].concat();
    let ran = workspace.command(&args).env("MLXCEL_BENCH_FAKE_OOM", "a:512").run();
    assert_shown!(Redaction::new(&workspace).durations(), ran);
}

#[test]
fn the_list_says_what_each_cell_would_do_and_changes_nothing() {
    let workspace = workspace();
    workspace.write("benchmarks/.oom-record", "b,2048,2026-07-03,abc1234,,old.csv\n");
    let ran = sweep(&workspace, &[&CONFIG[..], &["--list", "--fake-oom", "a:512"]].concat());
    assert_shown!(Redaction::new(&workspace), ran);
    assert_eq!(workspace.launches().len(), 0);
    assert_eq!(workspace.names("benchmarks"), [".oom-record"]);
}

#[test]
fn what_cannot_be_run_is_refused_with_the_way_out() {
    let workspace = workspace();
    let mut shown = String::new();
    for args in [
        ["--lengths", "512 2048 512"],
        ["--models", "a b a"],
        ["--runner", "scriptd"],
        ["--fake-oom", "a:513"],
        ["--lengths", "2k"],
        ["--resume", "none.csv"],
    ] {
        let ran = sweep(&workspace, &[&CONFIG[..], &args].concat()).exits_with(2);
        shown += &format!("{}\n{ran}\n", args.join(" "));
    }
    assert_shown!(Redaction::new(&workspace), shown);
    assert_eq!(workspace.launches().len(), 0);
}

#[test]
fn a_runner_whose_program_is_not_there_stops_before_the_first_cell() {
    let workspace = workspace();
    workspace.write(
        "bench-configs/runners/gone.toml",
        "result = \"profile-text\"\ncommand = [\"no-such-program\", \"{model}\", \
         \"{prompt_tokens}\"]\n",
    );
    let ran = sweep(&workspace, &[CONFIG[0], CONFIG[1], "--runner", "gone"]).exits_with(2);
    assert!(
        ran.stderr.contains("runner `gone`: program `no-such-program` not found"),
        "{}",
        ran.stderr
    );
    assert!(workspace.names("benchmarks").iter().all(|name| !name.ends_with(".csv")));
}

#[test]
fn the_default_is_chosen_by_the_machine_and_said() {
    let workspace = workspace();
    let ran = sweep(&workspace, &["--list"]).exits_with(0);
    let chosen = ran.stderr.lines().next().unwrap_or_default();
    assert!(chosen.starts_with("sweep: bench-configs/sweep/"), "{chosen}");
    assert!(chosen.contains(".toml, because "), "{chosen}");
}

#[test]
fn an_automatic_name_gets_a_number_where_it_is_taken() {
    let workspace = workspace();
    let args = [CONFIG[0], CONFIG[1], "--models", "a"];
    let names: Vec<String> =
        (0..3).map(|_| sweep(&workspace, &args).stdout.trim().to_owned()).collect();
    assert!(names[0].starts_with("benchmarks/") && names[0].contains("_other_"), "{names:?}");
    let base = names[0].trim_end_matches(".csv");
    assert_eq!(names[1..], [format!("{base}-2.csv"), format!("{base}-3.csv")]);
    for name in names {
        assert_eq!(workspace.read(&name).lines().count(), 3, "{name}");
    }
}

#[test]
fn a_changed_sweep_is_not_resumed() {
    let workspace = workspace();
    sweep_other(&workspace, &[]).exits_with(0);
    let before = workspace.read("out.csv");

    let ran = sweep(&workspace, &["--resume", "out.csv", "--max-tokens", "16"]).exits_with(2);
    for part in [
        "error: rows from before and after these changes could not be compared:",
        "\n  max_tokens: 32 → 16\n",
        "hint: undo the change",
    ] {
        assert!(ran.stderr.contains(part), "no `{part}` in {}", ran.stderr);
    }

    workspace.write(
        "bench-configs/sweep/other.toml",
        "models = [\"a\", \"b\"]\nlengths = [512, 2048, 8192]\nrunner = \"scripted\"\n",
    );
    let ran = sweep(&workspace, &["--resume", "out.csv"]).exits_with(2);
    assert!(ran.stderr.contains("lengths: [512, 2048] → [512, 2048, 8192]"), "{}", ran.stderr);
    assert_eq!(workspace.read("out.csv"), before);
    assert_eq!(workspace.launches().len(), 4);
}

#[test]
fn what_leaves_rows_comparable_is_taken_over_with_a_note() {
    let workspace = workspace();
    sweep_other(&workspace, &["--timeout", "60"]).exits_with(0);
    // Comments and the order of keys say nothing.
    let runner = workspace.read("bench-configs/runners/scripted.toml");
    let mut lines: Vec<&str> = runner.lines().rev().collect();
    lines.insert(0, "# the same");
    workspace.write("bench-configs/runners/scripted.toml", lines.join("\n"));
    let changed = ["--resume", "out.csv", "--timeout", "90", "--cooldown", "1"];
    let ran = sweep(&workspace, &changed).exits_with(0);
    for note in [
        "note: changed since the last start: timeout_s: 60 → 90",
        "note: changed since the last start: cooldown_s: 0 → 1",
    ] {
        assert!(ran.stderr.contains(note), "no `{note}` in {}", ran.stderr);
    }
    let starts: Vec<_> = workspace
        .read_json_lines("out.csv.journal.jsonl")
        .into_iter()
        .filter(|entry| entry["event"] == "sweep_start")
        .collect();
    assert_eq!(starts[1]["notes"].as_array().unwrap().len(), 3, "{}", starts[1]["notes"]);
    // A time limit that shrank would fail cells that ran before.
    let ran = sweep(&workspace, &["--resume", "out.csv", "--timeout", "30"]).exits_with(2);
    assert!(ran.stderr.contains("timeout_s: 90 → 30"), "{}", ran.stderr);
}

#[test]
fn a_recorded_model_is_not_launched_and_an_oom_of_its_own_is_recorded_once() {
    let workspace = workspace();
    workspace.write("benchmarks/.oom-record", "a,512,2026-07-03,abc1234,,old.csv\n");
    let oom = Cell::new().model("b").len(2048).runs_out_of_memory("cudaErrorMemoryAllocation\n");
    workspace.script(&Script::new().cell(oom));
    sweep_other(&workspace, &[]).exits_with(0);
    assert_eq!(workspace.launches(), ["b 512", "b 2048"]);
    let record = workspace.read("benchmarks/.oom-record");
    let lines: Vec<&str> = record.lines().collect();
    assert_eq!(lines.len(), 2, "{record}");
    assert!(lines[1].starts_with("b,2048,") && lines[1].ends_with(",out.csv"), "{record}");
}

#[test]
fn an_edited_csv_is_not_gone_on_with_and_a_short_one_is_completed() {
    let workspace = workspace();
    sweep_other(&workspace, &[]).exits_with(0);
    let whole = workspace.read("out.csv");

    workspace.write("out.csv", &whole[..whole.len() - 20]);
    sweep(&workspace, &["--resume", "out.csv"]).exits_with(0);
    assert_eq!(workspace.read("out.csv"), whole);

    let edited = whole.replacen(",512,32,", ",512,33,", 1);
    workspace.write("out.csv", &edited);
    let ran = sweep(&workspace, &["--resume", "out.csv"]).exits_with(2);
    assert!(ran.stderr.contains("out.csv`, line 2 differs from its journal"), "{}", ran.stderr);
    assert_eq!(workspace.read("out.csv"), edited);
    assert_eq!(workspace.launches().len(), 4);
}

#[test]
fn an_address_space_limit_makes_a_real_out_of_memory() {
    let workspace = workspace();
    workspace.script(&Script::new().cell(Cell::new().len(2048).set("touch_mib", 2000)));
    let ran =
        sweep_other(&workspace, &["--models", "a", "--cell-memory-limit-mb", "500"]).exits_with(0);
    assert!(ran.stderr.contains("memory allocation of 2097152000 bytes failed"), "{}", ran.stderr);
    let record = workspace.read("benchmarks/.oom-record");
    let fields: Vec<&str> = record.trim().split(',').collect();
    assert_eq!((fields[0], fields[1], fields[3], fields[5]), ("a", "2048", "unknown", "out.csv"));
    assert!(fields[4].parse::<u64>().is_ok_and(|peak| peak > 0), "{record}");
}

#[test]
fn other_runners_are_read_by_their_output() {
    let workspace = workspace();
    let row = |name: &str| workspace.read(name).lines().nth(1).unwrap_or_default().to_owned();
    let run = |runner: &str, csv: &str| {
        let cell = ["--models", "a", "--lengths", "512", "--runner", runner, "--output", csv];
        sweep(&workspace, &[&CONFIG[..], &cell].concat()).exits_with(0);
    };
    run("text", "text.csv");
    assert!(
        row("text.csv")
            .starts_with("a,bench-configs/models/a.toml,512,32,20.00,25600.00,310.00,100.00,"),
        "{}",
        row("text.csv")
    );

    let json = r#"[{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ns": 1000000000, "avg_ts": 512.0}, {"n_prompt": 0, "n_gen": 32, "n_depth": 512, "avg_ns": 500000000, "avg_ts": 64.0}]"#;
    workspace
        .script(&Script::new().cell(Cell::new().set("stdout", json).set("profile_lines", false)));
    run("llama", "llama.csv");
    assert!(
        row("llama.csv")
            .starts_with("a,bench-configs/models/a.toml,512,32,1000.00,512.00,500.00,64.00,"),
        "{}",
        row("llama.csv")
    );
}

#[test]
fn a_variable_that_is_neither_on_nor_off_leaves_the_record_in_force() {
    let workspace = workspace();
    workspace.write("benchmarks/.oom-record", "a,1,2026-07-03,abc1234,,old.csv\n");
    let args = ["sweep", CONFIG[0], CONFIG[1], "--models", "a", "--output", "out.csv"];
    let ran = workspace.command(&args).env("MLXCEL_BENCH_IGNORE_OOM_RECORD", "maybe").run();
    assert!(ran.stderr.contains("`maybe` is neither on nor off; the OOM record remains in force"));
    assert_eq!(workspace.launches().len(), 0);
}

#[test]
fn tracked_files_tell_nothing_of_the_machine_but_its_hardware() {
    let workspace = workspace();
    workspace.script(&Script::new().cell(Cell::new().consults("ARC_HERE")));
    let config = workspace.path("bench-configs/sweep/other.toml");
    let output = workspace.path("benchmarks/out.csv");
    let here = workspace.root().to_string_lossy().into_owned();
    let (config, output) = (config.to_string_lossy(), output.to_string_lossy());
    let args = ["sweep", "--config", &config, "--output", &output];
    workspace.command(&args).env("ARC_HERE", &here).run().exits_with(0);
    for file in ["benchmarks/out.csv", "benchmarks/out.csv.journal.jsonl"] {
        let text = workspace.read(file);
        assert!(!text.is_empty() && !text.contains(&here), "{file}: {text}");
    }
    let journal = workspace.read_json_lines("benchmarks/out.csv.journal.jsonl");
    let events: Vec<&str> = journal.iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    let cell = ["cell_launch", "cell_end"];
    let expected = [&["sweep_start"][..], &cell, &cell, &cell, &cell, &["sweep_end"]].concat();
    assert_eq!(events, expected);
}

#[test]
fn the_help_teaches_record_override_and_staleness() {
    let ran = workspace().run(&["sweep", "--help"]).exits_with(0);
    for part in [
        "model,prompt_target_len,date,commit,peak_bytes,source_csv",
        "MLXCEL_BENCH_IGNORE_OOM_RECORD=1",
        "SKIP:oom_backstop",
        "chunked prefill",
        "oom-record prune --fixed-by REV",
        "cargo xtask sweep --resume",
    ] {
        assert!(ran.stdout.contains(part), "no `{part}` in\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("--fake-cell"));
}

// Other systems take no such names.
#[cfg(target_os = "linux")]
#[test]
#[allow(clippy::print_stderr)]
fn a_pattern_passes_a_name_that_is_not_utf8() {
    use std::os::unix::ffi::OsStrExt as _;
    let workspace = workspace();
    workspace.write("models/good/w.gguf", "w");
    let strange = workspace.path("models").join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    std::fs::create_dir(&strange).unwrap();
    std::fs::write(strange.join("w.gguf"), "w").unwrap();
    let ran = sweep(&workspace, &[&CONFIG[..], &["--models", "models/*", "--list"]].concat())
        .exits_with(0);
    assert_eq!(planned(&ran), ["good 512", "good 2048"]);
    assert_eq!(ran.stderr, "warning: skipping `models/bad\u{fffd}`, whose name is not UTF-8\n");
}

/// The cells of a plan: model and length.
fn planned(ran: &Ran) -> Vec<String> {
    let cell = |line: &str| {
        let (cell, _) = line.split_once("  run").unwrap();
        let (model, len) = cell.rsplit_once(' ').unwrap();
        format!("{} {len}", model.trim())
    };
    ran.stdout.lines().map(cell).collect()
}

#[test]
fn models_are_named_in_several_values_and_with_blanks() {
    let workspace = workspace();
    workspace.write("models/a b/w.gguf", "w");
    let list = |models: &[&str]| {
        let models = models.iter().flat_map(|value| ["--models", value]);
        let args = CONFIG.into_iter().chain(["--lengths", "512", "--list"]).chain(models);
        sweep(&workspace, &args.collect::<Vec<&str>>())
    };
    assert_eq!(planned(&list(&["'a b' b", "a"])), ["a b 512", "b 512", "a 512"]);
    assert_eq!(planned(&list(&["a b"])), ["a 512", "b 512"]);
    let open = list(&["'a b"]).exits_with(2);
    assert_eq!(open.stderr, "error: --models: a quote in `'a b` is not closed\n");
}
