//! `prereg report`: writes the report that follows from the samples, or checks the one that is there.

use std::path::Path;

use anyhow::{Context as _, bail};
use similar::TextDiff;

use super::{Ladder, StoredRun, version_of};
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::prereg::args::ReportArgs;
use crate::prereg::chain::Frozen;
use crate::prereg::report::{ResultFile, Status, render_markdown, summarize_run};
use crate::sys::{files, terminal};

pub(super) fn report(root: &Path, args: &ReportArgs) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, &args.name)?;
    let frozen = ladder.require_frozen()?;
    let stored = choose_run(&ladder, args.run.as_deref())?;
    if let (true, Some(broken)) = (args.check, &stored.samples.broken) {
        terminal::data(&format!("samples.jsonl: {broken}"));
        terminal::log(&format!("prereg: the samples of run {} were edited", stored.name));
        return Ok(Outcome::Violation);
    }
    let made = make_report(&ladder, &frozen, &stored)?;
    if args.check {
        return check_report(&ladder, &stored, &made);
    }
    write_report(&stored.folder, &made)?;
    terminal::data(&made.markdown);
    Ok(if made.result.is_clean() { Outcome::Done } else { Outcome::Violation })
}

pub(super) struct Made {
    pub(super) result: ResultFile,
    pub(super) markdown: String,
    json: String,
}

impl Made {
    /// The files of a report, by name.
    fn files(&self) -> [(&'static str, &str); 2] {
        [("report.md", &self.markdown), ("result.json", &self.json)]
    }
}

pub(super) fn make_report(
    ladder: &Ladder<'_>,
    frozen: &Frozen,
    stored: &StoredRun,
) -> anyhow::Result<Made> {
    let run = stored
        .run
        .as_ref()
        .with_context(|| format!("run {} has no samples", stored.name))
        .hint(format!("cargo xtask prereg run {} --resume", ladder.name))?;
    let version = version_of(frozen, run)
        .with_context(|| {
            format!(
                "run {} belongs to a version that is not in `{}`",
                stored.name,
                ladder.frozen_path()
            )
        })
        .hint("the frozen file was replaced: restore it from git")?;
    let document = ladder.document_of(version)?;
    if let Some(broken) = &stored.samples.broken {
        return Err(anyhow::anyhow!("the samples of run {} were edited: {broken}", stored.name))
            .hint("restore them from git: a report is made of what was measured");
    }
    let result = summarize_run(&document, frozen, version, run, &stored.samples);
    let markdown = render_markdown(&document, version, &result)?;
    let json = result.render()?;
    Ok(Made { result, markdown, json })
}

pub(super) fn write_report(folder: &Path, made: &Made) -> anyhow::Result<()> {
    made.files()
        .into_iter()
        .try_for_each(|(file, text)| files::replace_text(&folder.join(file), text))
}

pub(super) fn is_written(folder: &Path, made: &Made) -> anyhow::Result<bool> {
    for (file, expected) in made.files() {
        if files::read_text_if_present(&folder.join(file))?.as_deref() != Some(expected) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check_report(ladder: &Ladder<'_>, stored: &StoredRun, made: &Made) -> anyhow::Result<Outcome> {
    let mut same = true;
    for (file, expected) in made.files() {
        let found = files::read_text_if_present(&stored.folder.join(file))?.unwrap_or_default();
        if found != expected {
            same = false;
            let diff = TextDiff::from_lines(found.as_str(), expected);
            terminal::data(
                diff.unified_diff()
                    .context_radius(2)
                    .header(file, &format!("{file} (from the samples)"))
                    .to_string()
                    .trim_end(),
            );
        }
    }
    if same {
        terminal::log(&format!("prereg: the report of run {} matches its samples", stored.name));
        return Ok(Outcome::Done);
    }
    terminal::log(&format!(
        "prereg: the report of run {} does not match its samples\nhint: cargo xtask prereg report {} \
         --run {}",
        stored.name, ladder.name, stored.name
    ));
    Ok(Outcome::Violation)
}

pub(super) fn choose_run(ladder: &Ladder<'_>, name: Option<&str>) -> anyhow::Result<StoredRun> {
    let runs = ladder.read_runs()?;
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let found = match name {
        Some(name) => runs.into_iter().find(|run| run.name == name),
        None => runs.into_iter().next_back(),
    };
    match found {
        Some(run) => Ok(run),
        None if names.is_empty() => {
            Err(anyhow::anyhow!("ladder `{}` has not been run", ladder.name))
                .hint(format!("cargo xtask prereg run {}", ladder.name))
        }
        None => bail!(
            "ladder `{}` has no run `{}`; its runs are {}",
            ladder.name,
            name.unwrap_or_default(),
            names.join(", ")
        ),
    }
}

/// One line on how a run ended, for the terminal.
pub(super) fn render_end(result: &ResultFile) -> String {
    let end = match (result.status, &result.rule) {
        (Status::Decided, Some(rule)) => {
            format!("rule `{rule}` fired: {}", result.action.as_deref().unwrap_or_default())
        }
        (Status::NotShown, Some(rule)) => {
            let why = result.why_open.as_deref().unwrap_or_default();
            format!("not shown: rule `{rule}` holds, but {why}; nothing lands")
        }
        (Status::Undecided, _) => {
            format!("undecided: {}", result.why_open.as_deref().unwrap_or_default())
        }
        _ => format!("incomplete: {}", result.why_open.as_deref().unwrap_or_default()),
    };
    match result.contended {
        0 => end,
        contended => format!(
            "{end}; contended: {} although other work disturbed {}",
            if contended == 1 {
                "1 launch counts".to_owned()
            } else {
                format!("{contended} launches count")
            },
            if contended == 1 { "it" } else { "them" }
        ),
    }
}
