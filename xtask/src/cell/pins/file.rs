//! Pins: which of a command's words are files, and a watch over each.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{PinWord, Pins, parse_pin, possible_paths, without_written};
use crate::base::diagnostic::HintExt as _;
use crate::base::scrub::Scrub;
use crate::cell::runner::Runner;
use crate::sys::command::Tool;
use crate::sys::files;
use crate::sys::glob::find_matches;
use crate::sys::watched::Watched;

/// Prints where a Python module lies: its file, or the folders of a package.
const WHERE_MODULE: &str = "import importlib.util as u, sys; s = u.find_spec(sys.argv[1]); \
print('\\n'.join(s.submodule_search_locations or [s.origin]) if s else '')";
/// What of a package is pinned: sources and libraries, but no compiled copies of sources.
const MODULE_FILES: [&str; 2] = ["py", "so"];

/// Begins to watch what a runner pins: every file that its command line names and does not write, and
/// what its definition adds. See [`watch_pins`].
///
/// # Errors
/// When a file cannot be read, or a word of `pins` stands for none.
pub(crate) fn watch_runner(
    root: &Path,
    runner: &Runner,
    command: &[String],
    model: &Path,
    scrub: &Scrub,
) -> anyhow::Result<(Pins, Vec<Watched>)> {
    let named = without_written(command, &runner.pins.writes);
    let (mut pins, mut watched) = watch_pins(root, &named, model, scrub)?;
    for word in &runner.pins.also {
        let paths = match parse_pin(word) {
            PinWord::Paths(pattern) => find_matches(root, pattern)?.paths,
            PinWord::Python(module) => find_module(root, command, module)?,
        };
        let paths: Vec<PathBuf> = paths.into_iter().filter(|path| files::is_file(path)).collect();
        if paths.is_empty() {
            return Err(anyhow::anyhow!("runner `{}`: `pins`: `{word}` is no file", runner.name))
                .hint("pins are paths, patterns such as lib/**/*.py, or python:MODULE");
        }
        for path in paths {
            add(root, &path, scrub, &mut pins, &mut watched)?;
        }
    }
    Ok((pins, watched))
}

/// The files of a Python module, as the command's own interpreter finds it.
fn find_module(root: &Path, command: &[String], module: &str) -> anyhow::Result<Vec<PathBuf>> {
    let is_python = |word: &&String| {
        Path::new(word.as_str())
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("python"))
    };
    let python = command.iter().find(is_python).map_or("python3", String::as_str);
    let said = Tool::new(python)
        .args(["-c", WHERE_MODULE, module])
        .dir(root)
        .read()
        .with_context(|| format!("cannot find the Python module `{module}`"))?;
    let mut found = Vec::new();
    for line in said.lines().filter(|line| !line.is_empty()) {
        let path = root.join(line);
        if files::is_file(&path) {
            found.push(path);
            continue;
        }
        for extension in MODULE_FILES {
            let pattern = format!("{}/**/*.{extension}", glob::Pattern::escape(line));
            found.extend(find_matches(root, &pattern)?.paths);
        }
    }
    Ok(found)
}

/// Begins to watch one file, once.
fn add(
    root: &Path,
    path: &Path,
    scrub: &Scrub,
    pins: &mut Pins,
    watched: &mut Vec<Watched>,
) -> anyhow::Result<()> {
    let shown = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    let shown = scrub.text(&shown);
    if pins.contains_key(&shown) {
        return Ok(());
    }
    let file = Watched::begin("the pinned file", path)?;
    pins.insert(shown, file.sha256().to_owned());
    watched.push(file);
    Ok(())
}

/// Begins to watch every file that a command line names after its program; relative paths are meant
/// from the workspace, as the child has it. `model`, which has a hash of its own, folders and words that
/// are no file are left out. Paths are scrubbed, so that a list agrees with one read from a journal.
///
/// # Errors
/// When a file cannot be read.
fn watch_pins(
    root: &Path,
    command: &[String],
    model: &Path,
    scrub: &Scrub,
) -> anyhow::Result<(Pins, Vec<Watched>)> {
    let mut pins = Pins::new();
    let mut watched = Vec::new();
    for word in possible_paths(command) {
        let path = root.join(word);
        if path == model || !files::is_file(&path) {
            continue;
        }
        add(root, &path, scrub, &mut pins, &mut watched)?;
    }
    Ok((pins, watched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_command_names_are_pinned_once_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("script.pl"), "").unwrap();
        std::fs::create_dir(root.path().join("folder")).unwrap();
        let model = root.path().join("m.gguf");
        std::fs::write(&model, "weights").unwrap();
        let words = "perl script.pl ./folder --again=script.pl none.txt --model=m.gguf";
        let command: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let scrub = Scrub::new(&[]);
        let (pins, mut watched) = watch_pins(root.path(), &command, &model, &scrub).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(pins, Pins::from([("script.pl".to_owned(), empty.to_owned())]));
        assert_eq!(watched.len(), 1);
        watched[0].check().unwrap();
        std::fs::write(root.path().join("script.pl"), "edited").unwrap();
        assert!(watched[0].check().is_err());
    }
}
