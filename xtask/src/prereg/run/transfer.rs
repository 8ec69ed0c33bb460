//! `prereg transfer`: the same reads on another machine, later. It never re-opens the decision.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use super::bench::Bench;
use super::measure::run_steps;
use super::report::choose_run;
use super::steps::HowEnded;
use super::verify::check_frozen;
use super::{Ladder, SAMPLES, StoredRun, free_name, open_session, version_of};
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::guard::RecordRule;
use crate::prereg::args::TransferArgs;
use crate::prereg::chain::Frozen;
use crate::prereg::document::Document;
use crate::prereg::judge::{Phase, judge};
use crate::prereg::sample::Record;
use crate::prereg::sample::file::read_samples;
use crate::prereg::transfer::{plan_transfer, render_transfer, summarize_transfer};
use crate::sys::interrupt::Interrupt;
use crate::sys::launch_lock::LaunchLock;
use crate::sys::{clock, files, terminal};

pub(super) fn transfer(root: &Path, args: &TransferArgs) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, &args.name)?;
    let checked = check_frozen(&ladder)?;
    let (decided, document) = decided_run(&ladder, args.run.as_deref(), &checked.frozen)?;
    let standing = judge(&document, &decided.samples.records);
    let plan = plan_transfer(&document, &standing).map_err(anyhow::Error::msg).hint(
        "[transfer] in the document says which reads are measured elsewhere, and what is expected",
    )?;

    let _lock = LaunchLock::acquire(root, "prereg transfer")?;
    let interrupt = Interrupt::install()?;
    let asked = RecordRule::from_flag(args.ignore_oom_record);
    let folder = choose_folder(&decided, &plan)?;
    let session = open_session(&ladder, &checked, &folder, asked, "prereg transfer", interrupt)?;
    let mut bench = Bench::open(root, &folder, args)?;
    bench.start(&ladder, &checked, None)?;
    match run_steps(&ladder, &checked, &plan, session, &mut bench)? {
        HowEnded::Interrupted => {
            terminal::log(&format!(
                "prereg: interrupted; everything finished is on disk\nhint: `cargo xtask prereg transfer {}` \
                 continues it",
                ladder.name
            ));
            return Ok(Outcome::Interrupted);
        }
        HowEnded::AtCeiling => {
            terminal::log(
                "prereg: the rest of the transfer does not fit under the ladder's ceiling",
            );
            return Ok(Outcome::Violation);
        }
        HowEnded::Refused => {
            if let Some(Record::Stopped { why }) = bench.records.last() {
                terminal::log(&format!("prereg: {why}"));
            }
            return Ok(Outcome::Violation);
        }
        HowEnded::Complete => {}
    }
    let there = decided.run.as_ref().context("the run that decided has no first line")?;
    let result = summarize_transfer(&document, &plan, (there, &standing), &bench.records)
        .map_err(anyhow::Error::msg)?;
    let markdown = render_transfer(&ladder.name, &document, &result)?;
    files::replace_text(&folder.join("report.md"), &markdown)?;
    let json = serde_json::to_string_pretty(&result)? + "\n";
    files::replace_text(&folder.join("result.json"), &json)?;
    terminal::data(&markdown);
    Ok(if result.held == Some(true) { Outcome::Done } else { Outcome::Violation })
}

fn decided_run(
    ladder: &Ladder<'_>,
    name: Option<&str>,
    frozen: &Frozen,
) -> anyhow::Result<(StoredRun, Document)> {
    let stored = choose_run(ladder, name)?;
    let run = stored.run.as_ref().with_context(|| format!("run {} is empty", stored.name))?;
    let version = version_of(frozen, run).with_context(|| {
        format!("run {} belongs to a version that is not in the frozen file", stored.name)
    })?;
    ensure!(
        version.version == frozen.last()?.version,
        "run {} belongs to version {}, and version {} is in force",
        stored.name,
        version.version,
        frozen.last()?.version
    );
    if let Some(broken) = &stored.samples.broken {
        bail!("the samples of run {} were edited: {broken}", stored.name);
    }
    let document = ladder.document_of(version)?;
    let standing = judge(&document, &stored.samples.records);
    if !matches!(standing.phase, Phase::Decided { .. }) {
        return Err(anyhow::anyhow!("run {} has decided nothing to transfer", stored.name))
            .hint(format!("cargo xtask prereg run {} --resume", ladder.name));
    }
    Ok((stored, document))
}

/// A new folder, or the last one that is not complete.
fn choose_folder(decided: &StoredRun, plan: &Document) -> anyhow::Result<PathBuf> {
    let names: Vec<String> = files::list_folders(&decided.folder)
        .into_iter()
        .filter(|name| name.starts_with("transfer-"))
        .collect();
    if let Some(last) = names.last() {
        let path = decided.folder.join(last);
        let samples = read_samples(&path.join(SAMPLES))?;
        if matches!(judge(plan, &samples.records).phase, Phase::Ladder { .. }) {
            return Ok(path);
        }
    }
    let name = free_name(&format!("transfer-{}", clock::today()), &names);
    Ok(decided.folder.join(name))
}
