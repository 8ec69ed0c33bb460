//! `cargo xtask ab` over the real binary and the scripted runner: verdicts, refusals, resumption.

use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Cell, Command, Ran, Script, Workspace};

use crate::XTASK;

/// A workspace with one model, and a runner that plays a script.
pub(crate) struct Lab {
    workspace: Workspace,
}

impl std::ops::Deref for Lab {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.workspace
    }
}

impl Lab {
    pub(crate) fn new(script: Script) -> Lab {
        let workspace = Workspace::new(XTASK, &[]);
        workspace.write("models/m/m.gguf", "weights");
        workspace.write(
            "bench-configs/ab/default.toml",
            "model = \"m\"\nrunner = \"scripted\"\ncooldown_ms = 0\nquiet = \"noted\"\n\
             max_tokens = 33\nmax_blocks = 40\nmax_minutes = 5.0\n",
        );
        workspace.write_runner("scripted", "report", &["./runner.sh"]);
        workspace.write_scripted_program("runner.sh", "script.toml", "");
        workspace.script(&script.set("noise_by", "report_name"));
        Lab { workspace }
    }

    pub(crate) fn ab(&self, args: &[&str]) -> Ran {
        self.ab_command(args).run()
    }

    pub(crate) fn ab_command(&self, args: &[&str]) -> Command {
        self.command(&[&["ab"], args].concat())
    }

    pub(crate) fn resume(&self) -> Command {
        self.ab_command(&["--resume", &self.folder().to_string_lossy()])
    }

    /// The folder of the one comparison there is.
    pub(crate) fn folder(&self) -> PathBuf {
        self.only_entry("benchmarks/ab")
    }

    pub(crate) fn result(&self) -> Value {
        self.read_json(self.folder().join("result.json"))
    }

    pub(crate) fn report(&self) -> String {
        self.read(self.folder().join("report.md"))
    }

    pub(crate) fn samples(&self) -> Vec<Value> {
        self.read_json_lines(self.folder().join("samples.jsonl"))
    }
}

pub(crate) fn leg<'a>(result: &'a Value, name: &str) -> &'a Value {
    let legs = result["legs"].as_array().unwrap();
    legs.iter().find(|leg| leg["leg"]["name"] == name).unwrap_or_else(|| panic!("no leg {name}"))
}

pub(crate) fn verdict<'a>(result: &'a Value, name: &str) -> &'a str {
    leg(result, name)["verdict"].as_str().unwrap()
}

/// The change of a metric against base, and the ends of its interval.
fn change(result: &Value, name: &str, metric: &str) -> (f64, f64, f64) {
    let versus = &leg(result, name)["metrics"][metric]["versus_base"];
    let number = |value: &Value| value.as_f64().unwrap();
    (
        number(&versus["change"]),
        number(&versus["interval"]["low"]),
        number(&versus["interval"]["high"]),
    )
}

/// A cell that consults FEATURE.
pub(crate) fn cell() -> Cell {
    Cell::new().consults("FEATURE")
}

/// One with FEATURE on.
pub(crate) fn featured() -> Cell {
    cell().env("FEATURE", "1")
}

/// A program that consults FEATURE, which changes the time of a step.
pub(crate) fn feature(base_ms: f64, on_ms: f64, noise_pct: f64) -> Script {
    Script::new()
        .set("seed", 5)
        .cell(featured().set("step_ms", on_ms).set("noise_pct", noise_pct))
        .cell(cell().set("step_ms", base_ms).set("noise_pct", noise_pct))
}

#[test]
fn a_known_effect_of_five_percent_under_one_percent_of_noise_is_faster() {
    let lab = Lab::new(feature(10.0, 10.0 / 1.05, 1.0));
    let ran = lab.ab(&["--env", "FEATURE=1"]).exits_with(0);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "faster");
    let (_, low, high) = change(&result, "test", "decode_tok_s");
    assert!(low <= 5.0 && 5.0 <= high, "{low} to {high}");
    assert!(ran.stdout.contains("test against base: faster, tok/s +"), "{}", ran.stdout);
    assert!(ran.stdout.contains("| ms/token "), "{}", ran.stdout);
}

#[test]
fn no_effect_is_equivalent_and_the_interval_is_as_narrow_as_the_margin() {
    let lab = Lab::new(feature(10.0, 10.0, 1.0));
    let ran = lab.ab(&["--env", "FEATURE=1"]).exits_with(0);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "equivalent", "{}", ran.stderr);
    let (_, low, high) = change(&result, "test", "decode_tok_s");
    assert!((-1.0..=0.0).contains(&low) && (0.0..=1.0).contains(&high), "{low} to {high}");
}

#[test]
fn noise_of_ten_percent_is_unresolved_with_a_sensible_count() {
    let lab = Lab::new(feature(10.0, 10.0, 10.0));
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "12"]).exits_with(0);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "unresolved", "{}", ran.stderr);
    let versus = &leg(&result, "test")["metrics"]["decode_tok_s"]["versus_base"];
    // (1.96 + 0.84)² · 1.047 · 2 · (10 %/1 %)² is about 1,640; the noise itself is an estimate.
    let needed = versus["blocks_needed"].as_u64().unwrap();
    assert!((400..6_000).contains(&needed), "{needed}");
    let detectable = versus["detectable"].as_f64().unwrap();
    assert!((5.0..40.0).contains(&detectable), "{detectable}");
    assert!(ran.stdout.contains("one as large as the margin takes about"), "{}", ran.stdout);
}

#[test]
fn drift_from_run_to_run_gives_no_false_verdict() {
    for seed in ["1", "2", "3"] {
        let drifting = cell().set("drift_pct", 1.0).set("noise_pct", 0.2);
        let lab = Lab::new(Script::new().cell(drifting));
        let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "12", "--seed", seed]).exits_with(0);
        let result = lab.result();
        let found = verdict(&result, "test");
        assert!(["equivalent", "unresolved"].contains(&found), "seed {seed}: {}", ran.stderr);
        let drift = result["drift"]["pct_per_run"].as_f64().unwrap();
        assert!((-1.1..-0.6).contains(&drift), "{drift}");
    }
}

#[test]
fn a_leak_is_growing_with_its_slope_and_the_token_at_which_the_device_is_full() {
    let leaking = featured().set("leak_bytes_per_step", 6 << 20);
    let lab = Lab::new(Script::new().cell(leaking).cell(cell()));
    let ran = lab
        .ab(&[
            "--env",
            "FEATURE=1",
            "--pairs",
            "6",
            "--gate",
            "slope_mib_per_token <= 0.1",
            "--gate",
            "base.slope_mib_per_token <= 0.1",
        ])
        .exits_with(1);
    let result = lab.result();
    let memory = &leg(&result, "test")["memory"];
    assert_eq!(memory["growth"], "growing");
    let slope = memory["slope_mib_per_token"].as_f64().unwrap();
    assert!((slope / 6.0 - 1.0).abs() <= 0.02, "{slope}");
    assert!(memory["full_at_token"].as_f64().unwrap() > 33.0);
    assert_eq!(leg(&result, "base")["memory"]["growth"], "flat");
    let outcomes: Vec<&Value> =
        result["gates"].as_array().unwrap().iter().map(|gate| &gate["outcome"]).collect();
    assert_eq!(outcomes, ["failed", "passed"]);
    assert!(ran.stdout.contains("gate `slope_mib_per_token <= 0.1` on test: FAILED"));
    let report = lab.report();
    assert!(report.contains("growing, ") && report.contains("full at token"), "{report}");
}

#[test]
fn a_leg_that_runs_out_of_memory_is_reported_as_that_and_never_as_slow() {
    let oom = featured().runs_out_of_memory("CUDA error: out of memory\n");
    let lab = Lab::new(
        Script::new()
            .cell(oom.clone().set("launch", 4).set("profile_lines", false))
            .cell(oom.set("step_ms", 30.0))
            .cell(cell()),
    );
    let ran =
        lab.ab(&["--env", "FEATURE=1", "--leg", "other:FEATURE=2", "--pairs", "6"]).exits_with(1);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "inconclusive");
    assert_eq!(verdict(&result, "other"), "equivalent", "the other leg goes on");
    assert_eq!(leg(&result, "test")["failure"]["classification"], "SKIP:oom");
    assert!(ran.stdout.contains("ran out of memory (SKIP:oom)"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("slower") && !lab.report().contains(" slower |"));
    // It is launched once: what ran out of memory is not tried again.
    let of_test = |event: &Value| event["event"] == "run_launch" && event["leg"] == "test";
    assert_eq!(lab.samples().iter().filter(|event| of_test(event)).count(), 1);
    // What the leg's variables ran out of memory at is recorded as theirs, not the model's.
    let record = lab.read("benchmarks/.oom-record");
    assert!(record.starts_with("m+test,128,") && record.lines().count() == 1, "{record}");
    assert!(record.trim_end().ends_with("/samples.jsonl,ab"), "{record}");
    lab.ab(&["--env", "OTHER=1", "--pairs", "6"]).exits_with(1);
    let last = lab.names("benchmarks/ab").pop().unwrap();
    let result = lab.read_json(lab.path("benchmarks/ab").join(last).join("result.json"));
    assert_eq!(leg(&result, "test")["failure"]["classification"], "SKIP:oom_record");
}

#[test]
fn base_running_out_of_memory_ends_it_at_once_and_the_next_comparison_is_refused() {
    let lab = Lab::new(Script::new().cell(Cell::new().runs_out_of_memory("std::bad_alloc\n")));
    lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(1);
    assert_eq!(verdict(&lab.result(), "test"), "inconclusive");
    assert_eq!(lab.launches().len(), 1, "without base, no other leg is launched");
    let record = lab.read("benchmarks/.oom-record");
    assert!(record.starts_with("m,128,") && record.lines().count() == 1, "{record}");

    let refused = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(2);
    let line = record.trim_end();
    let said = format!("`m` at 128 prompt tokens is not launched: the OOM record holds `{line}`");
    assert!(refused.stderr.contains(&said), "{}", refused.stderr);
    assert!(refused.stderr.contains("`cargo xtask ab --ignore-oom-record`"), "{}", refused.stderr);
    assert_eq!(lab.launches().len(), 1);

    lab.ab(&["--env", "FEATURE=1", "--pairs", "6", "--ignore-oom-record"]).exits_with(1);
    assert_eq!(lab.launches().len(), 2);
    assert_eq!(lab.read("benchmarks/.oom-record").lines().count(), 2, "it is still recorded");
}

#[test]
fn what_a_sweep_recorded_with_no_more_tokens_is_not_launched() {
    let lab = Lab::new(Script::new());
    lab.write("benchmarks/.oom-record", "m+g2,128,2026-07-03,abc1234,,old.csv\n");
    let refused = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(2);
    for part in ["holds `m+g2,128,2026-07-03,", "`cargo xtask oom-record prune --model m+g2`"] {
        assert!(refused.stderr.contains(part), "no `{part}` in {}", refused.stderr);
    }
    assert_eq!(lab.launches().len(), 0);
    let more = "m+g99999,128,2026-07-03,abc1234,,old.csv\nm+g2,129,2026-07-03,abc1234,,old.csv\n";
    lab.write("benchmarks/.oom-record", more);
    lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]);
    assert!(!lab.launches().is_empty());
}

#[test]
fn weights_that_cannot_fit_stop_it_before_anything_is_launched() {
    let lab = Lab::new(Script::new().cell(cell()));
    let args = ["--env", "FEATURE=1", "--pairs", "6"];
    let ran = lab.ab_command(&args).env("BENCH_MEM_OVERHEAD_FACTOR", "1e15").run().exits_with(2);
    assert!(ran.stderr.contains("is not launched: weights of "), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: BENCH_MEM_OVERHEAD_FACTOR scales"), "{}", ran.stderr);
    assert!(lab.launches().is_empty());
}

#[test]
fn a_launch_that_the_host_did_not_survive_is_not_made_again() {
    let lab = Lab::new(Script::new().cell(cell()));
    lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(0);
    let path = lab.folder().join("samples.jsonl");
    let text = lab.read(&path);
    // As if the power had gone in the middle of the second run.
    let is_end = |line: &&str| line.contains("\"event\":\"run_end\"");
    let ends: Vec<&str> = text.lines().filter(is_end).collect();
    let cut = text.find(ends[1]).unwrap();
    let boot = lab.samples()[1]["boot"].as_str().unwrap().to_owned();
    let lost = text[..cut].replace(&boot, "another-boot");

    lab.write(&path, &lost);
    let launches = lab.launches().len();
    let ran = lab.resume().run().exits_with(1);
    assert!(ran.stderr.contains("the host was lost during it"), "{}", ran.stderr);
    let failed = |event: &Value| event["classification"] == "FAIL:host_lost";
    assert_eq!(lab.samples().iter().filter(|event| failed(event)).count(), 1);

    // Under the same boot it was the harness that was killed.
    lab.write(&path, &text[..cut]);
    lab.resume().run().exits_with(0);
    assert!(lab.launches().len() > launches);
    assert!(!lab.samples().iter().any(failed));
}

/// Two cells that differ in their output from the third token on.
fn other_tokens() -> Script {
    let other = featured().overlay("output = { token_hash = \"ff\", token_ids = [0, 1, 9, 9] }");
    Script::new().cell(other).cell(cell())
}

#[test]
fn different_tokens_are_refused_unless_they_are_allowed() {
    let lab = Lab::new(other_tokens());
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(1);
    assert_eq!(verdict(&lab.result(), "test"), "inconclusive");
    assert!(ran.stdout.contains("different tokens after the first 2"), "{}", ran.stdout);
    assert_eq!(lab.launches().len(), 3, "one block shows it");

    let lab = Lab::new(other_tokens());
    let ran =
        lab.ab(&["--env", "FEATURE=1", "--pairs", "6", "--allow-different-output"]).exits_with(0);
    assert_eq!(verdict(&lab.result(), "test"), "equivalent");
    assert!(
        ran.stdout.contains("note: test did different work: different tokens after the first 2")
    );
}

#[test]
fn base_that_disagrees_with_itself_is_inconclusive() {
    let other = cell().overlay("output.token_hash = \"ff\"");
    let lab = Lab::new(Script::new().cell(cell().set("launch", 0)).cell(other));
    lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(1);
    assert_eq!(verdict(&lab.result(), "test"), "inconclusive");
}

#[test]
fn a_misspelt_variable_is_inert_with_the_nearest_known_name() {
    let consulting = Cell::new().consults("ARC_CANDLE_ALLOC_CACHE");
    let lab = Lab::new(Script::new().cell(consulting));
    let ran = lab.ab(&["--env", "ARC_CANDLE_ALOC_CACHE=0"]).exits_with(1);
    assert_eq!(verdict(&lab.result(), "test"), "inert");
    assert!(
        ran.stdout.contains(
            "test against base: inert: the program never consulted ARC_CANDLE_ALOC_CACHE; did you \
             mean ARC_CANDLE_ALLOC_CACHE?"
        ),
        "{}",
        ran.stderr
    );
    assert_eq!(lab.launches().len(), 3, "one block shows it");
}

#[test]
fn a_value_that_means_the_default_is_inert() {
    let consulting = Cell::new()
        .consults("ARC_CANDLE_ALLOC_CACHE")
        .overlay("settings.allocator.state = \"policy\"");
    let lab = Lab::new(Script::new().cell(consulting));
    let ran = lab.ab(&["--env", "ARC_CANDLE_ALLOC_CACHE=1"]).exits_with(1);
    assert_eq!(verdict(&lab.result(), "test"), "inert");
    assert!(ran.stdout.contains("same effective settings"), "{}", ran.stdout);
}

#[test]
fn the_shell_does_not_reach_base() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    lab.ab_command(&["--env", "FEATURE=1", "--pairs", "6"]).env("FEATURE", "1").run().exits_with(0);
    assert_eq!(verdict(&lab.result(), "test"), "faster");
    let of_base = |event: &&Value| event["event"] == "run_launch" && event["leg"] == "base";
    for launch in lab.samples().iter().filter(of_base) {
        assert!(launch["environment"]["FEATURE"].is_null(), "{launch}");
    }
}

#[test]
fn a_foreign_runner_says_activation_unknown_in_the_verdict_line() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    lab.write_runner("scripted", "profile-text", &["./runner.sh"]);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(0);
    let line = ran.stdout.lines().find(|line| line.starts_with("test against base:")).unwrap();
    assert!(line.contains("faster") && line.contains("; activation unknown: "), "{line}");
    assert!(line.contains("; same work unknown"), "{line}");
}

#[test]
fn a_program_swapped_in_the_middle_is_an_error() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    let swap = "if [ $(wc -l < launches.txt 2>/dev/null || echo 0) -ge 4 ]; then echo '#' >> runner.sh; fi";
    lab.write_scripted_program("runner.sh", "script.toml", swap);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(2);
    assert!(ran.stderr.contains("error: the program"), "{}", ran.stderr);
    assert!(ran.stderr.contains("changed during the run"), "{}", ran.stderr);
    assert_eq!(lab.launches().len(), 5);
    assert_eq!(lab.result()["partial"], true, "what was measured is kept");
}

#[test]
fn a_script_that_the_command_names_is_pinned_and_an_edit_of_it_is_an_error() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    lab.write_runner("scripted", "report", &["/bin/sh", "runner.sh"]);
    let edit = "if [ $(wc -l < launches.txt 2>/dev/null || echo 0) -ge 4 ]; then echo '#' >> runner.sh; fi";
    lab.write_scripted_program("runner.sh", "script.toml", edit);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(2);
    assert!(ran.stderr.contains("error: the pinned file"), "{}", ran.stderr);
    assert!(ran.stderr.contains("changed during the run"), "{}", ran.stderr);
    assert_eq!(lab.launches().len(), 5);
    assert!(lab.report().contains("; pinned: `runner.sh` "), "{}", lab.report());

    // What was measured before the edit cannot be continued after it.
    let ran = lab.resume().run().exits_with(2);
    assert!(ran.stderr.contains("cannot resume: `runner.sh` was "), "{}", ran.stderr);
    assert_eq!(lab.launches().len(), 5);
}

#[test]
fn a_model_swapped_in_the_middle_is_an_error() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    let swap = "[ -s launches.txt ] && echo other > models/m/m.gguf";
    lab.write_scripted_program("runner.sh", "script.toml", swap);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(2);
    assert!(ran.stderr.contains("error: the model"), "{}", ran.stderr);
}

#[test]
fn a_comparison_that_was_killed_is_resumed_to_the_same_result() {
    let args = ["--env", "FEATURE=1", "--pairs", "8"];
    let whole = Lab::new(feature(10.0, 9.7, 1.0));
    whole.ab(&args).exits_with(0);

    let lab = Lab::new(feature(10.0, 9.7, 1.0));
    for launches in [1, 6, 11, 20] {
        let command = if launches == 1 { lab.ab_command(&args) } else { lab.resume() };
        let child = command.start();
        child.wait_until(|| lab.launches().len() >= launches);
        child.kill();
    }
    lab.resume().run().exits_with(0);
    let (mut resumed, mut whole) = (lab.result(), whole.result());
    for result in [&mut resumed, &mut whole] {
        // How often launches were lost, how long a process took and what else the machine did
        // meanwhile is not the same twice.
        result["runs"]["lost"].take();
        result["drift"].take();
        let notes = result["notes"].as_array_mut().unwrap();
        notes.retain(|note| !note.as_str().unwrap().contains("runs were disturbed"));
        for leg in result["legs"].as_array_mut().unwrap() {
            leg["split"].take();
            leg["metrics"]["rss_peak_mib"].take();
        }
        // The interpreter's path is part of nothing but the program's hash.
        result["identity"].take();
    }
    assert_eq!(resumed, whole);
    assert_eq!(resumed["partial"], false);
}

#[test]
fn resuming_with_another_program_is_refused() {
    let lab = Lab::new(feature(10.0, 9.7, 1.0));
    lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).exits_with(0);
    lab.write_scripted_program("runner.sh", "script.toml", "# other");
    let ran = lab.resume().run().exits_with(2);
    assert!(ran.stderr.contains("cannot resume: the program was "), "{}", ran.stderr);
}

#[test]
fn an_interrupted_comparison_leaves_a_partial_report_and_exits_with_130() {
    let hanging = cell().set("launch", 7).set("sleep_ms", 20_000);
    let lab = Lab::new(Script::new().cell(hanging).cell(cell()));
    let child = lab.ab_command(&["--env", "FEATURE=1", "--pairs", "6"]).start();
    child.wait_until(|| lab.launches().len() >= 8);
    let ran = child.interrupt().exits_with(130);
    assert!(lab.report().contains("**Partial: runs are missing"), "{}", lab.report());
    assert_eq!(lab.result()["partial"], true);
    assert!(ran.stdout.contains("PARTIAL"), "{}", ran.stdout);
    lab.resume().run().exits_with(0);
    assert_eq!((lab.result()["partial"].clone(), lab.launches().len()), (Value::from(false), 19));
}

#[test]
fn a_machine_that_is_never_quiet_is_said_in_the_verdict() {
    let lab = Lab::new(feature(10.0, 8.0, 0.1));
    let config =
        "model = \"m\"\nrunner = \"scripted\"\nmax_other_load_pct = -1.0\ncooldown_ms = 0\n";
    lab.write("bench-configs/ab/default.toml", config);
    // A repeated run waits a second, so that a burst of load can pass: two of them per slot here.
    let child = lab.ab_command(&["--env", "FEATURE=1", "--pairs", "5"]).start();
    child.wait_until(|| lab.launches().len() >= 10);
    let ran = child.interrupt().exits_with(130);
    let statuses: Vec<String> = lab
        .samples()
        .iter()
        .filter(|event| event["event"] == "run_end")
        .map(|event| event["status"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(statuses[..6], ["rejected", "rejected", "contended"].repeat(2));
    assert!(ran.stderr.contains("rejected and repeated: other processes took"), "{}", ran.stderr);
    let line = ran.stdout.lines().find(|line| line.starts_with("test against base:")).unwrap();
    assert!(line.contains("; contended: "), "{line}");
}

#[test]
fn another_binary_attributes_the_gain_to_the_switch() {
    let lab = Lab::new(feature(10.0, 10.74, 0.1));
    lab.write_scripted_program("before.sh", "before.toml", "# the build before the change");
    lab.write(
        "before.toml",
        "launch_log = \"launches.txt\"\n[[cell]]\nstep_ms = 10.74\nnoise_pct = 0.1\n",
    );
    let ran = lab
        .ab(&["--env", "FEATURE=1", "--baseline-bin", "before.sh", "--pairs", "8"])
        .exits_with(0);
    let result = lab.result();
    let found = &leg(&result, "test")["attribution"];
    let returned = found["returned_pct"].as_f64().unwrap();
    assert!((returned - 100.0).abs() < 5.0, "{returned}");
    assert!(ran.stdout.contains("% of the gain"), "{}", ran.stdout);
    assert!(ran.stdout.contains("the switched leg lands on the baseline"), "{}", ran.stdout);
    assert_eq!(verdict(&result, "baseline"), "slower");
    assert!(lab.report().contains("## Attribution"));

    let copy = lab.path("copy.sh");
    std::fs::copy(lab.path("runner.sh"), &copy).unwrap();
    let ran = lab.ab(&["--env", "FEATURE=1", "--baseline-bin", "copy.sh"]).exits_with(2);
    assert!(ran.stderr.contains("byte for byte the program"), "{}", ran.stderr);
}

#[test]
fn gates_decide_the_exit_code_and_noise_is_warned_of() {
    let lab = Lab::new(feature(10.0, 9.5, 1.0));
    let gates = |gates: &[&str]| {
        let mut args = vec!["--env", "FEATURE=1", "--pairs", "12"];
        gates.iter().for_each(|gate| args.extend(["--gate", gate]));
        lab.ab(&args)
    };
    gates(&["decode_tok_s >= -1%", "ms_per_token <= 11"]).exits_with(0);
    gates(&["decode_tok_s >= 9%"]).exits_with(1);
    let strict = gates(&["load_ms <= 0.000001%"]).exits_with(1);
    assert!(strict.stdout.contains("cannot be met honestly"), "{}", strict.stdout);
    let unknown = gates(&["decode_toks >= 1"]).exits_with(2);
    assert!(unknown.stderr.contains("did you mean `decode_tok_s`?"), "{}", unknown.stderr);
}

#[test]
fn json_is_the_result_and_nothing_tells_of_this_machine() {
    let lab = Lab::new(feature(10.0, 9.5, 1.0));
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "5", "--json"]).exits_with(0);
    assert_eq!(ran.json(), lab.result());
    let root = lab.root().to_str().unwrap().to_owned();
    for name in ["samples.jsonl", "result.json", "report.md"] {
        let text = lab.read(lab.folder().join(name));
        assert!(!text.contains(&root), "{name} holds {root}");
    }
    assert!(lab.report().contains("cargo xtask ab --env FEATURE=1 --pairs 5"), "{}", lab.report());
}

#[test]
fn what_cannot_be_compared_is_a_usage_error() {
    let lab = Lab::new(Script::new());
    for (args, expected) in [
        (&[][..], "hint: give --env K=V, --leg NAME:K=V or --baseline-bin PATH"),
        (&["--env", "A=0", "--pairs", "4"][..], "4 blocks are too few: at least 5"),
        (&["--env", "A=0", "--model", "none"][..], "hint: `cargo xtask model list`"),
        (&["--env", "A=0", "--runner", "none"][..], "the runners in bench-configs/runners/ are"),
        (&["--resume", "nowhere"][..], "--resume takes the folder of a comparison"),
        (&["--env", "A=0", "--baseline-bin", "none"][..], "the baseline program"),
    ] {
        let ran = lab.ab(args).exits_with(2);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(lab.launches().len(), 0);
}

#[test]
fn committed_reports_are_what_their_samples_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut checked = 0;
    for entry in std::fs::read_dir(root.join("benchmarks/ab")).unwrap() {
        let committed = entry.unwrap().path();
        // The check of a GPU has a folder here as well, and no samples.
        if !committed.join("samples.jsonl").exists() {
            continue;
        }
        let again = tempfile::tempdir().unwrap();
        std::fs::copy(committed.join("samples.jsonl"), again.path().join("samples.jsonl")).unwrap();
        let mut command = std::process::Command::new(XTASK);
        command.args(["ab", "--report"]).arg(again.path()).current_dir(root);
        // --check says the same of the committed files, and writes nothing.
        let mut check = std::process::Command::new(XTASK);
        check.args(["ab", "--check", "--report"]).arg(&committed).current_dir(root);
        assert_eq!(check.output().unwrap().status.code(), Some(0), "{}", committed.display());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        for name in ["result.json", "report.md"] {
            let read = |folder: &Path| std::fs::read_to_string(folder.join(name)).unwrap();
            assert!(
                read(again.path()) == read(&committed),
                "{name} is not what the samples say; `cargo xtask ab --report {}` writes it again",
                committed.strip_prefix(root).unwrap().display()
            );
        }
        checked += 1;
    }
    assert!(checked >= 3, "only {checked} comparisons were found");
}
