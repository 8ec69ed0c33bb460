//! A real out-of-memory: the engine itself, under a limit on its address space.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use super::check::{code, same, says};
use crate::selftest::checkout::run::Checkout;
use crate::sys::{command, files, terminal};

/// A prompt that needs little, and two whose KV cache alone takes over 200 MiB.
const LENGTHS: &str = "64 60000 65000";
/// Limits on the address space that are tried, in MiB, from too tight for anything upwards: below
/// the right one every cell fails at once, so none takes long.
const LIMITS_MB: [u32; 8] = [64, 90, 128, 181, 220, 256, 300, 362];

/// The first limit at which the short prompt runs and the longer one does not is the proof.
pub(super) fn real_oom(root: &Path) -> anyhow::Result<String> {
    let program = build_engine(root)?;
    let checkout = Checkout::create()?;
    let model = files::read_text(&root.join("bench-configs/models/tiny.toml"))?;
    checkout.write("bench-configs/models/tiny.toml", &model)?;
    let runner = files::read_text(&root.join("bench-configs/runners/decode-bench.toml"))?;
    let (runner, _) = runner.split_once("[build]").context("decode-bench.toml has no [build]")?;
    let runner = runner.replace("{target_dir}/release/decode-bench", &program);
    checkout.write("bench-configs/runners/engine.toml", &runner)?;
    for limit_mb in LIMITS_MB {
        let (limit, csv) = (limit_mb.to_string(), format!("benchmarks/{limit_mb}.csv"));
        let ran = checkout.sweep(&csv, &args_under(&limit))?;
        let rows = checkout.rows(&csv)?;
        if !rows[0].ends_with(" measured") {
            checkout.write_record("")?;
            continue;
        }
        code(&ran, 0)?;
        let first = rows.iter().position(|row| row.ends_with(" SKIP:oom"));
        let first =
            first.with_context(|| format!("under {limit} MiB: {rows:?}\n{}", ran.stderr))?;
        for row in &rows[first + 1..] {
            ensure!(row.ends_with(" SKIP:oom_backstop"), "not skipped: {row}");
        }
        let journal = checkout.journal(&csv)?;
        let end = journal.cell_ends().nth(first).context("the journal lacks the cell")?;
        let evidence = end.evidence.as_ref().context("no evidence")?;
        let line = evidence.line.clone().unwrap_or_else(|| format!("{:?}", evidence.decided_by));
        let record = checkout.record()?;
        let (entry, _) = record.entries().next().context("nothing was recorded")?;
        ensure!(entry.peak_bytes.is_some(), "the record has no peak");
        same("lines of the record", record.entries().count(), 1)?;

        let again = format!("benchmarks/{limit_mb}-again.csv");
        let ran = checkout.sweep(&again, &args_under(&limit))?;
        let skipped = checkout.rows(&again)?;
        for row in &skipped[first..] {
            ensure!(row.ends_with(" SKIP:oom_record"), "launched again: {row}");
        }
        says(&ran, "SKIP:oom_record")?;
        let len = entry.prompt_target_len;
        return Ok(format!(
            "64 tokens run under {limit} MiB, {len} end with `{line}` and are skipped from then on"
        ));
    }
    bail!("`tiny` does not run at 64 tokens under any limit of {LIMITS_MB:?} MiB")
}

/// A small grid under a limit in MiB.
fn args_under(limit_mb: &str) -> [&str; 12] {
    [
        "--models",
        "tiny",
        "--lengths",
        LENGTHS,
        "--max-tokens",
        "4",
        "--warmup-tokens",
        "1",
        "--runner",
        "engine",
        "--cell-memory-limit-mb",
        limit_mb,
    ]
}

fn build_engine(root: &Path) -> anyhow::Result<String> {
    terminal::log("building `decode-bench` of `engine` …");
    command::cargo(root, "build --locked --release --package engine --bin decode-bench")
        .show()
        .context("cannot build the engine")?;
    let target = crate::sys::env::read_var("CARGO_TARGET_DIR").unwrap_or("target".to_owned());
    Ok(root.join(target).join("release/decode-bench").to_string_lossy().into_owned())
}
