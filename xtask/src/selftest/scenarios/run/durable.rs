//! What is on disk: after a kill, an interruption, a full disk, and with two sweeps at once.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::check::{code, same, says};
use crate::cell::row::render_header;
use crate::selftest::checkout::run::Checkout;
use crate::sys::clock;

const CSV: &str = "benchmarks/out.csv";
/// Each cell takes a while, one of them runs out of memory.
const SLOW: &str = "[[cell]]\nmodel = \"a\"\nlen = 2048\nsleep_ms = 15\nstderr = \
                    \"std::bad_alloc\\n\"\nexit = 134\n[[cell]]\nsleep_ms = 15\n";
/// How often a sweep is killed.
const KILLS: u32 = 20;

/// SIGKILL at random moments; what is resumed is what was not interrupted.
pub(super) fn kill() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    checkout.script(SLOW)?;
    let (whole, duration) = clock::time(|| checkout.sweep("benchmarks/whole.csv", &[]));
    code(&whole?, 0)?;
    let whole = checkout.read("benchmarks/whole.csv")?;
    let mut random = ChaCha8Rng::seed_from_u64(20);
    let (mut running, mut unfinished) = (0, 0);
    for number in 0..KILLS {
        let csv = format!("benchmarks/killed-{number}.csv");
        let moment = duration.mul_f64(random.random_range(0.05..1.0));
        checkout.write_record("")?;
        running += u32::from(checkout.start_sweep(&csv, moment)?.kill()?);
        unfinished += u32::from(check_killed(&checkout, &csv, &whole).with_context(|| {
            format!("kill {} of {KILLS}, {} ms after the start", number + 1, moment.as_millis())
        })?);
    }
    ensure!(running > 0, "no sweep was still running when it was killed");
    Ok(format!(
        "killed {KILLS} times, {running} while running, {unfinished} with rows to come: resumed to \
         the same rows"
    ))
}

/// Checks what a killed sweep left, resumes it and checks again. Returns whether rows were missing.
fn check_killed(checkout: &Checkout, csv: &str, whole: &str) -> anyhow::Result<bool> {
    let journal = checkout.journal(csv)?;
    let left = checkout.read(csv)?;
    if journal.start().is_none() {
        // It was killed before it began: there is nothing to resume, and nothing was launched.
        same("rows of a sweep without a start", left.as_str(), "")?;
        checkout.remove(&format!("{csv}.journal.jsonl"))?;
        code(&checkout.sweep(csv, &[])?, 0)?;
        same("rows", checkout.read(csv)?.as_str(), whole)?;
        return Ok(true);
    }
    ensure!(whole.starts_with(&left), "what is left is not the beginning of the whole:\n{left}");
    ensure!(left.is_empty() || left.ends_with('\n'), "the last row is torn:\n{left}");
    // A row is in the journal first; at most the last one is still missing from the CSV.
    let finished = format!("{}{}", render_header(), journal.rows());
    let behind = finished.lines().count().saturating_sub(left.lines().count());
    ensure!(left.is_empty() || behind <= 1, "finished rows are missing:\n{left}");
    let missing = left != whole;
    // A killed harness is not a lost host: no flag is needed.
    code(&checkout.resume(csv, &[])?, 0)?;
    same("rows after resuming", checkout.read(csv)?.as_str(), whole)?;
    same("lines of the record", checkout.record_text()?.lines().count(), 1)?;
    Ok(missing)
}

/// A launch without an end under another boot is a row, and is launched again only if asked for.
pub(super) fn lost() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    checkout.script("[[cell]]\nlaunch = 1\nsleep_ms = 30000\n")?;
    let started = checkout.start_sweep(CSV, Duration::ZERO)?;
    checkout.wait_for_launches(2)?;
    ensure!(started.kill()?, "the sweep had ended already");
    checkout.script("")?;
    checkout.take_launches()?;
    // The harness was killed: the list would launch the cell again.
    let listed = checkout.resume(CSV, &["--list"])?;
    ensure!(!listed.stdout.contains("FAIL:host_lost"), "listed as lost:\n{}", listed.stdout);
    // As if the machine had been restarted since.
    let journal = format!("{CSV}.journal.jsonl");
    let boot = crate::sys::boot::read_boot_id();
    checkout.replace(&journal, &boot, "another-boot")?;

    let listed = checkout.resume(CSV, &["--list"])?;
    ensure!(listed.stdout.contains("FAIL:host_lost"), "not listed:\n{}", listed.stdout);
    code(&checkout.resume(CSV, &[])?, 1)?;
    let lost = [
        "a 512 measured",
        "a 2048 FAIL:host_lost",
        "a 8192 measured",
        "b 512 measured",
        "b 2048 measured",
        "b 8192 measured",
    ];
    same("rows", checkout.rows(CSV)?, lost.map(str::to_owned).to_vec())?;
    let launches = checkout.take_launches()?;
    ensure!(!launches.contains(&"a 2048".to_owned()), "launched again: {launches:?}");
    same("record", checkout.record_text()?, String::new())?;

    let before = checkout.read(CSV)?;
    code(&checkout.resume(CSV, &[])?, 1)?;
    same("rows of a finished sweep", checkout.read(CSV)?, before.clone())?;
    same("launches of a finished sweep", checkout.take_launches()?.len(), 0)?;

    code(&checkout.resume(CSV, &["--retry-lost"])?, 0)?;
    same("launches", checkout.take_launches()?, vec!["a 2048".to_owned()])?;
    let after = checkout.read(CSV)?;
    let added = after.strip_prefix(&before).context("rows were changed")?;
    ensure!(added.starts_with("a,") && added.lines().count() == 1, "added:\n{added}");
    Ok("FAIL:host_lost, not launched again until --retry-lost, nothing overwritten".into())
}

/// SIGINT in the middle of a cell.
pub(super) fn interrupt() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    checkout.script("[[cell]]\nlaunch = 1\nsleep_ms = 30000\ngrandchildren = 1\n")?;
    let started = checkout.start_sweep(CSV, Duration::ZERO)?;
    checkout.wait_for_launches(2)?;
    same("exit code", started.interrupt()?, Some(130))?;
    let journal = checkout.read(&format!("{CSV}.journal.jsonl"))?;
    let last = journal.lines().last().unwrap_or_default();
    ensure!(last.contains("\"sweep_end\"") && last.contains("\"interrupted\":true"), "{last}");
    same("rows", checkout.rows(CSV)?, vec!["a 512 measured".to_owned()])?;
    checkout.script("")?;
    checkout.take_launches()?;
    code(&checkout.resume(CSV, &[])?, 0)?;
    same("rows after resuming", checkout.rows(CSV)?.len(), 6)?;
    same("launches after resuming", checkout.take_launches()?.len(), 5)?;
    Ok("exit code 130, journal closed, the interrupted cell is measured on resuming".into())
}

/// A disk that fills up in the middle, an output that cannot be written, one that is there.
pub(super) fn full_disk() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    // The runner writes no file: the limit is to meet the sweep's own files.
    let text = ["--runner", "scripted-text"];
    code(&checkout.sweep("benchmarks/whole.csv", &text)?, 0)?;
    let whole = checkout.read("benchmarks/whole.csv")?;
    let (mut stopped, mut kept) = (0, 0);
    for blocks in [1, 5, 8, 10] {
        let csv = format!("benchmarks/full-{blocks}.csv");
        let ran = checkout.sweep_on_full_disk(&csv, &text, blocks)?;
        code(&ran, 2)?;
        says(&ran, "cannot write to ")?;
        stopped += 1;
        let left = checkout.read(&csv)?;
        ensure!(whole.starts_with(&left), "what is left is not the beginning:\n{left}");
        ensure!(left.is_empty() || left.ends_with('\n'), "a torn row:\n{left}");
        if checkout.journal(&csv)?.start().is_none() {
            continue;
        }
        kept += left.lines().count().saturating_sub(1);
        code(&checkout.resume(&csv, &["--retry-lost"])?, 0)?;
        same("rows after resuming", checkout.read(&csv)?, whole.clone())?;
    }
    ensure!(kept > 0, "no row was written before the disk was full");
    checkout.take_launches()?;
    code(&checkout.sweep("benchmarks/whole.csv/out.csv", &[])?, 2)?;
    let ran = checkout.sweep("benchmarks/whole.csv", &[])?;
    code(&ran, 2)?;
    says(&ran, "already exists")?;
    same("launches", checkout.take_launches()?.len(), 0)?;
    same("the file that was there", checkout.read("benchmarks/whole.csv")?, whole)?;
    Ok(format!("{stopped} full disks: exit code 2, whole rows only, resumed to the same rows"))
}

/// A second sweep while the first one runs.
pub(super) fn two_sweeps() -> anyhow::Result<String> {
    let checkout = Checkout::create()?;
    checkout.script("[[cell]]\nlaunch = 0\nsleep_ms = 30000\n")?;
    let started = checkout.start_sweep(CSV, Duration::ZERO)?;
    checkout.wait_for_launches(1)?;
    let ran = checkout.sweep("benchmarks/second.csv", &[])?;
    started.interrupt()?;
    code(&ran, 2)?;
    says(&ran, "`cargo xtask sweep` (process ")?;
    same("launches", checkout.take_launches()?.len(), 1)?;
    checkout.script("")?;
    code(&checkout.sweep("benchmarks/second.csv", &[])?, 0)?;
    Ok("the second is refused, names the first, and runs once the first is done".into())
}
