//! `prereg run`: step after step until nothing is left, each on disk before the next.
//!
//! What comes next is a function of the samples, so going on after a kill needs nothing else. No
//! figure is shown before every rung is in.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::bench::Bench;
use super::launch::{StepLauncher, Subject, read_inherited};
use super::report::{is_written, make_report, render_end, write_report};
use super::steps::{self, HowEnded};
use super::verify::{Checked, check_frozen};
use super::{Ladder, StoredRun, free_name, open_session};
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::executor::Executor;
use crate::cell::guard::RecordRule;
use crate::cell::session::Session;
use crate::prereg::args::RunArgs;
use crate::prereg::document::Document;
use crate::prereg::sample::Record;
use crate::sys::interrupt::Interrupt;
use crate::sys::launch_lock::LaunchLock;
use crate::sys::{clock, terminal};

pub(super) fn run(root: &Path, args: &RunArgs) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, &args.name)?;
    let checked = check_frozen(&ladder)?;
    for note in &checked.notes {
        terminal::log(&format!("note: {note}"));
    }
    let _lock = LaunchLock::acquire(root, "prereg run")?;
    let interrupt = Interrupt::install()?;
    let asked = RecordRule::from_flag(args.ignore_oom_record);
    let folder = choose_folder(&ladder, &checked, args)?;
    let session = open_session(&ladder, &checked, &folder, asked, "prereg run", interrupt)?;
    let mut bench = Bench::open(root, &folder, args)?;
    bench.start(&ladder, &checked, args.again.as_deref())?;
    if let Some(reason) = &args.over_ceiling {
        let record = Record::OverCeiling { reason: reason.clone() };
        if !bench.records.contains(&record) {
            bench.append(record)?;
        }
    }
    let ended = run_steps(&ladder, &checked, &checked.document, session, &mut bench)?;
    if ended == HowEnded::Interrupted {
        terminal::log(&format!(
            "prereg: interrupted; everything finished is on disk\nhint: cargo xtask prereg run {} \
             --resume",
            ladder.name
        ));
        return Ok(Outcome::Interrupted);
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stored = ladder.read_run(&folder, &name)?;
    let made = make_report(&ladder, &checked.frozen, &stored)?;
    write_report(&folder, &made)?;
    terminal::data(&render_end(&made.result));
    let shown = folder.strip_prefix(root).unwrap_or(&folder).display().to_string();
    terminal::log(&format!("prereg: {shown}/report.md"));
    if ended == HowEnded::Refused {
        terminal::log(&format!(
            "hint: `cargo xtask oom-record list --model {}` shows what is known of it",
            checked.model.name
        ));
    }
    if ended == HowEnded::AtCeiling {
        terminal::log(&format!(
            "hint: cargo xtask prereg run {} --resume --over-ceiling \"reason\"",
            ladder.name
        ));
    }
    Ok(if made.result.is_clean() { Outcome::Done } else { Outcome::Violation })
}

/// Settles what an earlier session of the run left, and makes every step that is left.
pub(super) fn run_steps<E: Executor>(
    ladder: &Ladder<'_>,
    checked: &Checked,
    document: &Document,
    mut session: Session<E>,
    bench: &mut Bench,
) -> anyhow::Result<HowEnded> {
    bench.settle_lost_launch(document, session.executor().boot_id())?;
    let subject = Subject {
        root: ladder.root,
        name: &ladder.name,
        document,
        version: checked.version()?,
        runner: &checked.runner,
        model: &checked.model,
    };
    let ended = steps::measure(document, bench, &mut StepLauncher::new(subject, session)?)?;
    bench.note_run_end(ended.word())?;
    Ok(ended)
}

/// The folder to run in: a new one, or the one to resume.
fn choose_folder(
    ladder: &Ladder<'_>,
    checked: &Checked,
    args: &RunArgs,
) -> anyhow::Result<PathBuf> {
    let runs = ladder.read_runs()?;
    if args.resume {
        let last = runs
            .last()
            .with_context(|| format!("ladder `{}` has not been run", ladder.name))
            .hint(format!("cargo xtask prereg run {}", ladder.name))?;
        if let Some(run) = &last.run {
            ensure!(
                run.entry_sha256 == checked.version()?.entry_sha256,
                "run {} belongs to version {}, and version {} is in force",
                last.name,
                run.version,
                checked.version()?.version
            );
            if run.machine != checked.machine {
                return Err(anyhow::anyhow!(
                    "run {} began on {}, and this is {}: rungs from two machines do not compare",
                    last.name,
                    run.machine,
                    checked.machine
                ))
                .hint("resume it there, or start over here with --again \"reason\"");
            }
            let now = read_inherited(ladder.root, &checked.document);
            let changes = run.inherited.as_ref().map(|then| then.changes(&now)).unwrap_or_default();
            if !changes.is_empty() {
                return Err(anyhow::anyhow!(
                    "run {} began in another environment: {}",
                    last.name,
                    changes.join("; ")
                ))
                .hint("set the variables as they were, or start over with --again \"reason\"");
            }
            // A run that was killed after its last sample still lacks its report.
            if last.is_finished(&checked.document)
                && is_written(&last.folder, &make_report(ladder, &checked.frozen, last)?)?
            {
                return Err(anyhow::anyhow!("run {} is complete", last.name))
                    .hint(format!("cargo xtask prereg report {}", ladder.name));
            }
        }
        return Ok(last.folder.clone());
    }
    if args.again.is_none() {
        refuse_second_run(ladder, checked, &runs)?;
    }
    let names: Vec<String> = runs.into_iter().map(|run| run.name).collect();
    let name = free_name(&clock::today(), &names);
    Ok(ladder.runs_path().join(name))
}

/// A version is run once: running it until the rules say what one likes is what freezing prevents.
fn refuse_second_run(
    ladder: &Ladder<'_>,
    checked: &Checked,
    runs: &[StoredRun],
) -> anyhow::Result<()> {
    let entry = &checked.version()?.entry_sha256;
    for stored in runs.iter().rev() {
        if stored.run.as_ref().is_some_and(|run| run.entry_sha256 != *entry) {
            continue;
        }
        let again = format!(
            "cargo xtask prereg run {} --again \"reason\" runs it again; both stay, and the report says why",
            ladder.name
        );
        if stored.is_finished(&checked.document) {
            return Err(anyhow::anyhow!("this version has been run: {}", stored.name)).hint(again);
        }
        return Err(anyhow::anyhow!("run {} of this version is not finished", stored.name)).hint(
            format!("cargo xtask prereg run {} --resume continues it; {again}", ladder.name),
        );
    }
    Ok(())
}
