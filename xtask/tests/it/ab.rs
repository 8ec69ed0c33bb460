//! `cargo xtask ab` over the real binary and the scripted runner: verdicts, refusals, resumption.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A workspace with one model, and a runner that does what a script says.
struct Lab {
    dir: tempfile::TempDir,
}

/// What an invocation left.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Lab {
    /// `script` is the scripted runner's; every launch is logged.
    fn new(script: &str) -> Lab {
        let lab = Lab { dir: tempfile::tempdir().unwrap() };
        lab.write("Cargo.toml", "");
        lab.write("models/m/m.gguf", "weights");
        lab.write(
            "bench-configs/ab/default.toml",
            "model = \"m\"\nrunner = \"scripted\"\ncooldown_ms = 0\nquiet = \"noted\"\n\
             max_tokens = 33\nmax_blocks = 40\nmax_minutes = 5.0\n",
        );
        lab.write_runner("runner", "runner.sh", "report");
        lab.write_program("runner.sh", "script.toml", "");
        lab.write(
            "script.toml",
            &format!("launch_log = \"launches\"\nnoise_by = \"report_name\"\n{script}"),
        );
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn write_runner(&self, _name: &str, program: &str, result: &str) {
        self.write(
            "bench-configs/runners/scripted.toml",
            &format!(
                "result = \"{result}\"\ncommand = [\"./{program}\", \"--model\", \"{{model}}\", \
                 \"--prompt-tokens\", \"{{prompt_tokens}}\", \"--max-tokens\", \"{{max_tokens}}\", \
                 \"--report\", \"{{report}}\"]\n"
            ),
        );
    }

    /// A program that plays a script, after some lines of shell.
    fn write_program(&self, name: &str, script: &str, before: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let xtask = env!("CARGO_BIN_EXE_xtask");
        self.write(
            name,
            &format!(
                "#!/bin/sh\n{before}\nexec '{xtask}' scripted-runner --script {script} \"$@\"\n"
            ),
        );
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("ab").args(args).current_dir(self.dir.path());
        command.env_remove("MLXCEL_BENCH_IGNORE_OOM_RECORD");
        command
    }

    fn ab(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().unwrap())
    }

    fn launches(&self) -> usize {
        std::fs::read_to_string(self.path("launches")).unwrap_or_default().lines().count()
    }

    /// The folder of the one comparison there is.
    fn folder(&self) -> PathBuf {
        let folders: Vec<PathBuf> = std::fs::read_dir(self.path("benchmarks/ab"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders[0].clone()
    }

    fn result(&self) -> Value {
        read_json(&self.folder().join("result.json"))
    }

    fn report(&self) -> String {
        std::fs::read_to_string(self.folder().join("report.md")).unwrap()
    }

    fn samples(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder().join("samples.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn leg<'a>(result: &'a Value, name: &str) -> &'a Value {
    let legs = result["legs"].as_array().unwrap();
    legs.iter().find(|leg| leg["leg"]["name"] == name).unwrap_or_else(|| panic!("no leg {name}"))
}

fn verdict<'a>(result: &'a Value, name: &str) -> &'a str {
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

/// A program that consults FEATURE, which changes the time of a step.
fn feature(base_ms: f64, on_ms: f64, noise_pct: f64) -> String {
    format!(
        "seed = 5\n[[cell]]\nenv = {{ FEATURE = \"1\" }}\nstep_ms = {on_ms}\nnoise_pct = \
         {noise_pct}\nconsults = [\"FEATURE\"]\n[[cell]]\nstep_ms = {base_ms}\nnoise_pct = \
         {noise_pct}\nconsults = [\"FEATURE\"]\n"
    )
}

#[test]
fn a_known_effect_of_five_percent_under_one_percent_of_noise_is_faster() {
    let lab = Lab::new(&feature(10.0, 10.0 / 1.05, 1.0));
    let ran = lab.ab(&["--env", "FEATURE=1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "faster");
    let (_, low, high) = change(&result, "test", "decode_tok_s");
    assert!(low <= 5.0 && 5.0 <= high, "{low} to {high}");
    assert!(ran.stderr.contains("test against base: faster, tok/s +"), "{}", ran.stderr);
    assert!(ran.stdout.contains("| driver allocs per step"), "{}", ran.stdout);
}

#[test]
fn no_effect_is_equivalent_and_the_interval_is_as_narrow_as_the_margin() {
    let lab = Lab::new(&feature(10.0, 10.0, 1.0));
    let ran = lab.ab(&["--env", "FEATURE=1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "equivalent", "{}", ran.stderr);
    let (_, low, high) = change(&result, "test", "decode_tok_s");
    assert!((-1.0..=0.0).contains(&low) && (0.0..=1.0).contains(&high), "{low} to {high}");
}

#[test]
fn noise_of_ten_percent_is_unresolved_with_a_sensible_count() {
    let lab = Lab::new(&feature(10.0, 10.0, 10.0));
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "12"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "unresolved", "{}", ran.stderr);
    let versus = &leg(&result, "test")["metrics"]["decode_tok_s"]["versus_base"];
    // (1.96 + 0.84)² · 1.047 · 2 · (10 %/1 %)² is about 1,640; the noise itself is an estimate.
    let needed = versus["blocks_needed"].as_u64().unwrap();
    assert!((400..6_000).contains(&needed), "{needed}");
    let detectable = versus["detectable"].as_f64().unwrap();
    assert!((5.0..40.0).contains(&detectable), "{detectable}");
    assert!(ran.stderr.contains("to see the margin takes about"), "{}", ran.stderr);
}

#[test]
fn drift_from_run_to_run_gives_no_false_verdict() {
    for seed in ["1", "2", "3"] {
        let script = "[[cell]]\ndrift_pct = 1.0\nnoise_pct = 0.2\nconsults = [\"FEATURE\"]\n";
        // What it parsed must differ, or the legs are the same.
        let lab = Lab::new(script);
        let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "12", "--seed", seed]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let result = lab.result();
        let found = verdict(&result, "test");
        assert!(["equivalent", "unresolved"].contains(&found), "seed {seed}: {}", ran.stderr);
        let drift = result["drift"]["pct_per_run"].as_f64().unwrap();
        assert!((-1.1..-0.6).contains(&drift), "{drift}");
    }
}

#[test]
fn a_leak_is_growing_with_its_slope_and_the_token_at_which_the_device_is_full() {
    let leak = 6 << 20;
    let lab = Lab::new(&format!(
        "[[cell]]\nenv = {{ FEATURE = \"1\" }}\nleak_bytes_per_step = {leak}\nconsults = \
         [\"FEATURE\"]\n[[cell]]\nconsults = [\"FEATURE\"]\n"
    ));
    let ran = lab.ab(&[
        "--env",
        "FEATURE=1",
        "--pairs",
        "6",
        "--gate",
        "slope_mib_per_token <= 0.1",
        "--gate",
        "base.slope_mib_per_token <= 0.1",
    ]);
    assert_eq!(ran.code, Some(1), "a gate failed: {}", ran.stderr);
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
    assert!(ran.stderr.contains("gate `slope_mib_per_token <= 0.1` on test: FAILED"));
    let report = lab.report();
    assert!(report.contains("growing, ") && report.contains("full at token"), "{report}");
}

#[test]
fn a_leg_that_runs_out_of_memory_is_reported_as_that_and_never_as_slow() {
    let lab = Lab::new(
        "[[cell]]\nenv = { FEATURE = \"1\" }\nlaunch = 4\nconsults = [\"FEATURE\"]\nexit = 1\nreport = \
         \"none\"\nprofile_lines = false\nstderr = \"CUDA error: out of memory\\n\"\n[[cell]]\nenv = { \
         FEATURE = \"1\" }\nstep_ms = 30.0\nconsults = [\"FEATURE\"]\nexit = 1\nreport = \"none\"\n\
         stderr = \"CUDA error: out of memory\\n\"\n[[cell]]\nconsults = [\"FEATURE\"]\n",
    );
    let ran = lab.ab(&["--env", "FEATURE=1", "--leg", "other:FEATURE=2", "--pairs", "6"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let result = lab.result();
    assert_eq!(verdict(&result, "test"), "inconclusive");
    assert_eq!(verdict(&result, "other"), "equivalent", "the other leg goes on");
    assert_eq!(leg(&result, "test")["failure"]["classification"], "SKIP:oom");
    assert!(ran.stderr.contains("ran out of memory (SKIP:oom)"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("slower") && !lab.report().contains(" slower |"));
    // It is launched once: what ran out of memory is not tried again.
    let of_test = |event: &Value| event["event"] == "run_launch" && event["leg"] == "test";
    assert_eq!(lab.samples().iter().filter(|event| of_test(event)).count(), 1);
    assert!(!lab.path("benchmarks/.oom-record").exists(), "the leg's variables are no sweep's");
}

#[test]
fn base_running_out_of_memory_feeds_the_record_and_the_next_comparison_is_refused() {
    let lab = Lab::new("[[cell]]\nexit = 1\nreport = \"none\"\nstderr = \"std::bad_alloc\\n\"\n");
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let record = std::fs::read_to_string(lab.path("benchmarks/.oom-record")).unwrap();
    assert!(record.starts_with("m,128,"), "{record}");
    let launches = lab.launches();
    let refused = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("is known to run out of memory"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: --ignore-oom-record"), "{}", refused.stderr);
    assert_eq!(lab.launches(), launches);
    let asked = lab.ab(&["--env", "FEATURE=1", "--pairs", "6", "--ignore-oom-record"]);
    assert_eq!(asked.code, Some(1));
    assert!(lab.launches() > launches);
}

/// Two cells that differ in their output from the third token on.
const OTHER_TOKENS: &str = "[[cell]]\nenv = { FEATURE = \"1\" }\nconsults = [\"FEATURE\"]\noverlay = { \
     output = { token_hash = \"ff\", token_ids = [0, 1, 9, 9] } }\n[[cell]]\nconsults = \
     [\"FEATURE\"]\n";

#[test]
fn different_tokens_are_refused_unless_they_are_allowed() {
    let lab = Lab::new(OTHER_TOKENS);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]);
    assert_eq!(ran.code, Some(1));
    assert_eq!(verdict(&lab.result(), "test"), "inconclusive");
    assert!(ran.stderr.contains("other tokens after 2 that agree"), "{}", ran.stderr);
    assert_eq!(lab.launches(), 3, "one block shows it");

    let lab = Lab::new(OTHER_TOKENS);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6", "--allow-different-output"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(verdict(&lab.result(), "test"), "equivalent");
    assert!(ran.stderr.contains("note: test did other work: other tokens after 2"));
}

#[test]
fn base_that_disagrees_with_itself_is_inconclusive() {
    let lab = Lab::new(
        "[[cell]]\nlaunch = 0\nconsults = [\"FEATURE\"]\n[[cell]]\nconsults = [\"FEATURE\"]\noverlay = { \
         output = { token_hash = \"ff\" } }\n",
    );
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(verdict(&lab.result(), "test"), "inconclusive");
}

#[test]
fn a_misspelt_variable_is_inert_with_the_nearest_known_name() {
    let lab = Lab::new("[[cell]]\nconsults = [\"ARC_CANDLE_ALLOC_CACHE\"]\n");
    let ran = lab.ab(&["--env", "ARC_CANDLE_ALOC_CACHE=0"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(verdict(&lab.result(), "test"), "inert");
    assert!(
        ran.stderr.contains(
            "test against base: inert: the program never consulted ARC_CANDLE_ALOC_CACHE; did you \
             mean ARC_CANDLE_ALLOC_CACHE?"
        ),
        "{}",
        ran.stderr
    );
    assert_eq!(lab.launches(), 3, "one block shows it");
}

#[test]
fn a_value_that_means_the_default_is_inert() {
    let lab = Lab::new(
        "[[cell]]\nconsults = [\"ARC_CANDLE_ALLOC_CACHE\"]\noverlay = { settings = { allocator = { \
         state = \"policy\" } } }\n",
    );
    let ran = lab.ab(&["--env", "ARC_CANDLE_ALLOC_CACHE=1"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(verdict(&lab.result(), "test"), "inert");
    assert!(ran.stderr.contains("same effective settings"), "{}", ran.stderr);
}

#[test]
fn the_shell_does_not_reach_base() {
    let lab = Lab::new(&feature(10.0, 8.0, 0.1));
    let mut command = lab.command(&["--env", "FEATURE=1", "--pairs", "6"]);
    command.env("FEATURE", "1");
    let ran = ran(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(verdict(&lab.result(), "test"), "faster");
    let of_base = |event: &&Value| event["event"] == "run_launch" && event["leg"] == "base";
    for launch in lab.samples().iter().filter(of_base) {
        assert!(launch["environment"]["FEATURE"].is_null(), "{launch}");
    }
}

#[test]
fn a_foreign_runner_says_activation_unknown_in_the_verdict_line() {
    let lab = Lab::new(&feature(10.0, 8.0, 0.1));
    lab.write_runner("runner", "runner.sh", "profile-text");
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let line = ran.stderr.lines().find(|line| line.starts_with("test against base:")).unwrap();
    assert!(line.contains("faster") && line.contains("; activation unknown: "), "{line}");
    assert!(line.contains("; same work unknown"), "{line}");
}

#[test]
fn a_program_swapped_in_the_middle_is_an_error() {
    let lab = Lab::new(&feature(10.0, 8.0, 0.1));
    let swap =
        "if [ $(wc -l < launches 2>/dev/null || echo 0) -ge 4 ]; then echo '#' >> runner.sh; fi";
    lab.write_program("runner.sh", "script.toml", swap);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: the program"), "{}", ran.stderr);
    assert!(ran.stderr.contains("changed in the middle"), "{}", ran.stderr);
    assert_eq!(lab.launches(), 5);
    assert_eq!(lab.result()["partial"], true, "what was measured is kept");
}

#[test]
fn a_model_swapped_in_the_middle_is_an_error() {
    let lab = Lab::new(&feature(10.0, 8.0, 0.1));
    let swap = "[ -s launches ] && echo other > models/m/m.gguf";
    lab.write_program("runner.sh", "script.toml", swap);
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: the model"), "{}", ran.stderr);
}

#[test]
fn a_comparison_that_was_killed_is_resumed_to_the_same_result() {
    let args = ["--env", "FEATURE=1", "--pairs", "8"];
    let whole = Lab::new(&feature(10.0, 9.7, 1.0));
    assert_eq!(whole.ab(&args).code, Some(0));

    let lab = Lab::new(&feature(10.0, 9.7, 1.0));
    for launches in [1, 6, 11, 20] {
        let mut child = if launches == 1 {
            lab.command(&args)
        } else {
            lab.command(&["--resume", lab.folder().to_str().unwrap()])
        }
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
        while lab.launches() < launches && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let ran = lab.ab(&["--resume", lab.folder().to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
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
    let lab = Lab::new(&feature(10.0, 9.7, 1.0));
    assert_eq!(lab.ab(&["--env", "FEATURE=1", "--pairs", "6"]).code, Some(0));
    lab.write_program("runner.sh", "script.toml", "# other");
    let ran = lab.ab(&["--resume", lab.folder().to_str().unwrap()]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("not what it was: the program: was "), "{}", ran.stderr);
}

#[test]
fn an_interrupted_comparison_leaves_a_partial_report_and_exits_with_130() {
    let lab = Lab::new(
        "[[cell]]\nlaunch = 7\nsleep_ms = 20000\nconsults = [\"FEATURE\"]\n[[cell]]\nconsults = \
         [\"FEATURE\"]\n",
    );
    let child = lab
        .command(&["--env", "FEATURE=1", "--pairs", "6"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while lab.launches() < 8 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(lab.report().contains("**Partial: runs are missing"), "{}", lab.report());
    assert_eq!(lab.result()["partial"], true);
    assert!(ran.stderr.contains("PARTIAL"), "{}", ran.stderr);
    let ran = lab.ab(&["--resume", lab.folder().to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!((lab.result()["partial"].clone(), lab.launches()), (Value::from(false), 19));
}

#[test]
fn a_machine_that_is_never_quiet_is_said_in_the_verdict() {
    let lab = Lab::new(&feature(10.0, 8.0, 0.1));
    let config =
        "model = \"m\"\nrunner = \"scripted\"\nmax_other_load_pct = -1.0\ncooldown_ms = 0\n";
    lab.write("bench-configs/ab/default.toml", config);
    // A repeated run waits a second, so that a burst of load can pass: two of them per slot here.
    let child = lab
        .command(&["--env", "FEATURE=1", "--pairs", "5"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while lab.launches() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    let statuses: Vec<String> = lab
        .samples()
        .iter()
        .filter(|event| event["event"] == "run_end")
        .map(|event| event["status"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(statuses[..6], ["rejected", "rejected", "contended"].repeat(2));
    assert!(ran.stderr.contains("rejected and repeated: other processes took"), "{}", ran.stderr);
    let line = ran.stderr.lines().find(|line| line.starts_with("test against base:")).unwrap();
    assert!(line.contains("; contended: "), "{line}");
}

#[test]
fn another_binary_attributes_the_gain_to_the_switch() {
    let lab = Lab::new(&feature(10.0, 10.74, 0.1));
    lab.write_program("before.sh", "before.toml", "# the build before the change");
    lab.write(
        "before.toml",
        "launch_log = \"launches\"\n[[cell]]\nstep_ms = 10.74\nnoise_pct = 0.1\n",
    );
    let ran = lab.ab(&["--env", "FEATURE=1", "--baseline-bin", "before.sh", "--pairs", "8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let result = lab.result();
    let found = &leg(&result, "test")["attribution"];
    let returned = found["returned_pct"].as_f64().unwrap();
    assert!((returned - 100.0).abs() < 5.0, "{returned}");
    assert!(ran.stderr.contains("% of the gain"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the switched leg lands on the baseline"), "{}", ran.stderr);
    assert_eq!(verdict(&result, "baseline"), "slower");
    assert!(lab.report().contains("## Attribution"));

    let copy = lab.path("copy.sh");
    std::fs::copy(lab.path("runner.sh"), &copy).unwrap();
    let ran = lab.ab(&["--env", "FEATURE=1", "--baseline-bin", "copy.sh"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("byte for byte the program"), "{}", ran.stderr);
}

#[test]
fn gates_decide_the_exit_code_and_noise_is_warned_of() {
    let lab = Lab::new(&feature(10.0, 9.5, 1.0));
    let gates = |gates: &[&str]| {
        let mut args = vec!["--env", "FEATURE=1", "--pairs", "12"];
        gates.iter().for_each(|gate| args.extend(["--gate", gate]));
        lab.ab(&args)
    };
    let passed = gates(&["decode_tok_s >= -1%", "ms_per_token <= 11"]);
    assert_eq!(passed.code, Some(0), "{}", passed.stderr);
    let failed = gates(&["decode_tok_s >= 9%"]);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    let strict = gates(&["load_ms <= 0.000001%"]);
    assert_eq!(strict.code, Some(1));
    assert!(strict.stderr.contains("cannot be met honestly"), "{}", strict.stderr);
    let unknown = gates(&["decode_toks >= 1"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("did you mean `decode_tok_s`?"), "{}", unknown.stderr);
}

#[test]
fn json_is_the_result_and_nothing_tells_of_this_machine() {
    let lab = Lab::new(&feature(10.0, 9.5, 1.0));
    let ran = lab.ab(&["--env", "FEATURE=1", "--pairs", "5", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), lab.result());
    let root = lab.dir.path().to_str().unwrap().to_owned();
    for name in ["samples.jsonl", "result.json", "report.md"] {
        let text = std::fs::read_to_string(lab.folder().join(name)).unwrap();
        assert!(!text.contains(&root), "{name} holds {root}");
    }
    assert!(lab.report().contains("cargo xtask ab --env FEATURE=1 --pairs 5"), "{}", lab.report());
}

#[test]
fn what_cannot_be_compared_is_a_usage_error() {
    let lab = Lab::new("");
    for (args, expected) in [
        (&[][..], "hint: give --env K=V, --leg NAME:K=V or --baseline-bin PATH"),
        (&["--env", "A=0", "--pairs", "4"][..], "4 blocks are too few: the least is 5"),
        (&["--env", "A=0", "--model", "none"][..], "hint: `cargo xtask model list`"),
        (&["--env", "A=0", "--runner", "none"][..], "the runners in bench-configs/runners/ are"),
        (&["--resume", "nowhere"][..], "--resume takes the folder of a comparison"),
        (&["--env", "A=0", "--baseline-bin", "none"][..], "the baseline program"),
    ] {
        let ran = lab.ab(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(lab.launches(), 0);
}
