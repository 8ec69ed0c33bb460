//! `cargo xtask oom-record confirm`: one cell through a session, past the record alone.
//!
//! The record is changed last, and only by what was seen: if the machine is lost meanwhile, it still
//! holds the event.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::{read, render_diff};
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::executor::run::RealExecutor;
use crate::cell::grid::Cell;
use crate::cell::guard::RecordRule;
use crate::cell::guard::file::read_guard;
use crate::cell::health::{Look, Waited, Watched, await_health};
use crate::cell::journal::request::Device;
use crate::cell::journal::{CellEnd, CellLaunch, Entry, Settings, journal_path, parse_journal};
use crate::cell::outcome::CellOutcome;
use crate::cell::runner::{CellVars, ServerVars, check_model, file as runner_store};
use crate::cell::session::{End, Finder, LaunchNote, Ledger, Session};
use crate::cell::spec::{CellSpec, report_path};
use crate::model::reference::{ModelKind, ResolvedModel};
use crate::model::store::file::resolve_models;
use crate::oom::args::ConfirmArgs;
use crate::oom::confirm::{
    Conclusion, Manner, Suffix, choose_manner, conclude, plan_drop, read_suffix,
};
use crate::oom_record::{CONFIRM_COMMAND, OomEntry, RECORD_PATH, file as record_file};
use crate::sys::interrupt::Interrupt;
use crate::sys::json_lines::JournalFile;
use crate::sys::launch_lock::LaunchLock;
use crate::sys::{clock, env, files, git, host, terminal};

/// What was launched to confirm events, and what came of it. Git ignores it, as the record.
const NOTES_PATH: &str = "benchmarks/.oom-confirm.jsonl";
/// The command as the record names it.
const COMMAND: &str = CONFIRM_COMMAND;
/// How long memory may take to come back.
const RETURN_LIMIT: Duration = Duration::from_secs(30);

pub(super) fn run(root: &Path, args: &ConfirmArgs) -> anyhow::Result<Outcome> {
    let record = read(root)?;
    let Some((entry, raw)) = record.blocking(&args.model, u64::MAX) else {
        return Err(anyhow::anyhow!("the record holds no event of `{}`", args.model))
            .hint("`cargo xtask oom-record list` shows the events");
    };
    let (entry, raw) = (entry.clone(), raw.to_owned());
    let of_model: Vec<&OomEntry> = record
        .entries()
        .map(|(other, _)| other)
        .filter(|other| other.model == entry.model)
        .collect();
    // The last sweep that is known; an event that `confirm` found has none.
    let settings = of_model.iter().rev().find_map(|other| read_settings(root, other));
    if settings.is_none() {
        terminal::log(&format!(
            "note: no journal says how {} was run; the defaults of a sweep are used",
            entry.model
        ));
    }
    let manner = choose_manner(settings.as_ref(), args)?;
    let (model, suffix) = find_model(root, &args.model, &manner)?;
    let variants = settings.as_ref().map_or(&[][..], |settings| &settings.variants);
    let Suffix { change, max_tokens, concurrency } = read_suffix(suffix, variants)?;
    let (runner, _) = runner_store::read_runner(root, &manner.runner)?;
    let runner = match change {
        Some(variant) => variant.apply_to(&runner)?,
        None => runner,
    };
    if runner.server.is_none() && concurrency > 1 {
        return Err(anyhow::anyhow!("runner `{}` starts no server", runner.name))
            .hint("give the runner that measured it with --runner");
    }
    check_model(&runner, model.kind).map_err(anyhow::Error::msg)?;
    let interrupt = Interrupt::install()?;
    let _lock = LaunchLock::acquire(root, COMMAND)?;

    let facts = host::read_host_facts()?;
    let memory_bytes = match manner.device {
        Device::Auto => facts.device_memory_bytes(),
        Device::Cpu => facts.memory_bytes,
    };
    let guard = read_guard(root, RecordRule::Ignored, memory_bytes)?;
    let variant = entry.model.strip_prefix(&model.name).and_then(|rest| rest.strip_prefix('+'));
    let cell = Cell { model: &model, len: entry.prompt_target_len, variant };
    guard.require(cell, COMMAND)?;
    if let Err(error) = runner_store::build_runner(root, &runner) {
        // Ctrl-C reaches the compiler as well.
        return if interrupt.is_set() { Ok(Outcome::Interrupted) } else { Err(error) };
    }
    let scratch = files::create_scratch(&root.join("target/oom-confirm"), "run-")?;
    let spec = CellSpec {
        root,
        runner: &runner,
        vars: CellVars {
            model: model.name.clone(),
            model_path: model.path.clone(),
            prompt_tokens: cell.len,
            max_tokens: max_tokens.unwrap_or(manner.max_tokens),
            warmup_tokens: manner.warmup_tokens,
            threads: manner.threads,
            report: report_path(root, scratch.path()),
            target_dir: env::read_target_dir(),
            server: ServerVars { port: None, concurrency },
        },
        base_env: Vec::new(),
        env: Vec::new(),
        timeout: Duration::from_secs_f64(manner.timeout_s),
        memory_limit_bytes: manner.cell_memory_limit_mb.map(|mb| mb.saturating_mul(1 << 20)),
    };
    runner_store::find_program(root, &runner, &spec.command())?;

    let mut executor = RealExecutor::new(root, interrupt);
    let watched = match manner.device {
        Device::Auto => Watched::All,
        Device::Cpu => Watched::System,
    };
    let before = match manner.cell_memory_limit_mb {
        Some(_) => None,
        None => match await_health(&mut executor, None, watched, RETURN_LIMIT, tell) {
            Waited::Healthy(look) => Some(look),
            Waited::Interrupted => return Ok(Outcome::Interrupted),
            Waited::Sick(sick) => {
                return Err(anyhow::anyhow!("the driver is not healthy: {sick}"))
                    .context("nothing was launched, and the record is as it was")
                    .hint("end what else runs on the GPU, reset it (`sudo nvidia-smi --gpu-reset`) or reboot");
            }
        },
    };
    terminal::log(&format!(
        "oom-record: launching {} at {} tokens once, with runner `{}`{}; recorded: {raw}",
        cell.name(),
        cell.len,
        runner.name,
        match manner.cell_memory_limit_mb {
            Some(mb) => format!(" and {mb} MiB of address space"),
            None => String::new(),
        },
    ));
    let finder = Finder {
        commit: git::read_git_state(root).commit,
        source: NOTES_PATH.to_owned(),
        command: Some(COMMAND),
    };
    let mut session = Session::new(executor, guard, finder);
    let mut notes = Notes { journal: open_notes(root)?, cell };
    let end = session.run(cell, &spec, None, &mut notes)?;
    if end.was_interrupted() {
        terminal::log("oom-record: interrupted; the record is as it was");
        return Ok(Outcome::Interrupted);
    }
    if let Some(before) = before {
        await_return(session.executor(), &before, watched)?;
    }
    finish(root, cell, &end)
}

/// Says what came of the launch, and drops what it disproved.
fn finish(root: &Path, cell: Cell<'_>, end: &End) -> anyhow::Result<Outcome> {
    let (name, len) = (cell.name(), cell.len);
    let said = describe(end);
    match conclude(end.classification()) {
        Conclusion::Drop => {
            let pruned = record_file::prune(&root.join(RECORD_PATH), |record| {
                Ok(plan_drop(record, &name, len))
            })?;
            terminal::data(render_diff(&pruned.before, &pruned.after).trim_end_matches('\n'));
            terminal::log(&format!(
                "oom-record: {name} ran at {len} tokens: {} removed",
                match pruned.plan.dropped.len() {
                    1 => "1 event".to_owned(),
                    count => format!("{count} events"),
                }
            ));
            for note in &pruned.plan.notes {
                terminal::log(&format!("oom-record: {note}"));
            }
            Ok(Outcome::Done)
        }
        Conclusion::Confirmed => {
            terminal::log(&format!(
                "oom-record: confirmed: {name} ran out of memory at {len} tokens again: {said}"
            ));
            Ok(Outcome::Done)
        }
        Conclusion::Nothing => {
            let class = end.classification().map_or(String::new(), |class| class.to_string());
            terminal::log(&format!(
                "oom-record: this decides nothing, and the record is as it was: {class}: {said}"
            ));
            Ok(Outcome::Violation)
        }
    }
}

fn describe(end: &End) -> String {
    match end {
        End::Ran(outcome) => {
            let grade = outcome.grade.map(|grade| format!(" (evidence: {})", grade.word()));
            format!("{}{}", outcome.describe(), grade.unwrap_or_default())
        }
        End::Refused { reason, .. } | End::NotStarted(reason) => reason.clone(),
        End::Faked(_) => "faked".to_owned(),
        End::Interrupted => "interrupted".to_owned(),
    }
}

/// How the sweep of an event ran its cells, as its journal says.
fn read_settings(root: &Path, entry: &OomEntry) -> Option<Settings> {
    let path = journal_path(&root.join(&entry.source_csv));
    let journal = parse_journal(&files::read_text(&path).ok()?);
    journal.start().map(|start| start.settings.clone())
}

/// The model that a recorded name begins with, and what follows on it.
fn find_model<'n>(
    root: &Path,
    name: &'n str,
    manner: &Manner,
) -> anyhow::Result<(ResolvedModel, Option<&'n str>)> {
    let whole = match resolve_model(root, name, manner) {
        Ok(model) => return Ok((model, None)),
        Err(error) => error,
    };
    // A model's own name may have a plus.
    let ends = name.match_indices('+').map(|(at, _)| at);
    let parts = ends.rev().map(|at| (&name[..at], &name[at + 1..]));
    let found = parts
        .into_iter()
        .find_map(|(model, suffix)| Some((resolve_model(root, model, manner).ok()?, Some(suffix))));
    found.ok_or(whole)
}

/// The model, by its name or where the sweep found it.
fn resolve_model(root: &Path, name: &str, manner: &Manner) -> anyhow::Result<ResolvedModel> {
    let words = [Some(name.to_owned()), manner.model_path.clone()];
    for word in words.into_iter().flatten() {
        let found = resolve_models(root, &[word])?
            .into_iter()
            .find(|model| model.kind != ModelKind::Missing && model.name == name);
        if let Some(model) = found {
            return Ok(model);
        }
    }
    bail!("there is no model `{name}` any more")
}

fn tell(text: &str) {
    terminal::log(&format!("oom-record: {text}"));
}

/// Waits until the machine is as it was, with all of its memory.
fn await_return(
    executor: &mut RealExecutor,
    before: &Look,
    watched: Watched,
) -> anyhow::Result<()> {
    match await_health(executor, Some(before), watched, RETURN_LIMIT, tell) {
        Waited::Healthy(_) => Ok(()),
        Waited::Interrupted => Err(anyhow::anyhow!("interrupted before memory was back"))
            .context("the record is left as it is"),
        Waited::Sick(sick) => Err(anyhow::anyhow!(
            "the machine is not as it was before the cell: {sick}"
        ))
        .context("the record is left as it is")
        .hint(
            "end what holds the memory, or reboot; `--cell-memory-limit-mb` keeps a cell from taking it all",
        ),
    }
}

/// The launch and its end, on disk.
struct Notes<'a> {
    journal: JournalFile,
    cell: Cell<'a>,
}

fn open_notes(root: &Path) -> anyhow::Result<JournalFile> {
    let path = root.join(NOTES_PATH);
    let journal = match files::exists(&path) {
        true => JournalFile::open_append(&path)?,
        false => JournalFile::create_new(&path)?,
    };
    Ok(journal.with_scrub(env::read_scrub(root)))
}

impl Ledger for Notes<'_> {
    fn note_launch(&mut self, note: LaunchNote) -> anyhow::Result<()> {
        let LaunchNote { time, boot, command, environment } = note;
        self.journal.append(&Entry::CellLaunch(CellLaunch {
            time,
            model: self.cell.name(),
            prompt_target_len: self.cell.len,
            command,
            environment: environment
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)))
                .collect(),
            boot: Some(boot),
        }))
    }

    fn note_end(&mut self, end: &End) -> anyhow::Result<()> {
        let outcome = match end {
            End::Ran(outcome) => Some(outcome.as_ref()),
            _ => None,
        };
        self.journal.append(&Entry::CellEnd(Box::new(CellEnd {
            time: clock::now_utc(),
            model: self.cell.name(),
            prompt_target_len: self.cell.len,
            classification: end.classification(),
            launched: outcome.is_some(),
            reason: Some(describe(end)),
            evidence: outcome.map(CellOutcome::evidence),
            process: outcome.map(CellOutcome::process_note),
            ..CellEnd::default()
        })))
    }
}
