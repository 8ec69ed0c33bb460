//! Pins: which of a command's words are files, and a watch over each.

use std::path::Path;

use super::{Pins, possible_paths};
use crate::base::scrub::Scrub;
use crate::sys::files;
use crate::sys::watched::Watched;

/// Begins to watch every file that a command line names after its program; relative paths are meant
/// from the workspace, as the child has it. `model`, which has a hash of its own, folders and words that
/// are no file are left out. Paths are scrubbed, so that a list agrees with one read from a journal.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn watch_pins(
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
        let shown = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let shown = scrub.text(&shown);
        if pins.contains_key(&shown) {
            continue;
        }
        let file = Watched::begin("the pinned file", &path)?;
        pins.insert(shown, file.sha256().to_owned());
        watched.push(file);
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
