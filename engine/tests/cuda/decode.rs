//! The real decode path on the device, through `decode-bench`.

use std::path::Path;
use std::process::{Command, Output};

use formats::cell_report::{AllocCounters, CellReport};

use crate::harness::{Expect, StandInReport, workspace};

const TINY: &str = "bench-configs/models/tiny.toml";
/// Workspaces of its quantised kernels that candle keeps in statics to the end of the process: one
/// for vectors, two for matrices, each once it was needed.
const CANDLE_STATICS: u64 = 3;

struct Run {
    report: CellReport,
    driver: StandInReport,
    errors: String,
}

fn command(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_decode-bench"));
    command.current_dir(workspace()).args(["-m", TINY, "--device", "cuda", "--threads", "1"]);
    command.arg("--report").arg(folder.join("cell.json")).args(arguments);
    for name in ["ARC_CANDLE_ALLOC_CACHE", "ARC_ALLOC_CACHE_MAX_MB", "ARC_ALLOC_CACHE_STATS"] {
        command.env_remove(name);
    }
    command.env("ARC_STANDIN_REPORT", folder.join("standin.txt"));
    command.envs(environment.iter().copied());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn decode(arguments: &[&str], environment: &[(&str, &str)]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let Output { status, stderr, .. } =
        command(folder.path(), arguments, environment).output().unwrap();
    let errors = text(&stderr);
    assert!(status.success(), "{status}: {errors}");
    let report = std::fs::read(folder.path().join("cell.json")).unwrap();
    let driver = std::fs::read_to_string(folder.path().join("standin.txt")).unwrap();
    let run = Run {
        report: serde_json::from_slice(&report).unwrap(),
        driver: StandInReport(driver),
        errors,
    };
    run.driver.check(Expect::NoViolation);
    assert!(run.driver.get("live_blocks") <= CANDLE_STATICS, "{}", run.driver.0);
    run
}

fn steps(run: &Run) -> &[AllocCounters] {
    &run.report.allocator.as_ref().unwrap().decode_steps
}

fn state(run: &Run) -> (&str, &str) {
    let settings = run.report.settings.allocator.as_ref().unwrap();
    (&settings.state, settings.driver.as_deref().unwrap())
}

#[test]
fn steady_decode_leaves_the_driver_alone_and_the_tokens_as_they_are() {
    let arguments = ["--prompt-tokens", "64", "-n", "100"];
    let on = decode(&arguments, &[("ARC_ALLOC_CACHE_STATS", "32")]);
    let killed = decode(&arguments, &[("ARC_CANDLE_ALLOC_CACHE", "0")]);
    let small = decode(&arguments, &[("ARC_ALLOC_CACHE_MAX_MB", "1")]);
    let unbounded = decode(&arguments, &[("ARC_ALLOC_CACHE_MAX_MB", "0")]);
    let no_pools = decode(&arguments, &[("ARC_STANDIN_POOLS", "0")]);
    for other in [&killed, &small, &unbounded, &no_pools] {
        assert_eq!(other.report.output.token_ids, on.report.output.token_ids);
    }
    assert_eq!(state(&on), ("policy", "cuda"));
    assert_eq!(state(&killed), ("killed", "cuda"));
    for run in [&on, &small, &unbounded, &no_pools] {
        // The first steps fill the cache.
        let steady = &steps(run)[8..];
        let allocs: u64 = steady.iter().map(|step| step.driver_allocs).sum();
        let frees: u64 = steady.iter().map(|step| step.driver_frees).sum();
        assert!(allocs < 2 * steady.len() as u64, "{allocs} in {} steps", steady.len());
        assert_eq!(frees, 0);
        let totals = &run.report.allocator.as_ref().unwrap().totals;
        assert!(totals.must_be_zero.values().all(|&count| count == 0), "{totals:?}");
        let memory = &run.report.memory;
        assert_eq!(memory.windows.len(), 2);
        assert!(memory.total_peak_bytes >= memory.live_peak_bytes);
        assert!(memory.device_used_bytes > memory.live_bytes, "NVML counts more than the cache");
        assert!(memory.device_unattributed_bytes.is_some());
        assert!(memory.windows.iter().all(|window| window.device_free_end_bytes.is_some()));
    }
    assert!(small.report.memory.idle_peak_bytes.unwrap() <= 1 << 20);
    // Every step of unmodified candle allocates and frees the same number of blocks.
    let per_step = steps(&killed)[0].driver_allocs;
    assert!(per_step >= 20, "{per_step}");
    for step in steps(&killed) {
        assert_eq!((step.driver_allocs, step.driver_frees), (per_step, per_step));
        assert_eq!(step.bypasses["killed"], step.requests);
    }
    let totals = &killed.report.allocator.as_ref().unwrap().totals;
    assert_eq!(totals.driver_allocs, killed.driver.get("alloc_async"), "counted to the call");
    assert_eq!(killed.driver.get("live_blocks"), CANDLE_STATICS);
    assert_eq!(on.driver.get("live_blocks"), CANDLE_STATICS, "nothing of the cache's is left");
    assert!(totals.host_ns.is_some());
    assert_eq!(killed.report.memory.live_bytes, None, "what is not known is not 0");
    assert!(on.errors.contains("alloc cache: step"), "{}", on.errors);
    let allocs = on.report.allocator.as_ref().unwrap().totals.driver_allocs;
    assert_eq!(allocs, on.driver.get("alloc_async"), "the driver's own count");
    assert_eq!(on.report.device.backend.as_deref(), Some("cuda"));
    assert!(on.report.engine.features.iter().any(|feature| feature == "cuda"));
}

#[test]
fn the_host_allocator_stays_out_of_a_run_on_the_device() {
    let run = decode(&["--prompt-tokens", "8", "-n", "4"], &[]);
    let totals = &run.report.allocator.as_ref().unwrap().totals;
    assert!(!totals.bypasses.contains_key("small"), "requests of the host are not counted here");
    assert_eq!(totals.driver_allocs, run.driver.get("alloc_async"));
}

#[test]
fn device_memory_is_null_where_the_driver_does_not_tell() {
    let run = decode(&["--prompt-tokens", "8", "-n", "4"], &[("ARC_STANDIN_NVML", "0")]);
    assert_eq!(run.report.memory.device_used_bytes, None);
    assert_eq!(run.report.memory.device_unattributed_bytes, None);
}

#[test]
fn running_out_of_memory_in_decode_is_survived_by_giving_back() {
    let arguments = ["--prompt-tokens", "32", "-n", "24"];
    let small_device = ("ARC_STANDIN_CAPACITY_MB", "400");
    let roomy = [small_device, ("ARC_ALLOC_CACHE_MAX_MB", "256")];
    let calm = decode(&arguments, &roomy);
    let squeezed = [&arguments[..], &["--leave-free-mb", "0"]].concat();
    let tight = decode(&squeezed, &roomy);
    assert_eq!(tight.report.output.token_ids, calm.report.output.token_ids);
    let [calm, tight] = [&calm, &tight].map(|run| &run.report.allocator.as_ref().unwrap().totals);
    assert_eq!((calm.oom_retries, calm.oom_rescues), (0, 0));
    assert!(tight.oom_rescues > 0 && tight.oom_retries == tight.oom_rescues, "{tight:?}");
    // Without a cache there is nothing to give back.
    let folder = tempfile::tempdir().unwrap();
    let killed = [small_device, ("ARC_CANDLE_ALLOC_CACHE", "0")];
    let output = command(folder.path(), &squeezed, &killed).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("CUDA_ERROR_OUT_OF_MEMORY"));
}

#[test]
fn running_out_of_memory_is_an_error_that_names_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--prompt-tokens", "64", "-n", "8"];
    let output =
        command(folder.path(), &arguments, &[("ARC_STANDIN_CAPACITY_MB", "14")]).output().unwrap();
    assert!(!output.status.success());
    let errors = text(&output.stderr);
    assert!(errors.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{errors}");
    assert!(errors.contains("out of memory: requested"), "{errors}");
    assert!(errors.contains("live ") && errors.contains("pinned "), "{errors}");
    assert!(!folder.path().join("cell.json").exists());
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &[], &[]);
    let output = command.args(["--device", "cuda:7"]).output().unwrap();
    let errors = text(&output.stderr);
    assert!(!output.status.success());
    // Either clap refuses the second --device, or the driver the seventh card; never a panic.
    assert!(errors.contains("error:") && !errors.contains("panicked"), "{errors}");
}

#[test]
fn the_program_starts_without_cuda_and_says_what_is_missing() {
    let binary = env!("CARGO_BIN_EXE_decode-bench");
    let empty = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        Command::new(binary)
            .current_dir(workspace())
            .env("LD_LIBRARY_PATH", empty.path())
            .args(arguments)
            .output()
            .unwrap()
    };
    assert!(run(&["--help"]).status.success());
    let cpu = run(&["-m", TINY, "--prompt-tokens", "4", "-n", "2", "--threads", "1"]);
    assert!(cpu.status.success(), "{}", text(&cpu.stderr));
    let cuda = run(&["-m", TINY, "--device", "cuda"]);
    let errors = text(&cuda.stderr);
    assert_eq!(cuda.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot load libcu"), "{errors}");
    assert!(errors.contains("it comes with the "), "{errors}");
}

#[test]
fn reserving_memory_needs_a_device() {
    let output = Command::new(env!("CARGO_BIN_EXE_decode-bench"))
        .current_dir(workspace())
        .args(["-m", TINY, "--prompt-tokens", "4", "-n", "2", "--leave-free-mb", "1"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("needs a CUDA device"), "{}", text(&output.stderr));
}
