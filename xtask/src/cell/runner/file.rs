//! Runners: reading a definition, building what it names, and finding its program.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;
use crate::cell::runner::{ResultFormat, Runner, parse_runner};
use crate::cell::spec::program_path;
use crate::sys::command::cargo;
use crate::sys::{files, host, terminal};

/// Where the definitions lie, below the workspace root.
const RUNNERS_DIR: &str = "bench-configs/runners";

/// Reads the definition of a runner; its text comes with it.
///
/// # Errors
/// When there is none of that name (the error names those there are), it is not a definition, or it is
/// one for ladders alone.
pub(crate) fn read_runner(root: &Path, name: &str) -> anyhow::Result<(Runner, String)> {
    let known: Vec<String> = files::list_files(&root.join(RUNNERS_DIR))
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    if !known.iter().any(|other| other == name) {
        return Err(anyhow::anyhow!("no runner `{name}`"))
            .hint(format!("the runners in {RUNNERS_DIR}/ are {}", known.join(", ")));
    }
    let text = files::read_text(&definition_path(root, name))?;
    let runner = parse_runner(name, &display_path(name), &text)?;
    if runner.result == ResultFormat::Log {
        return Err(anyhow::anyhow!("runner `{name}` measures no cell: its `result` is its log"))
            .hint("`cargo xtask prereg` reads the log of such a runner");
    }
    Ok((runner, text))
}

/// Where the definition of a runner lies.
pub(crate) fn definition_path(root: &Path, name: &str) -> PathBuf {
    root.join(display_path(name))
}

fn display_path(name: &str) -> String {
    format!("{RUNNERS_DIR}/{name}.toml")
}

/// Builds what the runner says, with the compiler's progress on stderr.
pub(crate) fn build_runner(root: &Path, runner: &Runner) -> anyhow::Result<()> {
    let Some(build) = &runner.build else { return Ok(()) };
    terminal::log(&format!("building `{}` of `{}` …", build.bin, build.package));
    cargo(root, "build --locked --release")
        .args(["--package", &build.package, "--bin", &build.bin])
        .show()
        .with_context(|| format!("cannot build the runner `{}`", runner.name))
}

/// Where the program of a runner's command line lies.
pub(crate) fn find_program(
    root: &Path,
    runner: &Runner,
    command: &[String],
) -> anyhow::Result<PathBuf> {
    let program = command.first().map(String::as_str).unwrap_or_default();
    let path = program_path(root, program);
    host::which(&path.to_string_lossy())
        .with_context(|| format!("runner `{}`: program `{program}` not found", runner.name))
        .hint("install it, or give its path in the runner's definition in bench-configs/runners/")
}
