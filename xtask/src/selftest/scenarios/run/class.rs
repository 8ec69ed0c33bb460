//! Classes: the signs of memory running out, unusable results, and floods of output.

use anyhow::{Context as _, ensure};

use super::check::{code, same, says};
use crate::selftest::checkout::run::Checkout;

/// Output of a failing runner, its exit code, and the class that it must get.
const OUTPUTS: &[(&str, i32, &str)] = &[
    ("CUDA error: out of memory", 1, "SKIP:oom"),
    ("killed: Out-Of-Memory", 1, "SKIP:oom"),
    ("Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)", 1, "SKIP:oom"),
    ("error: failed to allocate 4.2 GiB", 134, "SKIP:oom"),
    ("fork: Cannot allocate memory", 1, "SKIP:oom"),
    ("numpy: Unable to allocate 8 GiB for an array", 1, "SKIP:oom"),
    ("terminate called after throwing std::bad_alloc", 134, "SKIP:oom"),
    ("memory allocation of 8589934592 bytes failed", 134, "SKIP:oom"),
    ("9663676416 bytes is greater than the maximum allowed buffer size", 1, "SKIP:oom"),
    ("[metal::malloc] Resource limit exceeded", 1, "SKIP:oom"),
    ("DriverError(CUDA_ERROR_OUT_OF_MEMORY)", 101, "SKIP:oom"),
    ("cudaErrorMemoryAllocation", 1, "SKIP:oom"),
    ("cuMemAlloc failed", 2, "SKIP:oom"),
    ("no word about it", 137, "SKIP:oom"),
    ("zoom level 4", 1, "FAIL:bench"),
    ("room temperature 21 C", 134, "FAIL:bench"),
    ("frame exceeds limit", 1, "FAIL:bench"),
    ("NVRM: NV_ERR_NO_MEMORY", 1, "FAIL:bench"),
    ("memory allocation of the cache is planned", 1, "FAIL:bench"),
    ("out of memory", 124, "FAIL:timeout"),
    ("out of memory", 0, "FAIL:no_output"),
];

/// Each signature and each near miss, and the signals.
pub(super) fn signatures() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    let mut script = String::new();
    let mut expected = Vec::new();
    for (index, (output, exit, class)) in OUTPUTS.iter().enumerate() {
        let output = serde_json::to_string(output)?;
        let stream = if index % 2 == 0 { "stderr" } else { "stdout" };
        script.push_str(&format!(
            "[[cell]]\nlaunch = {index}\n{stream} = {output}\nexit = {exit}\nreport = \"none\"\n\
             profile_lines = false\n"
        ));
        expected.push((*class).to_owned());
    }
    // SIGKILL that nobody here sent, SIGABRT with and without a word of memory, SIGSEGV.
    for (signal, output, class) in [
        (9, "", "SKIP:oom"),
        (6, "memory allocation of 7 bytes failed\\n", "SKIP:oom"),
        (6, "assertion failed\\n", "FAIL:bench"),
        (11, "", "FAIL:bench"),
    ] {
        script.push_str(&format!(
            "[[cell]]\nlaunch = {}\nstderr = \"{output}\"\nsignal = {signal}\n",
            expected.len()
        ));
        expected.push(class.to_owned());
    }
    checkout.script(&script)?;
    // Descending lengths: the backstop keeps none of them from being launched.
    let lengths: Vec<String> = (1..=expected.len()).rev().map(|len| len.to_string()).collect();
    let args = ["--models", "a", "--lengths", &lengths.join(" ")];
    code(&checkout.sweep("benchmarks/out.csv", &args)?, 1)?;
    let classes: Vec<String> = checkout
        .rows("benchmarks/out.csv")?
        .iter()
        .map(|row| row.rsplit(' ').next().unwrap_or_default().to_owned())
        .collect();
    same("classes", classes, expected.clone())?;
    let journal = checkout.journal("benchmarks/out.csv")?;
    for end in journal.cell_ends() {
        let evidence = end.evidence.as_ref().context("a launched cell without evidence")?;
        ensure!(evidence.decided_by.is_some(), "no evidence in {end:?}");
    }
    let ooms = expected.iter().filter(|class| *class == "SKIP:oom").count();
    same("lines of the record", checkout.record_text()?.lines().count(), ooms)?;
    Ok(format!("{ooms} signs of memory running out, {} near misses", expected.len() - ooms))
}

/// Reports that are torn, empty, missing, or another cell's.
pub(super) fn results() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    // `b` writes none after `a` wrote a whole one for the same length: nothing stale is taken for it.
    checkout.script(
        "[[cell]]\nmodel = \"b\"\nreport = \"none\"\n[[cell]]\nlen = 2\nreport = \
         \"torn\"\n[[cell]]\nlen = 3\nreport = \"none\"\n[[cell]]\nlen = 4\nreport = \
         \"empty\"\n[[cell]]\nlen = 5\nreport = \"of_another_cell\"\n[[cell]]\nlen = 6\nexit = 3\n",
    )?;
    let csv = "benchmarks/out.csv";
    let ran = checkout.sweep(csv, &["--lengths", "1 2 3 4 5 6 7"])?;
    code(&ran, 1)?;
    let none = "FAIL:no_output";
    let of_a = ["measured", none, none, none, none, "FAIL:bench", "measured"];
    let row = |model, (index, class): (usize, &&str)| format!("{model} {} {class}", index + 1);
    let rows = of_a.iter().enumerate().map(|cell| row("a", cell));
    let of_b = [none; 7];
    let rows = rows.chain(of_b.iter().enumerate().map(|cell| row("b", cell)));
    same("rows", checkout.rows(csv)?, rows.collect::<Vec<String>>())?;
    says(&ran, "the cell report is for another cell: 6 prompt tokens instead of 5")?;
    let table = checkout.csv(csv)?;
    for row in table.rows() {
        let measured = row.classification_token().is_none();
        let value = table.value(row, "decode_tok_s").unwrap_or_default();
        same("speed only where measured", !value.is_empty(), measured)?;
    }
    Ok("torn, missing, empty, foreign and stale reports: each an empty row with its class".into())
}

/// Two gigabytes of output before a failure.
pub(super) fn flood() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    checkout.script(
        "[[cell]]\nlen = 512\nflood_bytes = 2000000000\nstderr = \"std::bad_alloc\\n\"\nexit = \
         134\n[[cell]]\nlen = 8\nflood_bytes = 1000000\nexit = 3\n",
    )?;
    let csv = "benchmarks/out.csv";
    let ran = checkout.sweep(csv, &["--models", "a", "--lengths", "8 512"])?;
    code(&ran, 1)?;
    same(
        "rows",
        checkout.rows(csv)?,
        vec!["a 8 FAIL:bench".to_owned(), "a 512 SKIP:oom".to_owned()],
    )?;
    let peak = ran.rss_peak_bytes.context("the peak of memory is not known here")?;
    let mib = peak >> 20;
    ensure!(peak < 100_000_000, "the harness and its child took {mib} MiB");
    Ok(format!("classified correctly, at a peak of {mib} MiB"))
}
