//! What `cargo xtask ab` shows and refuses: the environment, pins, definitions elsewhere, messages.

use testkit::{Cell, Script};

use crate::ab::{Lab, cell, feature, featured, leg, verdict};

#[test]
fn switches_of_the_shell_are_named_in_the_verdict_and_resuming_under_others_is_refused() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    let args = ["--env", "FEATURE=1", "--pairs", "6"];
    let shell = |command: testkit::Command| {
        command
            .env("RAYON_NUM_THREADS", "1")
            .env("TG1", "0")
            .env("SOME_TOKEN", "abc")
            .env("SHLVL", "7")
    };
    let ran = shell(lab.ab_command(&args)).run().exits_with(0);
    assert!(
        ran.stdout.contains("; inherited from the shell: RAYON_NUM_THREADS=1\n"),
        "{}",
        ran.stdout
    );
    assert!(lab.report().contains("switches in it: RAYON_NUM_THREADS=1\n"), "{}", lab.report());
    let start = &lab.samples()[0]["inherited"];
    assert_eq!(start["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(start["variables"]["TG1"], "0");
    assert_eq!(start["variables"]["SOME_TOKEN"], "(not shown)");
    assert!(start["variables"]["SHLVL"].is_null() && start["variables"]["FEATURE"].is_null());

    let refused = shell(lab.resume()).env("TG1", "1").run().exits_with(2);
    assert!(
        refused.stderr.contains("cannot resume: TG1 was `0` and is now `1`\n"),
        "{}",
        refused.stderr
    );
    let launches = lab.launches().len();
    shell(lab.resume()).env("SHLVL", "8").run().exits_with(0);
    assert_eq!(lab.launches().len(), launches, "another shell of the same kind goes on");
}

#[test]
fn pins_of_the_definition_are_watched_and_what_the_command_writes_is_not() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    let edit = "echo x >> out.log\n\
                if [ $(wc -l < launches.txt 2>/dev/null || echo 0) -ge 4 ]; then echo y > lib/deep/b.pl; fi";
    lab.write_scripted_program("runner.sh", "script.toml", edit);
    lab.write("lib/a.pl", "1");
    lab.write("lib/deep/b.pl", "1");
    lab.write("out.log", "");
    let define = |lines: &str| {
        lab.write_runner("scripted", "report", &["/usr/bin/env", "LOG=out.log", "./runner.sh"]);
        let path = "bench-configs/runners/scripted.toml";
        let text = lab.read(path);
        lab.write(path, format!("{text}{lines}"));
    };
    let args = ["--env", "FEATURE=1", "--pairs", "6"];

    define("pins = [\"none/*.pl\"]\n");
    let ran = lab.ab(&args).exits_with(2);
    assert!(ran.stderr.contains("`pins`: `none/*.pl` is no file"), "{}", ran.stderr);

    define("");
    let ran = lab.ab(&args).exits_with(2);
    assert!(ran.stderr.contains("name it in `writes`"), "{}", ran.stderr);
    assert_eq!(lab.launches().len(), 1);
    std::fs::remove_dir_all(lab.path("benchmarks/ab")).unwrap();

    define("pins = [\"lib/**/*.pl\"]\nwrites = [\"out.log\"]\n");
    let ran = lab.ab(&args).exits_with(2);
    assert!(ran.stderr.contains("error: the pinned file"), "{}", ran.stderr);
    assert!(ran.stderr.contains("lib/deep/b.pl` changed during the run"), "{}", ran.stderr);
    let report = lab.report();
    let pinned = report.lines().find(|line| line.contains("; pinned: ")).unwrap();
    for part in ["`lib/a.pl` ", "`lib/deep/b.pl` "] {
        assert!(pinned.contains(part), "{part}: {pinned}");
    }
    assert!(!pinned.contains("out.log"), "{pinned}");
}

#[test]
fn a_python_module_is_pinned_with_its_package() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    lab.write("engine_py/__init__.py", "");
    lab.write("engine_py/kernel.py", "x = 1");
    let path = "bench-configs/runners/scripted.toml";
    let text = lab.read(path);
    lab.write(path, format!("{text}pins = [\"python:engine_py\"]\n"));
    let args = ["--env", "FEATURE=1", "--pairs", "6"];
    lab.ab(&args).exits_with(0);
    let report = lab.report();
    assert!(report.contains("`engine_py/kernel.py` "), "{report}");
    lab.write("engine_py/kernel.py", "x = 2");
    let refused = lab.resume().run().exits_with(2);
    assert!(refused.stderr.contains("`engine_py/kernel.py` was "), "{}", refused.stderr);
}

#[test]
fn a_definition_outside_the_checkout_is_resumed_with_config_if_its_hash_agrees() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    let outside = tempfile::tempdir().unwrap();
    let definition = outside.path().join("def.toml");
    let text = lab.read("bench-configs/ab/default.toml");
    std::fs::write(&definition, &text).unwrap();
    let path = definition.to_str().unwrap();
    lab.ab(&["--config", path, "--env", "FEATURE=1", "--pairs", "6"]).exits_with(0);
    for name in ["report.md", "result.json"] {
        let written = lab.read(lab.folder().join(name));
        assert!(written.contains("def.toml") && !written.contains("TMPDIR"), "{written}");
    }
    let refused = lab.resume().run().exits_with(2);
    assert!(refused.stderr.contains("hint: give --config PATH again"), "{}", refused.stderr);
    lab.resume().args(["--config", path]).run().exits_with(0);
    std::fs::write(&definition, format!("{text}# other\n")).unwrap();
    let refused = lab.resume().args(["--config", path]).run().exits_with(2);
    assert!(refused.stderr.contains("the comparison's definition was"), "{}", refused.stderr);
}

#[test]
fn the_result_is_on_stdout_and_quiet_says_nothing_of_the_progress() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    let args = ["--env", "FEATURE=1", "--pairs", "6", "--gate", "decode_tok_s >= 1%"];
    let ran = lab.ab(&args).exits_with(0);
    for part in
        ["test against base: faster", "gate `decode_tok_s >= 1%` on test: passed: ", "note: "]
    {
        assert!(ran.stdout.contains(part) && !ran.stderr.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(
        ran.stderr.contains("block 6: ") && ran.stderr.contains("ab: wrote `"),
        "{}",
        ran.stderr
    );
    let quiet = lab.ab(&[&args[..], &["--quiet"]].concat()).exits_with(0);
    assert_eq!(quiet.stderr, "");
    assert!(quiet.stdout.contains("test against base: faster"), "{}", quiet.stdout);
}

#[test]
fn rows_without_values_are_hidden() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    lab.write_runner("scripted", "profile-text", &["./runner.sh"]);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(0);
    assert!(ran.stdout.contains("| tok/s "), "{}", ran.stdout);
    for row in ["| driver allocs per step ", "| MiB/token ", "| memory "] {
        assert!(!ran.stdout.contains(row), "{row}: {}", ran.stdout);
    }
}

#[test]
fn two_legs_that_the_program_takes_for_the_same_are_named_as_one() {
    let reading = |value: &str, parsed: &str| {
        Cell::new().overlay(&format!(
            "environment = [{{ name = \"FEATURE\", raw = {value}, parsed = \"{parsed}\" }}]"
        ))
    };
    let lab = Lab::new(
        Script::new()
            .cell(reading("\"0\"", "off").env("FEATURE", "0"))
            .cell(reading("\"false\"", "off").env("FEATURE", "false"))
            .cell(Cell::new().overlay("environment = [{ name = \"FEATURE\", parsed = \"on\" }]")),
    );
    let legs = ["--leg", "zero:FEATURE=0", "--leg", "false:FEATURE=false", "--pairs", "6"];
    let ran = lab.ab(&legs).exits_with(0);
    let said = "note: zero and false had the same effect: they are one leg, measured twice";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
}

#[test]
fn a_variable_that_is_never_consulted_is_not_taken_for_itself() {
    let lab = Lab::new(Script::new().cell(Cell::new().consults("OTHER")));
    let ran = lab.ab(&["--env", "ARC_CANDLE_ALLOC_CACHE=0"]).exits_with(1);
    assert!(ran.stdout.contains("never consulted ARC_CANDLE_ALLOC_CACHE"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("did you mean ARC_CANDLE_ALLOC_CACHE?"), "{}", ran.stdout);
}

#[test]
fn a_leg_that_exits_with_a_code_or_takes_too_long_says_so() {
    let lab = Lab::new(Script::new().cell(featured().set("exit", 3)).cell(cell()));
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(1);
    assert!(ran.stdout.contains("failed (FAIL:bench) in block 1: exit code 3"), "{}", ran.stdout);

    let lab = Lab::new(Script::new().cell(featured().set("sleep_ms", 60_000)).cell(cell()));
    let path = "bench-configs/ab/default.toml";
    let text = lab.read(path);
    lab.write(path, format!("{text}timeout_s = 1.0\n"));
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(1);
    assert!(ran.stdout.contains("timed out (FAIL:timeout) in block 1"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("signal"), "{}", ran.stdout);
}

#[test]
fn a_faked_oom_serves_comparisons() {
    let lab = Lab::new(Script::new().cell(cell()));
    let args = ["--env", "FEATURE=1", "--pairs", "6"];
    let fake = |cells: &str| lab.ab_command(&args).env("MLXCEL_BENCH_FAKE_OOM", cells).run();
    fake("m:128").exits_with(1);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "inconclusive");
    assert_eq!(leg(&result, "base")["failure"]["classification"], "SKIP:oom");
    assert!(lab.launches().is_empty());
    fake("m:256").exits_with(2);
}

#[test]
fn commas_in_values_and_turned_operators() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    lab.ab(&["--leg", "x:LIST=1,2,FEATURE=1", "--pairs", "6"]);
    let launch = lab.samples().into_iter().find(|event| event["leg"] == "x").unwrap();
    assert_eq!(launch["environment"]["LIST"], "1,2");
    assert_eq!(launch["environment"]["FEATURE"], "1");
    let ran = lab.ab(&["--env", "FEATURE=1", "--gate", "decode_tok_s => 1%"]).exits_with(2);
    assert!(ran.stderr.contains("did you mean `>=`?"), "{}", ran.stderr);
    let help = lab.ab(&["--help"]).exits_with(0).stdout;
    let ran = lab.ab(&["--env", "FEATURE=1", "--gate", "none >= 1"]).exits_with(2);
    let known = ran.stderr.split("the metrics are ").nth(1).unwrap().trim();
    assert!(known.split(", ").count() >= 10, "{known}");
    for name in known.split(", ") {
        assert!(help.contains(name), "{name} is not in the help");
    }
}

#[test]
fn until_decided_stops_at_the_first_look_that_shows_it_and_says_what_interval_that_is() {
    let fixed = Lab::new(feature(10.0, 10.0 / 1.05, 1.0));
    fixed.ab(&["--env", "FEATURE=1"]).exits_with(0);
    let lab = Lab::new(feature(10.0, 10.0 / 1.05, 1.0));
    let ran = lab.ab(&["--env", "FEATURE=1", "--until-decided"]).exits_with(0);
    assert_eq!(verdict(&lab.result(), "test"), "faster");
    assert!(ran.stdout.contains("(99 % sequence +"), "{}", ran.stdout);
    assert!(ran.stderr.contains("ab: every leg is decided"), "{}", ran.stderr);
    assert!(lab.report().contains("is a confidence sequence"), "{}", lab.report());
    let blocks = |lab: &Lab| lab.result()["blocks"].as_u64().unwrap();
    assert!(2 * blocks(&lab) < blocks(&fixed), "{} {}", blocks(&lab), blocks(&fixed));
    let both = lab.ab(&["--env", "FEATURE=1", "--until-decided", "--pairs", "6"]);
    both.exits_with(2);
}

/// Commits whose program is slow from one on; one before it does not run.
#[test]
fn bisecting_finds_the_commit_that_made_it_slower_and_passes_over_what_does_not_run() {
    let slow = Cell::new().env("SPEED", "slow").set("step_ms", 12.0).set("noise_pct", 0.2);
    let plain = Cell::new().set("step_ms", 10.0).set("noise_pct", 0.2);
    let lab = Lab::new(Script::new().set("seed", 5).cell(slow).cell(plain));
    lab.write(".gitignore", "/target\n/benchmarks\n/launches.txt\n");
    let program = |number: usize, line: &str| {
        lab.write_scripted_program("runner.sh", "script.toml", &format!("# {number}\n{line}"));
        lab.commit(&format!("change {number}"))
    };
    let slow = "export SPEED=slow";
    let commits = [
        program(0, ""),
        program(1, ""),
        program(2, ""),
        program(3, ""),
        program(4, "exit 3"),
        program(5, ""),
        program(6, slow),
        program(7, slow),
    ];
    let bisect = |good: &str, bad: &str| {
        let range = format!("{good}..{bad}");
        lab.ab(&["--bisect", &range, "--pairs", "6"])
    };
    let ran = bisect(&commits[0], &commits[7]).exits_with(0);
    assert!(ran.stdout.starts_with("the first slower commit is "), "{}", ran.stdout);
    assert!(ran.stdout.trim_end().ends_with("change 6"), "{}", ran.stdout);
    assert!(ran.stderr.contains("change 4: skipped: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("change 5: good: "), "{}", ran.stderr);
    assert_eq!(lab.git(&["worktree", "list"]).lines().count(), 1, "no work tree is left");
    assert!(lab.names("target/ab").is_empty(), "{:?}", lab.names("target/ab"));

    // Beside a commit that does not run, the first slower one is not known.
    let broken_then_slow = bisect(&commits[3], &commits[4]).exits_with(1);
    assert!(broken_then_slow.stdout.contains("nothing to bisect: "), "{}", broken_then_slow.stdout);
    let same = bisect(&commits[6], &commits[7]).exits_with(1);
    assert!(same.stdout.contains("is not shown to be slower than"), "{}", same.stdout);
    let usage = lab.ab(&["--bisect", "HEAD"]).exits_with(2);
    assert!(usage.stderr.contains("is not a range of commits"), "{}", usage.stderr);
}
