//! Real decode over the host allocator: the same tokens whatever the cache does, and the driver left
//! alone once it is warm.
#![cfg(feature = "decode")]

use std::path::{Path, PathBuf};
use std::process::Command;

use formats::cell_report::CellReport;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Measures one cell in a process of its own.
fn decode(model: &Path, tokens: usize, driver: &str, environment: &[(&str, &str)]) -> CellReport {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("cell.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_decode-bench"));
    command.current_dir(workspace()).arg("-m").arg(model).arg("--report").arg(&report);
    command.args(["--prompt-tokens", "32", "--threads", "2", "--host-driver", driver]);
    command.args(["-n", &tokens.to_string()]);
    for name in ["ARC_CANDLE_ALLOC_CACHE", "ARC_ALLOC_CACHE_MAX_MB", "ARC_ALLOC_CACHE_STATS"] {
        command.env_remove(name);
    }
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    if environment.iter().any(|(name, _)| *name == "ARC_ALLOC_CACHE_STATS") {
        assert!(errors.contains("alloc cache: step"), "{errors}");
    } else {
        assert!(!errors.contains("alloc cache"), "nothing is printed unless asked for: {errors}");
    }
    serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap()
}

fn allocs_per_step(report: &CellReport, skip: usize) -> f64 {
    let steps = &report.allocator.as_ref().unwrap().decode_steps[skip..];
    steps.iter().map(|step| step.driver_allocs).sum::<u64>() as f64 / steps.len() as f64
}

fn check_promises(model: &Path, tokens: usize) {
    let on = decode(model, tokens, "mmap", &[]);
    let legs = [
        decode(model, tokens, "mmap", &[("ARC_CANDLE_ALLOC_CACHE", "0")]),
        decode(model, tokens, "system", &[("ARC_CANDLE_ALLOC_CACHE", "off")]),
        decode(model, tokens, "system", &[("ARC_ALLOC_CACHE_STATS", "8")]),
        decode(model, tokens, "mmap", &[("ARC_ALLOC_CACHE_MAX_MB", "1")]),
        decode(model, tokens, "mmap", &[("ARC_ALLOC_CACHE_MAX_MB", "0")]),
    ];
    assert!(on.output.token_hash.is_some());
    for leg in &legs {
        assert_eq!(leg.output.token_hash, on.output.token_hash, "{:?}", leg.settings.allocator);
        let allocator = leg.allocator.as_ref().unwrap();
        assert!(allocator.totals.must_be_zero.values().all(|&count| count == 0));
        for step in &allocator.decode_steps {
            let bypasses: u64 = step.bypasses.values().sum();
            assert_eq!(step.hits + step.misses + bypasses, step.requests);
        }
    }
    let [killed_mmap, killed_system, on_system, small, unbounded] = &legs;
    let warm = tokens / 2;
    for report in [&on, on_system, unbounded] {
        let allocs = allocs_per_step(report, warm);
        assert!(allocs < 2.0, "{allocs} driver allocations a step: {:?}", report.settings);
    }
    for report in [killed_mmap, killed_system] {
        // A step allocates its buffers once; those of a page and more reach the driver.
        assert!(allocs_per_step(report, warm) >= 1.0);
        let settings = report.settings.allocator.as_ref().unwrap();
        assert_eq!((settings.state.as_str(), settings.cap_bytes), ("killed", None));
    }
    let settings = |report: &CellReport| report.settings.allocator.clone().unwrap();
    assert_eq!(settings(small).cap_bytes, Some(1 << 20));
    assert!(small.memory.idle_peak_bytes.unwrap() <= 1 << 20);
    assert_eq!(settings(unbounded).cap_bytes, None);
    assert_eq!(settings(unbounded).cap_source.as_deref(), Some("ARC_ALLOC_CACHE_MAX_MB"));
    assert!(settings(&on).cap_bytes.is_some());
    let read: Vec<_> = small.environment.iter().map(|var| var.name.as_str()).collect();
    assert!(read.contains(&"ARC_ALLOC_CACHE_MAX_MB") && read.contains(&"ARC_CANDLE_ALLOC_CACHE"));
    let memory = &on.memory;
    assert!(memory.total_peak_bytes >= memory.live_bytes && memory.live_bytes.unwrap() > 0);
    assert!(memory.windows.iter().all(|window| window.held_end_bytes.is_some()));
}

#[test]
fn a_synthetic_model_decodes_the_same_whatever_the_cache_does() {
    check_promises(&workspace().join("bench-configs/models/tiny.toml"), 48);
}

#[test]
fn a_real_model_decodes_the_same_whatever_the_cache_does() {
    let model = workspace().join("models/smollm2-135m");
    if model.exists() {
        check_promises(&model, 24);
    } else {
        skip("models/smollm2-135m");
    }
}

/// Least-squares slope of the held bytes over steps, and its 95 % interval.
fn slope_bytes_per_step(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sxx: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let slope = sxy / sxx;
    let rest: f64 = points.iter().map(|p| (p.1 - mean_y - slope * (p.0 - mean_x)).powi(2)).sum();
    (slope, 2.0 * (rest / (n - 2.0) / sxx).sqrt())
}

#[test]
fn held_memory_is_flat_over_two_thousand_tokens() {
    let report = decode(&workspace().join("bench-configs/models/tiny.toml"), 2001, "mmap", &[]);
    let windows = &report.memory.windows;
    assert_eq!(windows.iter().map(|window| window.steps).sum::<u64>(), 2000);
    // The first windows stock the cache.
    let points: Vec<(f64, f64)> = windows[4..]
        .iter()
        .map(|window| (window.first_step as f64, window.total_peak_bytes.unwrap() as f64))
        .collect();
    let (slope, half_width) = slope_bytes_per_step(&points);
    note(&format!("held memory: {slope:.0} ± {half_width:.0} bytes a token over 2,000 tokens"));
    assert!(slope < 0.05 * f64::from(1 << 20), "{slope} bytes a token");
}

#[allow(clippy::print_stderr, reason = "a test says what it measured or skipped")]
fn note(text: &str) {
    eprintln!("{text}");
}

fn skip(what: &str) {
    note(&format!("skipped: {what} is not there"));
}
