//! What a cell costs beyond its child: a sweep of 200 cells whose runner exits at once, next to the
//! same children started one by one without a harness.
//!
//! Run with `cargo bench -p xtask --bench harness_cost`. Every cell includes its fsyncs (journal
//! twice, CSV once). Each round runs both, so that a slow moment meets both.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const MODELS: usize = 10;
const LENGTHS: usize = 20;
const ROUNDS: usize = 5;
const PROFILE: &str = "Prompt tokens: 8\\nGenerated tokens: 4\\nPrefill: 10.00 ms (800.00 \
                       tok/s)\\nDecode: 5.00 ms (600.00 tok/s)\\n";

fn main() {
    // `cargo test --benches` builds and starts benchmarks too; it wants none measured.
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("harness_cost: skipped, it measures under `cargo bench` alone");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder below target");
    prepare(folder.path());
    let cells = (MODELS * LENGTHS) as f64;
    let mut costs = Vec::new();
    for round in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..MODELS * LENGTHS {
            let status = Command::new("printf").arg(PROFILE).stdout(Stdio::null()).status();
            assert!(status.expect("`printf` starts").success());
        }
        let children_ms = start.elapsed().as_secs_f64() * 1e3 / cells;

        let start = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["sweep", "--config", "bench-configs/sweep/cost.toml"])
            .args(["--output", &format!("benchmarks/{round}.csv")])
            .current_dir(folder.path())
            .output()
            .expect("the sweep starts");
        let sweep_ms = start.elapsed().as_secs_f64() * 1e3 / cells;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let csv = std::fs::read_to_string(folder.path().join(format!("benchmarks/{round}.csv")));
        assert_eq!(csv.expect("a CSV").lines().count(), MODELS * LENGTHS + 1);

        let cost = sweep_ms - children_ms;
        println!(
            "round {round}: {sweep_ms:.2} ms a cell, {children_ms:.2} ms the child alone, \
             {cost:.2} ms the harness"
        );
        costs.push(cost);
    }
    costs.sort_by(f64::total_cmp);
    println!(
        "harness: median {:.2} ms a cell (min {:.2}, max {:.2}) over {ROUNDS} rounds of {cells} cells",
        costs[ROUNDS / 2],
        costs[0],
        costs[ROUNDS - 1]
    );
}

fn prepare(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    write("Cargo.toml", "");
    let models: Vec<String> = (0..MODELS).map(|model| format!("\"m{model}\"")).collect();
    for model in 0..MODELS {
        write(&format!("bench-configs/models/m{model}.toml"), "");
    }
    let lengths: Vec<String> = (1..=LENGTHS).map(|length| length.to_string()).collect();
    write(
        "bench-configs/sweep/cost.toml",
        &format!(
            "models = [{}]\nlengths = [{}]\nrunner = \"printf\"\ndevice = \"cpu\"\n",
            models.join(", "),
            lengths.join(", ")
        ),
    );
    // Placeholders that `printf` is given beyond its format are arguments that it ignores.
    write(
        "bench-configs/runners/printf.toml",
        &format!(
            "result = \"profile-text\"\ncounts_tokens = false\n\
             command = [\"printf\", '{PROFILE}', \"{{model}}\", \"{{prompt_tokens}}\"]\n"
        ),
    );
}
