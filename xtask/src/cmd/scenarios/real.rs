//! A real out-of-memory: the engine itself, under a limit on its address space.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use xshell::{Shell, cmd};

use super::check::{code, same, says};
use crate::edge::checkout::Checkout;
use crate::edge::{files, term};

/// A prompt that fits well below any limit that is tried, and two that do not for long.
const SHORT: &str = "64";
const LENGTHS: &str = "64 8192 16384";
/// Limits on the address space that are tried, in MiB, from generous to tight.
const LIMITS_MB: [u32; 10] = [2048, 1448, 1024, 724, 512, 362, 256, 181, 128, 90];

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
        if rows.iter().all(|row| row.ends_with(" measured")) {
            continue;
        }
        code(&ran, 0)?;
        ensure!(rows[0].ends_with(" measured"), "under {limit} MiB: {rows:?}\n{}", ran.stderr);
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
            "{SHORT} tokens run under {limit} MiB, {len} end with `{line}`; skipped ever after"
        ));
    }
    bail!("no limit in {LIMITS_MB:?} MiB made `tiny` run out of memory")
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

/// The release build of the engine; its path.
fn build_engine(root: &Path) -> anyhow::Result<String> {
    term::log("building `decode-bench` of `engine` …");
    let shell = Shell::new()?;
    shell.change_dir(root);
    cmd!(shell, "cargo build --locked --release --package engine --bin decode-bench")
        .quiet()
        .run()
        .context("cannot build the engine")?;
    let target = crate::edge::env::read_var("CARGO_TARGET_DIR").unwrap_or("target".to_owned());
    Ok(root.join(target).join("release/decode-bench").to_string_lossy().into_owned())
}
