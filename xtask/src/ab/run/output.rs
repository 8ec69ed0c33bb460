//! The folder of a comparison: a new one, or that of an earlier run; and what is written at the end.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::ab::analysis::AbResult;
use crate::ab::render::render_report;
use crate::ab::samples::{AbStart, Log, parse_samples};
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::sys::{env, files, terminal};

/// Where comparisons lie, below the workspace root.
const FOLDER: &str = "benchmarks/ab";
/// The journal of the comparison: every run, raw.
pub(super) const SAMPLES: &str = "samples.jsonl";
const RESULT: &str = "result.json";
const REPORT: &str = "report.md";

/// Makes a folder of its own for a comparison: a number is appended where the name is taken.
pub(super) fn create_folder(root: &Path, date: &str, slug: &str) -> anyhow::Result<PathBuf> {
    let parent = root.join(FOLDER);
    files::create_folder(&parent)?;
    for number in 1_u32.. {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let folder = parent.join(format!("{date}-{slug}{suffix}"));
        if files::create_folder_new(&folder)? {
            return Ok(folder);
        }
    }
    unreachable!("some number is free")
}

/// The start and the runs of an earlier comparison.
pub(super) fn read_earlier(folder: &Path) -> anyhow::Result<(AbStart, Log)> {
    let path = folder.join(SAMPLES);
    let text = files::read_text(&path).hint(
        "--resume takes the folder of a comparison, for example benchmarks/ab/2026-01-31-name",
    )?;
    let log = parse_samples(&text);
    let start = log.start.clone().with_context(|| {
        format!("`{}` is not a comparison: it has no `ab_start` line", path.display())
    })?;
    Ok((start, log))
}

/// Writes `result.json` and `report.md`.
pub(super) fn write_result(
    root: &Path,
    folder: &Path,
    start: &AbStart,
    result: &AbResult,
) -> anyhow::Result<()> {
    let [json, report] = render_files(root, start, result);
    files::replace_text(&folder.join(RESULT), &json)?;
    files::replace_text(&folder.join(REPORT), &report)
}

/// Compares `result.json` and `report.md` with what the samples say; a violation names those that differ.
pub(super) fn check_result(
    root: &Path,
    folder: &Path,
    start: &AbStart,
    result: &AbResult,
) -> anyhow::Result<Outcome> {
    let [json, report] = render_files(root, start, result);
    let mut outcome = Outcome::Done;
    for (name, text) in [(RESULT, json), (REPORT, report)] {
        let path = folder.join(name);
        if files::read_text(&path)? != text {
            terminal::log(&format!("`{}` is not what its samples say", path.display()));
            outcome = Outcome::Violation;
        }
    }
    Ok(outcome)
}

/// Both files, without this machine's paths.
fn render_files(root: &Path, start: &AbStart, result: &AbResult) -> [String; 2] {
    let scrub = env::read_scrub(root);
    let text = |text: &str| drop_temp_folder(&scrub.text(text));
    let command = render_command(&start.args);
    [text(&format!("{}\n", render_json(result))), text(&render_report(result, &command))]
}

/// A path below the folder for temporary files is of no use to a reader: its last part stays.
fn drop_temp_folder(text: &str) -> String {
    let mut parts = text.split("$TMPDIR");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |done, part| {
        let ends = |c: char| c.is_whitespace() || "'\"`,;:)".contains(c);
        let end = part.find(ends).unwrap_or(part.len());
        let name = part[..end].rsplit('/').next().unwrap_or_default();
        done + name + &part[end..]
    })
}

/// `result.json`. Ends of intervals that are infinite are null.
pub(super) fn render_json(result: &AbResult) -> String {
    serde_json::to_string_pretty(result).expect("a result has string keys and no failing values")
}

/// The command that repeats a comparison, for a shell.
fn render_command(args: &[String]) -> String {
    let words = args.iter().map(|arg| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
        if !arg.is_empty() && arg.chars().all(is_plain) {
            arg.clone()
        } else {
            format!("'{}'", arg.replace('\'', "'\\''"))
        }
    });
    let words: Vec<String> = words.collect();
    format!("cargo xtask {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_survives_a_shell() {
        let args = ["ab", "--env", "A=0", "--gate", "decode_tok_s >= -1%", "--leg", "x:Y=it's"];
        assert_eq!(
            render_command(&args.map(str::to_owned)),
            "cargo xtask ab --env A=0 --gate 'decode_tok_s >= -1%' --leg 'x:Y=it'\\''s'"
        );
    }

    #[test]
    fn what_lies_below_the_temporary_folder_is_named_by_its_last_part() {
        let text = "--config '$TMPDIR/.tmpA1/x/def.toml' --pairs 6; `$TMPDIR/a.py` 0123";
        assert_eq!(drop_temp_folder(text), "--config 'def.toml' --pairs 6; `a.py` 0123");
        assert_eq!(drop_temp_folder("no path"), "no path");
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let root = tempfile::tempdir().unwrap();
        let name = |folder: PathBuf| folder.file_name().unwrap().to_string_lossy().into_owned();
        let first = create_folder(root.path(), "2026-01-31", "a").unwrap();
        let second = create_folder(root.path(), "2026-01-31", "a").unwrap();
        assert_eq!((name(first), name(second)), ("2026-01-31-a".into(), "2026-01-31-a-2".into()));
    }
}
