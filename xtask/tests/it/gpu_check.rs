//! `cargo xtask gpu-check` from outside, over the scripted runner: no GPU is involved.

use testkit::{Redaction, assert_shown};

use lab::{Lab, ZEROS, sound_cell, verdict_of, verdicts};

mod lab;

#[test]
fn a_sound_program_passes_and_everything_is_on_disk() {
    let lab = Lab::new("");
    let output = lab.check(&[]).exits_with(0);
    assert_shown!(Redaction::new(&lab), output.stdout);

    let folder = lab.folder();
    assert!(folder.to_string_lossy().ends_with("-gpu-check-scriptedx1"), "{}", folder.display());
    let journal = lab.read(folder.join("samples.jsonl"));
    let events = lab.read_json_lines(folder.join("samples.jsonl"));
    assert_eq!(events[0]["event"], "gpu_check_start");
    assert_eq!(events.last().unwrap()["event"], "gpu_check_end");
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    // One start, three pairs, three curves, the cap and the rescue.
    assert_eq!((count("leg_launch"), count("leg_end")), (12, 12));
    assert_eq!(lab.names(folder.join("reports")).len(), 12);
    // What the shell had set did not reach the runs that must not have it.
    let launch = events.iter().find(|event| event["run"] == "02-decode-m-on-1").unwrap();
    assert!(launch["environment"]["ARC_CANDLE_ALLOC_CACHE"].is_null());
    let text = lab.read(folder.join("report.md")) + &journal;
    assert!(!text.contains(&*lab.root().to_string_lossy()), "{text}");
    let rescue = events.iter().find(|event| event["run"] == "12-oom-rescue-m-oom-rescue").unwrap();
    let command = rescue["command"].to_string();
    assert!(command.contains("\"--leave-free-mb\",\"0\""), "{command}");
}

#[test]
fn tokens_that_differ_fail() {
    let lab = Lab::new(&sound_cell(
        1,
        "report_file = \"killed-1\"",
        "overlay = {",
        "overlay = { output = { token_ids = [0, 1, 2, 77, 4] },",
    ));
    let output = lab.check(&["--json", "--quick"]).exits_with(1);
    let printed = output.json();
    let (verdict, seen) = verdict_of(&printed, "decode/m");
    assert_eq!(verdict, "fail");
    assert!(seen.contains("differ at token 3"), "{seen}");
    // The other checks were made all the same.
    assert_eq!(verdict_of(&printed, "cap/m").0, "pass");
    assert_eq!(printed, lab.result());
}

#[test]
fn a_report_without_what_it_must_have_fails() {
    let section = "allocator = { totals = {";
    for (replaced, by, because) in [
        (section, "later = { totals = {", "no `allocator` section"),
        ("driver = \"cuda\"", "driver = \"none of yours\"", "`none of yours`, not `cuda`"),
        (ZEROS, "drains = 0", "must be 0 but is not reported"),
        ("\"policy\"", "\"killed\"", "but `policy` was requested"),
    ] {
        let lab = Lab::new(&sound_cell(4, "report_file = \"start\"", replaced, by));
        lab.check(&["--quick"]).exits_with(1);
        let (verdict, seen) = verdict_of(&lab.result(), "start/m");
        assert_eq!((verdict.as_str(), seen.contains(because)), ("fail", true), "{seen}");
    }
    let lab = Lab::new(&sound_cell(0, "", ", oom_retries = 2, oom_rescues = 2", ""));
    // The types have these counters, so that only the text tells that they are missing.
    lab.check(&["--quick"]).exits_with(1);
    let (verdict, seen) = verdict_of(&lab.result(), "oom-rescue/m");
    assert_eq!((verdict.as_str(), seen.contains("oom_retries")), ("fail", true), "{seen}");
}

#[test]
fn memory_that_is_not_kept_fails() {
    let on = ("report_file = \"memory-m-on\"\nleak_bytes_per_step = 4194304", 4);
    let unbounded = ("report_file = \"memory-m-unbounded\"", 2);
    let cap = "driver = \"cuda\", cap_bytes = 1073741824";
    for ((line, number), replaced, by, because) in [
        (on, "", "", "on: held memory grew from 68 to 2620 MiB"),
        (unbounded, "driver = \"cuda\"", cap, "but none was requested"),
        (unbounded, "overlay = {", "overlay = { output = { token_ids = [0] },", "unbounded only 1"),
    ] {
        let lab = Lab::new(&sound_cell(number, line, replaced, by));
        lab.check(&["--quick"]).exits_with(1);
        let (verdict, seen) = verdict_of(&lab.result(), "memory/m");
        assert_eq!((verdict.as_str(), seen.contains(because)), ("fail", true), "{seen}");
    }
}

#[test]
fn a_run_that_was_killed_or_crashed_fails_its_check_alone() {
    for (fault, because) in [
        ("signal = 9\nreport = \"none\"", "SKIP:oom, signal 9"),
        ("signal = 11\nreport = \"none\"", "FAIL:bench, signal 11"),
        (
            "exit = 101\nreport = \"none\"\nstderr = \"thread panicked\"",
            "exit code 101: thread pan",
        ),
        ("report = \"torn\"", "FAIL:no_output"),
    ] {
        let lab = Lab::new(&format!("[[cell]]\nreport_file = \"cap-1-mib\"\n{fault}\n"));
        lab.check(&["--quick"]).exits_with(1);
        let result = lab.result();
        let (verdict, seen) = verdict_of(&result, "cap/m");
        assert_eq!(verdict, "fail");
        assert!(seen.contains(because), "{seen}");
        assert_eq!(verdict_of(&result, "oom-rescue/m").0, "pass");
    }
}

#[test]
fn a_program_that_does_not_start_there_leaves_nothing_to_check() {
    let lab =
        Lab::new("[[cell]]\nexit = 1\nreport = \"none\"\nstderr = \"error: no CUDA device\"\n");
    lab.check(&["--model", "n"]).exits_with(1);
    let result = lab.result();
    let (verdict, seen) = verdict_of(&result, "start/m");
    assert_eq!(verdict, "fail");
    assert!(seen.contains("no CUDA device"), "{seen}");
    assert!(
        lab.folder().ends_with(format!("{}-gpu-check-unknown", result["date"].as_str().unwrap()))
    );
    for (name, verdict) in verdicts(&result) {
        assert_eq!(verdict == "fail", name.starts_with("start/"), "{name}");
    }
}

#[test]
fn what_no_longer_fits_is_left_out_and_said() {
    let slow = "[[cell]]\nreport_file = \"decode-m-on-1\"\nsleep_ms = 2500\n\
                overlay = { device = { backend = \"cuda\", name = \"Scripted X1\" }, settings = { \
                allocator = { state = \"policy\", driver = \"cuda\" } }, allocator = { \
                totals = { ZEROS }, decode_steps = [{ driver_allocs = 1 }] } }\n";
    let lab = Lab::new(&slow.replace("ZEROS", ZEROS));
    lab.check(&["--budget-s", "4"]).exits_with(0);
    let result = lab.result();
    let (verdict, seen) = verdict_of(&result, "memory/m");
    assert_eq!(verdict, "not_possible");
    assert!(seen.contains("of 4 s are left"), "{seen}");
    let journal = lab.read(lab.folder().join("samples.jsonl"));
    assert!(journal.contains("leg_skipped"));
}

#[test]
fn a_run_that_the_budget_cuts_off_within_seconds_is_no_failure_of_the_program() {
    let hang = "[[cell]]\nreport_file = \"decode-m-killed-1\"\nsleep_ms = 60000\n";
    let lab = Lab::new(hang);
    lab.check(&["--budget-s", "5"]).exits_with(0);
    let (verdict, seen) = verdict_of(&lab.result(), "decode/m");
    assert_eq!(verdict, "not_possible", "{seen}");
}

#[test]
fn checks_of_which_none_could_be_made_are_no_success() {
    let lab = Lab::new("[[cell]]\nreport_file = \"start\"\nsleep_ms = 60000\n");
    let output = lab.check(&["--budget-s", "3"]).exits_with(2);
    let text = output.stderr;
    // How long that was depends on when the machine came to start it.
    let begins = "error: none of the 7 checks could run: `start/m`: start: it was cut off after ";
    let ends = " s, when the time was up\nhint: allow more time with --budget-s, or fix what the table names\n";
    assert!(text.contains(begins) && text.ends_with(ends), "{text}");
    // What there is to read is written all the same.
    assert!(output.stdout.contains("not possible"));
    assert!(verdicts(&lab.result()).iter().all(|(_, verdict)| verdict == "not_possible"));
}

#[test]
fn an_interrupted_check_keeps_what_it_has() {
    let hang = "[[cell]]\nreport_file = \"decode-m-killed-1\"\nsleep_ms = 60000\n";
    let lab = Lab::new(hang);
    let child = lab.command(&[]).start();
    child.wait_until(|| lab.launches().len() >= 3);
    child.interrupt().exits_with(130);
    let result = lab.result();
    assert_eq!(result["interrupted"], true);
    assert_eq!(verdicts(&result), [("start/m".to_owned(), "pass".to_owned())]);
    assert_eq!(lab.names(lab.folder().join("reports")).len(), 2);
}

#[test]
fn a_folder_that_is_there_is_never_written_into() {
    let lab = Lab::new("");
    lab.write("out/result.json", "earlier");
    let output = lab.check(&["--out", "out", "--quick"]).exits_with(2);
    assert!(output.stderr.contains("nothing in it is overwritten"), "{}", output.stderr);
    assert_eq!(lab.read("out/result.json"), "earlier");
    assert_eq!(lab.launches().len(), 0, "nothing was launched");
    lab.check(&["--out", "new/out", "--quick"]).exits_with(0);
    assert!(lab.path("new/out/report.md").exists());
}

#[test]
fn the_checker_is_asked_where_it_is_installed() {
    let unsupported = "Error: Device not supported.";
    for (exit, line, code, verdict, because) in [
        (0, "ERROR SUMMARY: 0 errors", 0, "pass", "compute-sanitizer: 0 errors"),
        (86, "ERROR SUMMARY: 3 errors", 1, "fail", "compute-sanitizer: 3 errors"),
        (0, "ERROR SUMMARY: 7 errors", 1, "fail", "compute-sanitizer: 7 errors"),
        (1, unsupported, 0, "not_possible", unsupported),
    ] {
        let lab = Lab::new("");
        let report = if exit == 1 { "exit 1" } else { "\"$program\" \"$@\" || exit 1" };
        lab.write_program(
            "bin/compute-sanitizer",
            &format!(
                "while [ \"$1\" != --model ]; do program=$1; shift; done\necho '========= {line}'\n\
                 {report}\nexit {exit}"
            ),
        );
        lab.check(&["--quick"]).exits_with(code);
        let (found, seen) = verdict_of(&lab.result(), "sanitizer/m");
        assert_eq!((found.as_str(), seen.ends_with(because)), (verdict, true), "{seen}");
    }
}

#[test]
fn what_is_missing_is_named_before_anything_is_launched() {
    let lab = Lab::new("");
    let output = lab.check(&["--model", "o"]).exits_with(2);
    assert_shown!(Redaction::new(&lab), output);
    lab.remove("decode-bench");
    let output = lab.check(&["--quick"]).exits_with(2);
    assert!(output.stderr.contains("hint: build it: cargo xtask cuda-setup"));
    lab.check(&["--budget-s", "0"]).exits_with(2);
}

#[test]
fn a_recorded_model_is_not_launched_and_an_oom_of_its_own_is_recorded_once() {
    let lab = Lab::new("");
    lab.write("benchmarks/.oom-record", "m,16,2026-07-03,abc1234,,old.csv\n");
    let ran = lab.check(&["--quick"]).exits_with(2);
    let said = "not launched: the OOM record holds `m,16,2026-07-03,abc1234,,old.csv`";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    assert!(ran.stderr.contains("`cargo xtask gpu-check --ignore-oom-record`"), "{}", ran.stderr);
    assert!(lab.launches().is_empty());
    assert!(!lab.path("benchmarks/ab").exists());
    lab.check(&["--quick", "--ignore-oom-record"]).exits_with(0);

    // What a sweep recorded with no more tokens, and with more than any run generates.
    let lab = Lab::new("");
    lab.write("benchmarks/.oom-record", "m+g2,16,2026-07-03,abc1234,,old.csv\n");
    let ran = lab.check(&["--quick"]).exits_with(2);
    assert!(ran.stderr.contains("holds `m+g2,16,2026-07-03,"), "{}", ran.stderr);
    lab.write("benchmarks/.oom-record", "m+g99999,16,2026-07-03,abc1234,,old.csv\n");
    lab.check(&["--quick"]).exits_with(0);

    let oom = "report_file = \"killed-1\"\nexit = 1\nreport = \"none\"\n\
               stderr = \"CUDA_ERROR_OUT_OF_MEMORY\"\n";
    let lab = Lab::new(&format!("[[cell]]\n{oom}"));
    lab.check(&["--quick"]).exits_with(1);
    let record = lab.read("benchmarks/.oom-record");
    assert!(record.starts_with("m+killed,") && record.lines().count() == 1, "{record}");
    assert!(record.trim_end().ends_with("/samples.jsonl,gpu-check"), "{record}");
}
