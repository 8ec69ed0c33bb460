//! What is no fault of a driver, and where nobody is asked.

use testkit::{Ran, Script};

use super::{Lab, SWEEP, run_sick, sick_lab};

/// A sweep of `lab` with more in its environment.
fn sweep_with(lab: &Lab, nvml: &str, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let (state, log) = (lab.path("state"), lab.path("kernel.log"));
    let own = [
        ("ARC_NVML_LIBRARY", nvml),
        ("TEST_NVML_STATE", state.to_str().unwrap()),
        ("ARC_KERNEL_LOG", log.to_str().unwrap()),
    ];
    lab.run_with(args, &[&own, env].concat())
}

const ALL_LAUNCHED: &str = "512\n1024\n2048\n";

#[test]
fn a_desktop_that_was_there_before_is_named_once_and_is_no_fault() {
    let (lab, nvml) = sick_lab("kill -SEGV $$");
    lab.write("state", "desktop");
    let ran = run_sick(&lab, &nvml, &SWEEP);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(lab.read("launched.txt"), ALL_LAUNCHED);
    let note = "note: on the GPU from the start, and no fault: 4100000 (another user's), 4100001 \
                (another user's)\n";
    assert_eq!(ran.stderr.matches(note).count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("disturbed"), "{}", ran.stderr);
    let start = &lab.read_json_lines("o.csv.journal.jsonl")[0];
    let standing = &start["health"]["driver"]["answers"]["standing"];
    assert_eq!(standing.as_object().unwrap().len(), 2, "{start}");
}

#[test]
fn that_the_kernels_log_cannot_be_read_is_said_once() {
    let (lab, nvml) = sick_lab("kill -SEGV $$");
    let ran = sweep_with(&lab, &nvml, &SWEEP, &[("ARC_KERNEL_LOG", "/nonexistent")]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(lab.read("launched.txt"), ALL_LAUNCHED);
    assert_eq!(ran.stderr.matches("note: the kernel's log cannot be read here").count(), 1);
    let start = &lab.read_json_lines("o.csv.journal.jsonl")[0];
    assert!(start["health"]["kernel"].is_null(), "{start}");
}

#[test]
fn a_sweep_of_the_processor_alone_goes_on_beside_others_on_the_gpu() {
    let (lab, nvml) = sick_lab("echo lost busy > state; kill -SEGV $$");
    lab.write("state", "busy");
    let path = "bench-configs/sweep/s.toml";
    lab.write(path, format!("device = \"cpu\"\n{}", lab.read(path)));
    let ran = run_sick(&lab, &nvml, &SWEEP);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(lab.read("launched.txt"), ALL_LAUNCHED);
    assert!(!ran.stderr.contains("healthy"), "{}", ran.stderr);
    assert!(lab.read_json_lines("o.csv.journal.jsonl")[0]["health"].is_null());
}

#[test]
fn where_programs_see_no_gpu_its_driver_is_not_asked() {
    let (lab, nvml) = sick_lab("true");
    lab.write("state", "hang");
    for (devices, csv) in [("-1", "a.csv"), ("", "b.csv")] {
        let args = [&SWEEP[..4], &[csv]].concat();
        let ran = sweep_with(&lab, &nvml, &args, &[("CUDA_VISIBLE_DEVICES", devices)]);
        assert_eq!(ran.code, Some(0), "{devices}: {}", ran.stderr);
        assert!(!lab.read(csv).contains("NVIDIA"), "{}", lab.read(csv));
    }
}

#[test]
fn a_gpu_that_is_lost_harms_those_alone_who_see_it() {
    let (lab, nvml) = sick_lab("true");
    lab.write("state", "fallen");
    let ran = run_sick(&lab, &nvml, &SWEEP);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let said = "error: the NVIDIA driver fails: device fell off the bus or has otherwise become \
                inacessible\nhint: reset the GPU";
    assert!(ran.stderr.starts_with(said), "{}", ran.stderr);
    assert!(!lab.path("launched.txt").exists());
    let ran = sweep_with(&lab, &nvml, &SWEEP, &[("CUDA_VISIBLE_DEVICES", "GPU-bb")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(lab.read("o.csv").contains(",NVIDIA_X1_24GB"));
}

#[test]
fn a_sweep_does_not_go_on_on_a_gpu_of_another_kind() {
    let (lab, nvml) = sick_lab("true");
    lab.write("state", "mixed");
    let ran = sweep_with(&lab, &nvml, &SWEEP, &[("CUDA_VISIBLE_DEVICES", "GPU-bb")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (csv, journal) = (lab.read("o.csv"), lab.read("o.csv.journal.jsonl"));
    let resume = ["sweep", "--resume", "o.csv"];
    let ran = sweep_with(&lab, &nvml, &resume, &[("CUDA_VISIBLE_DEVICES", "GPU-aa")]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("hardware: NVIDIA_X2_24GB → NVIDIA_X1_24GB"), "{}", ran.stderr);
    assert_eq!((lab.read("o.csv"), lab.read("o.csv.journal.jsonl")), (csv, journal));
}

#[test]
fn after_a_reboot_memory_is_what_it_is_and_the_reboot_is_noted() {
    let (lab, nvml) = sick_lab("echo lost > state; kill -SEGV $$");
    assert_eq!(run_sick(&lab, &nvml, &SWEEP).code, Some(2));
    let path = "o.csv.journal.jsonl";
    let boot = lab.read_json_lines(path)[0]["boot"].as_str().unwrap().to_owned();
    lab.write(path, lab.read(path).replace(&boot, "another"));
    let ran = run_sick(&lab, &nvml, &["sweep", "--resume", "o.csv"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let note =
        "note: changed since the last start: the machine was started anew since the last session";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(lab.read("launched.txt"), ALL_LAUNCHED);
    let starts: Vec<_> = lab
        .read_json_lines(path)
        .into_iter()
        .filter(|entry| entry["event"] == "sweep_start")
        .collect();
    assert!(starts[1]["notes"].to_string().contains("was started anew"), "{}", starts[1]);
}

/// `oom-record confirm` without a limit is a hard cell by intent.
#[test]
fn a_recorded_cell_is_launched_again_only_on_a_driver_that_is_well() {
    let (lab, nvml) =
        sick_lab("echo '4,2,2,-;NVRM: Xid (PCI:0000:01:00): 79, fell off the bus' >> kernel.log");
    let event = "m,1024,2026-07-01,unknown,,gone.csv\n";
    lab.write("benchmarks/.oom-record", event);
    lab.script(&Script::new());
    let confirm = ["oom-record", "confirm", "m", "--runner", "ill"];

    lab.write("state", "busy");
    let ran = std::thread::scope(|scope| {
        // Thirty seconds are not waited for: whoever computes here leaves at once.
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(1500));
            lab.write("state", "");
        });
        run_sick(&lab, &nvml, &confirm)
    });
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let waited = ran.stderr.find("oom-record: not healthy yet: process 4000000");
    let launched = ran.stderr.find("oom-record: launching m at 1024 tokens");
    assert!(waited.is_some() && waited < launched, "{}", ran.stderr);
    assert!(ran.stderr.contains("the record is left as it is"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the kernel logged `NVRM: Xid"), "{}", ran.stderr);
    assert_eq!(lab.read("launched.txt"), "1024\n");
    assert_eq!(lab.read("benchmarks/.oom-record"), event);
}

/// Other commands launch cells as well, and have no pause of their own in which to look.
#[test]
fn a_comparison_ends_where_a_run_has_left_the_driver_ill() {
    let (lab, nvml) = sick_lab(
        "if [ \"$X\" ]; then echo '4,2,2,-;NVRM: Xid (PCI:0000:01:00): 31, MMU fault' >> kernel.log; \
         exit 1; fi",
    );
    lab.write(
        "bench-configs/ab/default.toml",
        "model = \"m\"\nrunner = \"ill\"\nprompt_tokens = 1024\nmax_tokens = 32\nmax_blocks = 8\nquiet = \"noted\"\n",
    );
    lab.commit("x");
    let ran = run_sick(&lab, &nvml, &["ab", "--leg", "one:X=1", "--leg", "two:X="]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let said = "error: the driver is not healthy: the kernel logged `NVRM: Xid (PCI:0000:01:00): 31, MMU \
                fault`\nhint: nothing was launched since";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let folder = format!("benchmarks/ab/{}", lab.names("benchmarks/ab")[0]);
    let entries = lab.read_json_lines(format!("{folder}/samples.jsonl"));
    let is = |event: &'static str| entries.iter().filter(move |entry| entry["event"] == event);
    assert_eq!(is("run_end").next_back().unwrap()["leg"], "one", "it was the last");
    assert_eq!(is("run_launch").count(), is("run_end").count());
    assert_eq!(is("run_launch").count(), lab.read("launched.txt").lines().count());
}
