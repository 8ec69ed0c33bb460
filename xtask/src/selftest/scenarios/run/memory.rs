//! Backstop and record: what keeps a cell from being launched, and what does not.

use anyhow::Context as _;

use super::check::{code, does_not_say, same, says};
use crate::selftest::checkout::run::Checkout;
use crate::sys::{clock, git};

const CSV: &str = "benchmarks/out.csv";

/// One faked out-of-memory: the cell, the longer ones, the other model, the record.
pub(super) fn fake_oom() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    let env = [("MLXCEL_BENCH_FAKE_OOM", "a:2048")];
    let ran = checkout.sweep_with(CSV, &[], &env)?;
    code(&ran, 0)?;
    same(
        "rows",
        checkout.rows(CSV)?,
        strings(&[
            "a 512 measured",
            "a 2048 SKIP:oom",
            "a 8192 SKIP:oom_backstop",
            "b 512 measured",
            "b 2048 measured",
            "b 8192 measured",
        ]),
    )?;
    same("launches", checkout.take_launches()?, strings(&["a 512", "b 512", "b 2048", "b 8192"]))?;
    says(&ran, "[skip] a @ 8192: SKIP:oom_backstop: `a` ran out of memory at 2048 tokens")?;
    let commit = git::read_git_state(checkout.root()).commit;
    let expected = format!("a,2048,{},{commit},,{CSV}\n", clock::today());
    same("record", checkout.record_text()?, expected)?;
    // Skipped cells are not a failure, unless `--strict` asks for it.
    code(&checkout.sweep("benchmarks/strict.csv", &["--strict"])?, 1)?;
    Ok("one line in the record, longer cells of the model skipped, the other model measured".into())
}

/// An out-of-memory in the middle of an unsorted ladder.
pub(super) fn unsorted() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    let args =
        ["--lengths", "8192 2048 512 4096 1024", "--models", "a", "--fake-oom", "a:2048,a:512"];
    code(&checkout.sweep(CSV, &args)?, 0)?;
    same(
        "rows",
        checkout.rows(CSV)?,
        strings(&[
            "a 8192 measured",
            "a 2048 SKIP:oom",
            "a 512 SKIP:oom",
            "a 4096 SKIP:oom_backstop",
            "a 1024 SKIP:oom_backstop",
        ]),
    )?;
    same("lines of the record", checkout.record_text()?.lines().count(), 2)?;
    Ok("the shortest length that ran out of memory decides, in any order".into())
}

/// A record written by hand; the override; a new out-of-memory under it; pruning.
pub(super) fn record() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    let written = "a,512,2026-07-03,abc1234,,old.csv\nmalformed line\n";
    checkout.write_record(written)?;
    let ran = checkout.sweep(CSV, &[])?;
    code(&ran, 0)?;
    let skipped = ["a 512", "a 2048", "a 8192"].map(|cell| format!("{cell} SKIP:oom_record"));
    same("rows of the model", checkout.rows(CSV)?[..3].to_vec(), skipped.to_vec())?;
    same("launches", checkout.take_launches()?, strings(&["b 512", "b 2048", "b 8192"]))?;
    says(&ran, "a,512,2026-07-03,abc1234,,old.csv")?;
    same("warnings", ran.stderr.matches("OOM record, line 2").count(), 1)?;
    same("record", checkout.record_text()?, written.to_owned())?;

    // By value, never by presence.
    let off = [("MLXCEL_BENCH_IGNORE_OOM_RECORD", "0")];
    code(&checkout.sweep_with("benchmarks/off.csv", &[], &off)?, 0)?;
    same("launches with the variable off", checkout.take_launches()?.len(), 3)?;

    let ignore = [("MLXCEL_BENCH_IGNORE_OOM_RECORD", "1"), ("MLXCEL_BENCH_FAKE_OOM", "a:8192")];
    let ran = checkout.sweep_with("benchmarks/ignored.csv", &[], &ignore)?;
    code(&ran, 0)?;
    same("launches under the override", checkout.take_launches()?.len(), 5)?;
    says(&ran, "cargo xtask oom-record prune --model a")?;
    let text = checkout.record_text()?;
    let added = text.strip_prefix(written).context("the record was not appended to")?;
    same("new lines", added.lines().count(), 1)?;
    same("new line", added.starts_with("a,8192,"), true)?;

    code(&checkout.xtask(&["oom-record", "prune", "--model", "a"], &[])?, 0)?;
    same("record after pruning", checkout.record_text()?, "malformed line\n".to_owned())?;
    code(&checkout.sweep("benchmarks/pruned.csv", &["--models", "a"])?, 0)?;
    same("launches after pruning", checkout.take_launches()?.len(), 3)?;
    Ok("recorded lengths are not launched; the override launches them and still records".into())
}

/// Failures, timeouts, missing models and the estimate leave backstop and record alone.
pub(super) fn isolation() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    let written = "other,512,2026-07-03,abc1234,,old.csv\n";
    checkout.write_record(written)?;
    let untouched = |checkout: &Checkout, case: &str| {
        same(&format!("record after {case}"), checkout.record_text()?, written.to_owned())
    };
    let only_a = ["--models", "a"];

    // Classes that a fake can have without being a true out-of-memory.
    for class in [
        "FAIL:bench",
        "FAIL:timeout",
        "FAIL:no_output",
        "FAIL:host_lost",
        "SKIP:oom_estimate",
        "SKIP:oom_backstop",
        "SKIP:oom_record",
    ] {
        let csv = format!("benchmarks/{}.csv", class.replace(':', "-"));
        let fake = format!("a:512:{class}");
        let ran = checkout.sweep(&csv, &["--models", "a", "--fake-cell", &fake])?;
        code(&ran, i32::from(class.starts_with("FAIL")))?;
        let first = format!("a 512 {class}");
        same(
            "rows",
            checkout.rows(&csv)?,
            vec![first, "a 2048 measured".into(), "a 8192 measured".into()],
        )?;
        untouched(&checkout, class)?;
    }
    checkout.take_launches()?;

    // A model that is not there, and a `models` link that leads nowhere.
    std::os::unix::fs::symlink("/nonexistent/store", checkout.root().join("models"))?;
    let ran = checkout.sweep("benchmarks/missing.csv", &["--models", "absent models/x b"])?;
    code(&ran, 1)?;
    says(&ran, "[miss] absent @ 512: FAIL:missing_model")?;
    says(&ran, "[miss] models/x @ 512: FAIL:missing_model")?;
    let rows = checkout.rows("benchmarks/missing.csv")?;
    same(
        "rows of missing models",
        rows.iter().filter(|r| r.ends_with("FAIL:missing_model")).count(),
        6,
    )?;
    same("launches", checkout.take_launches()?, strings(&["b 512", "b 2048", "b 8192"]))?;
    untouched(&checkout, "a missing model")?;

    // A runner that hangs, whose children would outlive it, and which will not listen.
    checkout.script(
        "[[cell]]\nlen = 512\nsleep_ms = 60000\ngrandchildren = 3\nignore_sigterm = true\nstderr = \
         \"CUDA error: out of memory\\n\"\n",
    )?;
    let ran = checkout.sweep("benchmarks/hang.csv", &["--models", "a", "--timeout", "0.5"])?;
    code(&ran, 1)?;
    same(
        "rows",
        checkout.rows("benchmarks/hang.csv")?,
        strings(&["a 512 FAIL:timeout", "a 2048 measured", "a 8192 measured"]),
    )?;
    untouched(&checkout, "a timeout")?;

    // Weights that do not fit: length-independent, and never launched.
    checkout.script("")?;
    checkout.take_launches()?;
    checkout.write("models-here/big.gguf", "some bytes")?;
    let env = [("BENCH_MEM_OVERHEAD_FACTOR", "1e15")];
    let ran =
        checkout.sweep_with("benchmarks/big.csv", &["--models", "models-here/big.gguf"], &env)?;
    code(&ran, 0)?;
    let rows = checkout.rows("benchmarks/big.csv")?;
    same("rows", rows.iter().filter(|row| row.ends_with("SKIP:oom_estimate")).count(), 3)?;
    same("launches", checkout.take_launches()?.len(), 0)?;
    untouched(&checkout, "an estimate")?;
    let env = [("BENCH_MEM_OVERHEAD_FACTOR", "much")];
    let ran = checkout.sweep_with("benchmarks/factor.csv", &only_a, &env)?;
    says(&ran, "BENCH_MEM_OVERHEAD_FACTOR: `much` is not a number of at least 0; using 1.0")?;
    same("launches", checkout.take_launches()?.len(), 3)?;
    Ok("failures, timeouts, missing models and estimates leave every byte of the record alone"
        .into())
}

/// Names that a careless reader would mix up.
pub(super) fn names() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    let names = ["llama", "llama-8b", "x,y", "say \"hi\"", "a:512"];
    for name in names {
        checkout.write(&format!("bench-configs/models/{name}.toml"), "")?;
    }
    let list = serde_json::to_string(&names)?;
    checkout.write(
        "bench-configs/sweep/names.toml",
        &format!("models = {list}\nlengths = [512, 8]\nrunner = \"scripted\"\ndevice = \"cpu\"\n"),
    )?;
    let args = |csv, fake| {
        ["sweep", "--config", "bench-configs/sweep/names.toml", "--output", csv, "--fake-oom", fake]
    };
    let fakes = "llama:512,x,y:512,say \"hi\":512,a:512:512";
    code(&checkout.xtask(&args(CSV, fakes), &[])?, 0)?;
    let record = checkout.record()?;
    same("warnings", record.warnings(), Vec::new())?;
    let recorded: Vec<String> = record.entries().map(|(entry, _)| entry.model.clone()).collect();
    same("recorded", recorded, strings(&["llama", "x,y", "say \"hi\"", "a:512"]))?;
    checkout.take_launches()?;
    let csv = "benchmarks/again.csv";
    code(&checkout.xtask(&args(csv, "llama-8b:8")[..5], &[])?, 0)?;
    same(
        "launches",
        checkout.take_launches()?,
        strings(&["llama 8", "llama-8b 512", "llama-8b 8", "x,y 8", "say \"hi\" 8", "a:512 8"]),
    )?;
    let ran = checkout.xtask(&args("benchmarks/none.csv", "llama:513"), &[])?;
    code(&ran, 2)?;
    says(&ran, "fake `llama:513` does not name a cell of this run")?;
    does_not_say(&ran, "[done]")?;
    Ok("five awkward names, each recorded and skipped only as itself".into())
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
