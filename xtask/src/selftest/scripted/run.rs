//! The scripted runner: does what a script says, so that every ending of a cell can be had at will.
//!
//! It plays a decode engine for scenarios and tests and measures nothing.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context as _;

use crate::selftest::scripted::args::Args;
use crate::selftest::scripted::{
    ReportKind, Script, ScriptedCell, ScriptedLaunch, render_profile_lines,
};

/// Plays one launch. Its exit code is the script's.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let script_text = crate::sys::files::read_text(&args.script)?;
    let script: Script = toml::from_str(&script_text)
        .with_context(|| format!("cannot read the script `{}`", args.script.display()))?;
    let index = match &script.launch_log {
        Some(log) => {
            count_launch(Path::new(log), &format!("{} {}\n", args.model, args.prompt_tokens))?
        }
        None => 0,
    };
    let launch = ScriptedLaunch {
        model: args.model.clone(),
        len: args.prompt_tokens,
        max_tokens: args.max_tokens,
        index,
        report_name: args
            .report
            .as_ref()
            .and_then(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        env: std::env::vars().collect(),
    };
    let cell = script.plan_launch(&launch);
    let report = script.plan_report(&cell, &launch)?;
    play(&cell, &report, args.report.as_deref())?;
    Ok(ExitCode::from(u8::try_from(cell.exit).unwrap_or(u8::MAX)))
}

/// Adds a line to the launch log. Returns how many there were.
fn count_launch(log: &Path, line: &str) -> anyhow::Result<u64> {
    let before = crate::sys::files::read_text_if_present(log)?.unwrap_or_default();
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write `{}`", log.display()))?;
    Ok(before.lines().count() as u64)
}

fn play(
    cell: &ScriptedCell,
    report: &serde_json::Value,
    report_path: Option<&Path>,
) -> anyhow::Result<()> {
    if cell.ignore_sigterm {
        // SAFETY: sets the disposition of a signal; no handler runs.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    }
    for _ in 0..cell.grandchildren {
        Command::new("sleep").arg("60").spawn().context("cannot start `sleep`")?;
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(cell.stdout.as_bytes())?;
    std::io::stderr().write_all(cell.stderr.as_bytes())?;
    flood(&mut stdout, cell.flood_bytes)?;
    let touched = vec![1_u8; (cell.touch_mib << 20) as usize];
    std::hint::black_box(&touched);
    stdout.flush()?;
    if cell.sleep_ms > 0 {
        std::thread::sleep(std::time::Duration::from_millis(cell.sleep_ms));
    }
    if let Some(path) = report_path {
        write_report(cell.report, report, path)?;
    }
    write_ladder_files(cell)?;
    if cell.profile_lines.unwrap_or(true) {
        stdout.write_all(render_profile_lines(report).as_bytes())?;
        stdout.flush()?;
    }
    if let Some(signal) = cell.signal {
        // SAFETY: sends a signal to this very process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
        }
        // A signal that ends nothing leaves the exit code to speak.
    }
    Ok(())
}

/// Lines of filler, written in large pieces.
fn flood(stdout: &mut impl std::io::Write, bytes: u64) -> std::io::Result<()> {
    let mut piece = Vec::new();
    while piece.len() < 1 << 20 {
        piece.extend_from_slice(b"layer 12: attention output within bounds, nothing to see here\n");
    }
    let mut left = bytes;
    while left > 0 {
        let take = left.min(piece.len() as u64) as usize;
        stdout.write_all(&piece[..take])?;
        left -= take as u64;
    }
    Ok(())
}

/// What a runner in a ladder writes besides its report.
fn write_ladder_files(cell: &ScriptedCell) -> anyhow::Result<()> {
    if let Some(path) = std::env::var_os("ARC_PREREG_LOG").filter(|_| !cell.log.is_empty()) {
        std::fs::write(path, &cell.log).context("cannot write the log")?;
    }
    if let Some(folder) = std::env::var_os("ARC_PREREG_OUT") {
        for (name, text) in &cell.files {
            std::fs::write(Path::new(&folder).join(name), text).context("cannot write a file")?;
        }
    }
    Ok(())
}

fn write_report(kind: ReportKind, report: &serde_json::Value, path: &Path) -> anyhow::Result<()> {
    let whole = serde_json::to_string(report)?;
    let text = match kind {
        ReportKind::None => return Ok(()),
        ReportKind::Whole | ReportKind::OfAnotherCell => whole.as_str(),
        ReportKind::Torn => &whole[..whole.len() / 2],
        ReportKind::Empty => "{}",
    };
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
