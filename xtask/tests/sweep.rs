//! `cargo xtask sweep` from outside: what it prints, refuses, writes and exits with. The promises
//! about memory and about what is on disk are in `scenarios.rs`.

use std::path::Path;
use std::process::Command;

use insta::assert_snapshot;

/// A workspace with models `a` and `b` and a scripted runner.
struct Workspace {
    folder: tempfile::TempDir,
}

/// How a run ended.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Workspace {
    fn new() -> Workspace {
        let workspace = Workspace { folder: tempfile::tempdir().unwrap() };
        workspace.write("Cargo.toml", "");
        workspace.write("bench-configs/models/a.toml", "");
        workspace.write("bench-configs/models/b.toml", "");
        for name in ["small", "longprompt", "other"] {
            workspace.write(
                &format!("bench-configs/sweep/{name}.toml"),
                "models = [\"a\", \"b\"]\nlengths = [512, 2048]\nrunner = \"scripted\"\n",
            );
        }
        workspace.write_runner("scripted", "report", "\"--report\", \"{report}\"");
        workspace.write_runner("text", "profile-text", "");
        workspace.write_runner("llama", "llama-bench-json", "");
        workspace.write("script.toml", "launch_log = \"launches.txt\"\n");
        workspace
    }

    fn write_runner(&self, name: &str, result: &str, more: &str) {
        let program = serde_json::to_string(env!("CARGO_BIN_EXE_xtask")).unwrap();
        self.write(
            &format!("bench-configs/runners/{name}.toml"),
            &format!(
                "result = \"{result}\"\ncommand = [{program}, \"scripted-runner\", \"--script\", \
                 \"script.toml\", \"--model\", \"{{model}}\", \"--prompt-tokens\", \
                 \"{{prompt_tokens}}\", {more}]\n"
            ),
        );
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn script(&self, cells: &str) {
        self.write("script.toml", &format!("launch_log = \"launches.txt\"\n{cells}"));
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap_or_default()
    }

    fn launches(&self) -> usize {
        self.read("launches.txt").lines().count()
    }

    fn sweep(&self, args: &[&str]) -> Ran {
        self.sweep_with(args, &[])
    }

    fn sweep_with(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("sweep")
            .args(args)
            .current_dir(self.path())
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("MLXCEL_BENCH_IGNORE_OOM_RECORD")
            .env_remove("MLXCEL_BENCH_FAKE_OOM")
            .env_remove("BENCH_MEM_OVERHEAD_FACTOR")
            .envs(env.iter().copied())
            .output()
            .unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Exit code, stdout and stderr with what changes from run to run replaced.
fn redacted(workspace: &Workspace, ran: &Ran) -> String {
    let text =
        format!("exit: {:?}\n--- stdout\n{}--- stderr\n{}", ran.code, ran.stdout, ran.stderr);
    let text = text.replace(&workspace.path().to_string_lossy().into_owned(), "[ROOT]");
    let mut result = String::new();
    for line in text.lines() {
        // Times of cells and the time that is left, both at the end of a line.
        let line = match line.split_once(" s) — ") {
            Some((start, end)) => {
                let start = start.rsplit_once('(').map_or(start, |(start, _)| start);
                let end = end.split(", ").filter(|part| !part.ends_with(" left"));
                format!("{start}([TIME]) — {}", end.collect::<Vec<_>>().join(", "))
            }
            None => line.to_owned(),
        };
        result.push_str(line.trim_end());
        result.push('\n');
    }
    result
}

#[test]
fn a_sweep_shows_each_cell_and_a_table() {
    let workspace = Workspace::new();
    workspace.script("[[cell]]\nmodel = \"b\"\nlen = 512\nstderr = \"broken pipe\\n\"\nexit = 3\n");
    let args = ["--config", "bench-configs/sweep/other.toml", "--output", "out.csv"];
    let ran = workspace.sweep_with(&args, &[("MLXCEL_BENCH_FAKE_OOM", "a:512")]);
    assert_snapshot!(redacted(&workspace, &ran), @r"
    exit: Some(1)
    --- stdout
    out.csv
    --- stderr
    sweep: writing `out.csv`
    [skip] a @ 512: SKIP:oom: faked — 1/4: 1 SKIP:oom
    [skip] a @ 2048: SKIP:oom_backstop: `a` ran out of memory at 512 tokens in this sweep — 2/4: 1 SKIP:oom, 1 SKIP:oom_backstop
    [fail] b @ 512: FAIL:bench: exit code 3: broken pipe ([TIME]) — 3/4: 1 FAIL:bench, 1 SKIP:oom, 1 SKIP:oom_backstop
    [done] b @ 2048: prefill 102400.00 tok/s, decode 100.00 tok/s ([TIME]) — 4/4: 1 FAIL:bench, 1 SKIP:oom, 1 SKIP:oom_backstop, 1 measured
    model         512               2048
    a        SKIP:oom  SKIP:oom_backstop
    b      FAIL:bench       100.00 tok/s
    ");
}

#[test]
fn the_list_says_what_each_cell_would_do_and_changes_nothing() {
    let workspace = Workspace::new();
    workspace.write("benchmarks/.oom-record", "b,2048,2026-07-03,abc1234,,old.csv\n");
    let args = ["--config", "bench-configs/sweep/other.toml", "--list", "--fake-oom", "a:512"];
    let ran = workspace.sweep(&args);
    assert_snapshot!(redacted(&workspace, &ran), @r"
    exit: Some(0)
    --- stdout
    a      512  SKIP:oom           faked
    a     2048  SKIP:oom_backstop  `a` ran out of memory at 512 tokens in this sweep
    b      512  run                nothing speaks against it
    b     2048  SKIP:oom_record    the OOM record holds `b,2048,2026-07-03,abc1234,,old.csv`
    --- stderr
    ");
    assert_eq!(workspace.launches(), 0);
    assert_eq!(std::fs::read_dir(workspace.path().join("benchmarks")).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_run_is_refused_with_the_way_out() {
    let workspace = Workspace::new();
    let config = ["--config", "bench-configs/sweep/other.toml"];
    let refused = |args: &[&str]| {
        let ran = workspace.sweep(&[&config, args].concat());
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        ran.stderr
    };
    assert_snapshot!(refused(&["--lengths", "512 2048 512"]), @"error: these prompt lengths are there more than once: 512");
    assert_snapshot!(refused(&["--models", "a b a"]), @r"
    error: these models are there more than once: `a` (`bench-configs/models/a.toml`, `bench-configs/models/a.toml`)
    hint: name each model once; a glob may stand for one that is named as well
    ");
    assert_snapshot!(refused(&["--runner", "scriptd"]), @r"
    error: no runner `scriptd`
    hint: the runners in bench-configs/runners/ are llama, scripted, text
    ");
    assert_snapshot!(refused(&["--fake-oom", "a:513"]), @r"
    error: fake `a:513` names no cell of the grid
    hint: the form is MODEL:LEN; the models are a, b, the lengths 512, 2048
    ");
    assert_snapshot!(refused(&["--lengths", "2k"]), @"error: `2k` is not a prompt length");
    assert_snapshot!(refused(&["--resume", "none.csv"]).replace(&workspace.path().to_string_lossy().into_owned(), "[ROOT]"), @r"
    error: cannot read `[ROOT]/none.csv.journal.jsonl`
      caused by: No such file or directory (os error 2)
    hint: --resume takes the CSV of a sweep, whose journal lies beside it
    ");
    assert_eq!(workspace.launches(), 0);
}

#[test]
fn a_runner_whose_program_is_not_there_stops_before_the_first_cell() {
    let workspace = Workspace::new();
    workspace.write(
        "bench-configs/runners/gone.toml",
        "result = \"profile-text\"\ncommand = [\"no-such-program\", \"{model}\", \
         \"{prompt_tokens}\"]\n",
    );
    let ran = workspace.sweep(&["--config", "bench-configs/sweep/other.toml", "--runner", "gone"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("runner `gone`: no program `no-such-program`"), "{}", ran.stderr);
    assert!(!workspace.path().join("benchmarks").join("out.csv").exists());
}

#[test]
fn the_default_is_chosen_by_the_machine_and_said() {
    let workspace = Workspace::new();
    let ran = workspace.sweep(&["--list"]);
    assert_eq!(ran.code, Some(0));
    let chosen = ran.stderr.lines().next().unwrap_or_default();
    assert!(chosen.starts_with("sweep: bench-configs/sweep/"), "{chosen}");
    assert!(chosen.contains(".toml, because "), "{chosen}");
}

#[test]
fn an_automatic_name_gets_a_number_where_it_is_taken() {
    let workspace = Workspace::new();
    let args = ["--config", "bench-configs/sweep/other.toml", "--models", "a"];
    let names: Vec<String> =
        (0..3).map(|_| workspace.sweep(&args).stdout.trim().to_owned()).collect();
    assert!(names[0].starts_with("benchmarks/") && names[0].contains("_other_"), "{names:?}");
    let base = names[0].trim_end_matches(".csv");
    assert_eq!(names[1..], [format!("{base}-2.csv"), format!("{base}-3.csv")]);
    for name in names {
        assert_eq!(workspace.read(&name).lines().count(), 3, "{name}");
    }
}

#[test]
fn a_changed_sweep_is_not_resumed() {
    let workspace = Workspace::new();
    let args = ["--config", "bench-configs/sweep/other.toml", "--output", "out.csv"];
    assert_eq!(workspace.sweep(&args).code, Some(0));
    let before = workspace.read("out.csv");

    let ran = workspace.sweep(&["--resume", "out.csv", "--max-tokens", "16"]);
    assert_eq!(ran.code, Some(2));
    for part in [
        "the settings are not those of the sweep",
        "-  \"max_tokens\": 32,",
        "+  \"max_tokens\": 16,",
        "hint: undo the change",
    ] {
        assert!(ran.stderr.contains(part), "no `{part}` in {}", ran.stderr);
    }

    workspace.write(
        "bench-configs/sweep/other.toml",
        "models = [\"a\", \"b\"]\nlengths = [512, 2048, 8192]\nrunner = \"scripted\"\n",
    );
    let ran = workspace.sweep(&["--resume", "out.csv"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("+    8192"), "{}", ran.stderr);
    assert_eq!(workspace.read("out.csv"), before);
    assert_eq!(workspace.launches(), 4);
}

#[test]
fn an_edited_csv_is_not_gone_on_with_and_a_short_one_is_completed() {
    let workspace = Workspace::new();
    let args = ["--config", "bench-configs/sweep/other.toml", "--output", "out.csv"];
    assert_eq!(workspace.sweep(&args).code, Some(0));
    let whole = workspace.read("out.csv");

    workspace.write("out.csv", &whole[..whole.len() - 20]);
    assert_eq!(workspace.sweep(&["--resume", "out.csv"]).code, Some(0));
    assert_eq!(workspace.read("out.csv"), whole);

    let edited = whole.replacen(",512,32,", ",512,33,", 1);
    workspace.write("out.csv", &edited);
    let ran = workspace.sweep(&["--resume", "out.csv"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("out.csv`, line 2: not what its journal says"), "{}", ran.stderr);
    assert_eq!(workspace.read("out.csv"), edited);
    assert_eq!(workspace.launches(), 4);
}

#[test]
fn an_address_space_limit_makes_a_real_out_of_memory() {
    let workspace = Workspace::new();
    workspace.script("[[cell]]\nlen = 2048\ntouch_mib = 2000\n");
    let args = [
        "--config",
        "bench-configs/sweep/other.toml",
        "--output",
        "out.csv",
        "--models",
        "a",
        "--cell-memory-limit-mb",
        "500",
    ];
    let ran = workspace.sweep(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("memory allocation of 2097152000 bytes failed"), "{}", ran.stderr);
    let record = workspace.read("benchmarks/.oom-record");
    let fields: Vec<&str> = record.trim().split(',').collect();
    assert_eq!((fields[0], fields[1], fields[3], fields[5]), ("a", "2048", "unknown", "out.csv"));
    assert!(fields[4].parse::<u64>().is_ok_and(|peak| peak > 0), "{record}");
}

#[test]
fn other_runners_are_read_by_their_output() {
    let workspace = Workspace::new();
    let row = |name: &str| workspace.read(name).lines().nth(1).unwrap_or_default().to_owned();
    let config = "bench-configs/sweep/other.toml";
    let run = |runner: &str, csv: &str| {
        let ran = workspace.sweep(&[
            "--config",
            config,
            "--models",
            "a",
            "--lengths",
            "512",
            "--runner",
            runner,
            "--output",
            csv,
        ]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    run("text", "text.csv");
    assert!(
        row("text.csv")
            .starts_with("a,bench-configs/models/a.toml,512,32,20.00,25600.00,310.00,100.00,"),
        "{}",
        row("text.csv")
    );

    let json = r#"[{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ns": 1000000000, "avg_ts": 512.0}, {"n_prompt": 0, "n_gen": 32, "n_depth": 512, "avg_ns": 500000000, "avg_ts": 64.0}]"#;
    workspace.script(&format!("[[cell]]\nstdout = '''{json}'''\nprofile_lines = false\n"));
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
    let workspace = Workspace::new();
    workspace.write("benchmarks/.oom-record", "a,1,2026-07-03,abc1234,,old.csv\n");
    let args =
        ["--config", "bench-configs/sweep/other.toml", "--models", "a", "--output", "out.csv"];
    let ran = workspace.sweep_with(&args, &[("MLXCEL_BENCH_IGNORE_OOM_RECORD", "maybe")]);
    assert!(ran.stderr.contains("`maybe` is neither on nor off; the OOM record stays in force"));
    assert_eq!(workspace.launches(), 0);
}

#[test]
fn tracked_files_tell_nothing_of_the_machine_but_its_hardware() {
    let workspace = Workspace::new();
    workspace.script("[[cell]]\nconsults = [\"ARC_HERE\"]\n");
    let config = workspace.path().join("bench-configs/sweep/other.toml");
    let output = workspace.path().join("benchmarks/out.csv");
    let here = workspace.path().to_string_lossy().into_owned();
    let args = ["--config", &config.to_string_lossy(), "--output", &output.to_string_lossy()];
    let ran = workspace.sweep_with(&args, &[("ARC_HERE", here.as_str())]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for file in ["benchmarks/out.csv", "benchmarks/out.csv.journal.jsonl"] {
        let text = workspace.read(file);
        assert!(!text.is_empty() && !text.contains(&here), "{file}: {text}");
    }
    let journal = workspace.read("benchmarks/out.csv.journal.jsonl");
    let events: Vec<String> = journal
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|entry| entry["event"].as_str().unwrap().to_owned())
        .collect();
    let cell = ["cell_launch", "cell_end"];
    let expected = [&["sweep_start"][..], &cell, &cell, &cell, &cell, &["sweep_end"]].concat();
    assert_eq!(events, expected);
}

#[test]
fn the_help_teaches_record_override_and_staleness() {
    let ran = Workspace::new().sweep(&["--help"]);
    assert_eq!(ran.code, Some(0));
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

#[test]
fn a_pattern_passes_a_name_that_is_not_utf8() {
    use std::os::unix::ffi::OsStrExt as _;
    let workspace = Workspace::new();
    workspace.write("models/good/w.gguf", "w");
    let strange = workspace.path().join("models").join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    if std::fs::create_dir(&strange).is_err() {
        eprintln!("skipped: this file system takes no names that are not UTF-8");
        return;
    }
    std::fs::write(strange.join("w.gguf"), "w").unwrap();
    let args = ["--config", "bench-configs/sweep/other.toml", "--models", "models/*", "--list"];
    let ran = workspace.sweep(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
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
    let workspace = Workspace::new();
    workspace.write("models/a b/w.gguf", "w");
    let args = ["--config", "bench-configs/sweep/other.toml", "--lengths", "512", "--list"];
    let list = |models: &[&str]| {
        let models = models.iter().flat_map(|value| ["--models", value]);
        workspace.sweep(&args.into_iter().chain(models).collect::<Vec<&str>>())
    };
    assert_eq!(planned(&list(&["'a b' b", "a"])), ["a b 512", "b 512", "a 512"]);
    assert_eq!(planned(&list(&["a b"])), ["a 512", "b 512"]);
    let open = list(&["'a b"]);
    assert_eq!(open.code, Some(2));
    assert_eq!(open.stderr, "error: --models: a quote in `'a b` is not closed\n");
}
