//! `cargo xtask gpu-check` from outside, over the scripted runner: no GPU is involved.

#[path = "fixture/folder.rs"]
mod folder;
#[path = "fixture/gpu_workspace.rs"]
mod gpu_workspace;

use std::process::Stdio;

use serde_json::Value;

use gpu_workspace::{Workspace, ZEROS, sound_cell, stderr, verdict_of, verdicts};

#[test]
fn a_sound_program_passes_and_everything_is_on_disk() {
    let workspace = Workspace::new("");
    let output = workspace.check(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let stdout = String::from_utf8(output.stdout).unwrap();
    insta::assert_snapshot!(stdout, @r"
    CHECK          VERDICT       SEEN
    start/m        pass          Scripted X1, 8 GiB; allocator `policy` over `cuda`; loaded in 0.0 s
    decode/m       pass          per step: on 1.0 allocs + 0.0 frees in 0.03 ms, killed 500.0 allocs + 500.0 frees in 0.90 ms; tok/s:
                                 on 1000.0, killed 500.0 (+100.0 %); same tokens in 6 runs
    memory/m       pass          over 2500 tokens: on flat (+0.000 MiB a token, 64 MiB held at the end), unbounded growing (+1.000
                                 MiB a token, 2563 MiB held at the end), killed flat (+0.000 MiB a token, 64 MiB held at the end);
                                 same tokens
    cap/m          pass          at most 0.95 MiB idle under a cap of 1 MiB; 60.0 allocs + 60.0 frees per step; same tokens
    oom-rescue/m   pass          with 0 MiB left free, 2 of 2 failed allocations were rescued; same tokens
    sanitizer/m    not possible  compute-sanitizer is not installed
    graph-capture  not possible  decode-bench does not offer graph capture; docs/CUDA.md says why
    ");

    let folder = workspace.folder();
    assert!(folder.to_string_lossy().ends_with("-gpu-check-scriptedx1"), "{}", folder.display());
    let journal = std::fs::read_to_string(folder.join("samples.jsonl")).unwrap();
    let events: Vec<Value> =
        journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["event"], "gpu_check_start");
    assert_eq!(events.last().unwrap()["event"], "gpu_check_end");
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    // One start, three pairs, three curves, the cap and the rescue.
    assert_eq!((count("leg_launch"), count("leg_end")), (12, 12));
    assert_eq!(std::fs::read_dir(folder.join("reports")).unwrap().count(), 12);
    // What the shell had set did not reach the runs that must not have it.
    let launch = events.iter().find(|event| event["run"] == "02-decode-m-on-1").unwrap();
    assert!(launch["environment"]["ARC_CANDLE_ALLOC_CACHE"].is_null());
    let text = std::fs::read_to_string(folder.join("report.md")).unwrap() + &journal;
    assert!(!text.contains(&*workspace.root().to_string_lossy()), "{text}");
    let rescue = events.iter().find(|event| event["run"] == "12-oom-rescue-m-oom-rescue").unwrap();
    let command = rescue["command"].to_string();
    assert!(command.contains("\"--leave-free-mb\",\"0\""), "{command}");
}

#[test]
fn tokens_that_differ_fail() {
    let workspace = Workspace::new(&sound_cell(
        1,
        "report_file = \"killed-1\"",
        "overlay = {",
        "overlay = { output = { token_ids = [0, 1, 2, 77, 4] },",
    ));
    let output = workspace.check(&["--json", "--quick"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (verdict, seen) = verdict_of(&printed, "decode/m");
    assert_eq!(verdict, "fail");
    assert!(seen.contains("differ at token 3"), "{seen}");
    // The other checks were made all the same.
    assert_eq!(verdict_of(&printed, "cap/m").0, "pass");
    assert_eq!(printed, workspace.result());
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
        let workspace = Workspace::new(&sound_cell(4, "report_file = \"start\"", replaced, by));
        let output = workspace.check(&["--quick"]);
        assert_eq!(output.status.code(), Some(1), "{because}: {}", stderr(&output));
        let (verdict, seen) = verdict_of(&workspace.result(), "start/m");
        assert_eq!((verdict.as_str(), seen.contains(because)), ("fail", true), "{seen}");
    }
    let workspace = Workspace::new(&sound_cell(0, "", ", oom_retries = 2, oom_rescues = 2", ""));
    // The types have these counters, so that only the text tells that they are missing.
    assert_eq!(workspace.check(&["--quick"]).status.code(), Some(1));
    let (verdict, seen) = verdict_of(&workspace.result(), "oom-rescue/m");
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
        let workspace = Workspace::new(&sound_cell(number, line, replaced, by));
        let output = workspace.check(&["--quick"]);
        assert_eq!(output.status.code(), Some(1), "{because}: {}", stderr(&output));
        let (verdict, seen) = verdict_of(&workspace.result(), "memory/m");
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
        let workspace =
            Workspace::new(&format!("[[cell]]\nreport_file = \"cap-1-mib\"\n{fault}\n"));
        let output = workspace.check(&["--quick"]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let result = workspace.result();
        let (verdict, seen) = verdict_of(&result, "cap/m");
        assert_eq!(verdict, "fail");
        assert!(seen.contains(because), "{seen}");
        assert_eq!(verdict_of(&result, "oom-rescue/m").0, "pass");
    }
}

#[test]
fn a_program_that_does_not_start_there_leaves_nothing_to_check() {
    let workspace = Workspace::new(
        "[[cell]]\nexit = 1\nreport = \"none\"\nstderr = \"error: no CUDA device\"\n",
    );
    let output = workspace.check(&["--model", "n"]);
    assert_eq!(output.status.code(), Some(1));
    let result = workspace.result();
    let (verdict, seen) = verdict_of(&result, "start/m");
    assert_eq!(verdict, "fail");
    assert!(seen.contains("no CUDA device"), "{seen}");
    assert!(
        workspace
            .folder()
            .ends_with(format!("{}-gpu-check-unknown", result["date"].as_str().unwrap()))
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
    let workspace = Workspace::new(&slow.replace("ZEROS", ZEROS));
    let output = workspace.check(&["--budget-s", "4"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = workspace.result();
    let (verdict, seen) = verdict_of(&result, "memory/m");
    assert_eq!(verdict, "not_possible");
    assert!(seen.contains("of 4 s are left"), "{seen}");
    let journal = std::fs::read_to_string(workspace.folder().join("samples.jsonl")).unwrap();
    assert!(journal.contains("leg_skipped"));
}

#[test]
fn a_run_that_the_budget_cuts_off_within_seconds_is_no_failure_of_the_program() {
    let hang = "[[cell]]\nreport_file = \"decode-m-killed-1\"\nsleep_ms = 60000\n";
    let workspace = Workspace::new(hang);
    let output = workspace.check(&["--budget-s", "5"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (verdict, seen) = verdict_of(&workspace.result(), "decode/m");
    assert_eq!(verdict, "not_possible", "{seen}");
}

#[test]
fn checks_of_which_none_could_be_made_are_no_success() {
    let workspace = Workspace::new("[[cell]]\nreport_file = \"start\"\nsleep_ms = 60000\n");
    let output = workspace.check(&["--budget-s", "2.2"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(
        text.ends_with(
            "error: none of the 7 checks could run: `start/m`: start: it was cut off after 2 s, when \
             the time was up\nhint: allow more time with --budget-s, or fix what the table names\n"
        ),
        "{text}"
    );
    // What there is to read is written all the same.
    assert!(String::from_utf8(output.stdout).unwrap().contains("not possible"));
    assert!(verdicts(&workspace.result()).iter().all(|(_, verdict)| verdict == "not_possible"));
}

#[test]
fn an_interrupted_check_keeps_what_it_has() {
    let hang = "[[cell]]\nreport_file = \"decode-m-killed-1\"\nsleep_ms = 60000\n";
    let workspace = Workspace::new(hang);
    let mut child =
        workspace.command(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    for _ in 0..2000 {
        let launches = std::fs::read_to_string(workspace.path("launches.txt")).unwrap_or_default();
        if launches.lines().count() >= 3 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // SAFETY: a plain system call on a child that is not reaped yet.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let result = workspace.result();
    assert_eq!(result["interrupted"], true);
    assert_eq!(verdicts(&result), [("start/m".to_owned(), "pass".to_owned())]);
    assert_eq!(std::fs::read_dir(workspace.folder().join("reports")).unwrap().count(), 2);
}

#[test]
fn a_folder_that_is_there_is_never_written_into() {
    let workspace = Workspace::new("");
    workspace.write("out/result.json", "earlier");
    let output = workspace.check(&["--out", "out", "--quick"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nothing in it is overwritten"), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(workspace.path("out/result.json")).unwrap(), "earlier");
    assert!(!workspace.path("launches.txt").exists(), "nothing was launched");
    let output = workspace.check(&["--out", "new/out", "--quick"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(workspace.path("new/out/report.md").exists());
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
        let workspace = Workspace::new("");
        let report = if exit == 1 { "exit 1" } else { "\"$program\" \"$@\" || exit 1" };
        workspace.write_program(
            "bin/compute-sanitizer",
            &format!(
                "while [ \"$1\" != --model ]; do program=$1; shift; done\necho '========= {line}'\n\
                 {report}\nexit {exit}"
            ),
        );
        let output = workspace.check(&["--quick"]);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", stderr(&output));
        let (found, seen) = verdict_of(&workspace.result(), "sanitizer/m");
        assert_eq!((found.as_str(), seen.ends_with(because)), (verdict, true), "{seen}");
    }
}

#[test]
fn what_is_missing_is_named_before_anything_is_launched() {
    let workspace = Workspace::new("");
    let output = workspace.check(&["--model", "o"]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(stderr(&output), @r"
    error: model `o`: no geometry, no folder under `models/` and no path is called `o`
    hint: cargo xtask model list
    ");
    std::fs::remove_file(workspace.path("decode-bench")).unwrap();
    let output = workspace.check(&["--quick"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("hint: build it: cargo xtask cuda-setup"));
    let output = workspace.check(&["--budget-s", "0"]);
    assert_eq!(output.status.code(), Some(2));
}
