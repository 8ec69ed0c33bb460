//! `cargo xtask sweep`: models × prompt lengths, one process a cell.
//!
//! Read the definition, plan the grid, build the engine, then cell by cell: gate, launch, classify,
//! write. The rules are in `cell::guard` and `cell::classify`; this module and those below it are the order
//! in which things happen.

use std::path::{Path, PathBuf};

use crate::base::outcome::Outcome;
use crate::cell::executor::Executor as _;
use crate::cell::executor::run::RealExecutor;
use crate::cell::guard::RecordRule;
use crate::cell::health::{Look, Waited, Watched, await_health, describe_change};
use crate::cell::journal::request::Device;
use crate::cell::journal::{Journal, SCHEMA, SweepStart};
use crate::cell::runner::file as runner_store;
use crate::cell::session::{Finder, Session};
use crate::sweep::args::Args;
use crate::sys::boot::is_another_boot;
use crate::sys::interrupt::Interrupt;
use crate::sys::launch_lock::LaunchLock;
use crate::sys::{clock, env, files, git, host, terminal};

use output::Output;
use prepare::{Prepared, Target};

mod book;
mod measure;
mod output;
mod prepare;

/// Runs, resumes or lists a sweep.
pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    let earlier = match &args.resume {
        Some(csv) => Some(output::read_earlier(csv)?),
        None => None,
    };
    let (mut prepared, guard) = prepare::prepare(root, args, earlier.as_ref())?;
    if args.list {
        terminal::data(&prepare::render_list(&prepared, guard, earlier.as_ref(), args.retry_lost));
        return Ok(Outcome::Done);
    }
    let interrupt = Interrupt::install()?;
    let _lock = LaunchLock::acquire(root, "sweep")?;
    if let Err(error) = runner_store::build_runner(root, &prepared.runner) {
        // Ctrl-C reaches the compiler as well.
        return if interrupt.is_set() { Ok(Outcome::Interrupted) } else { Err(error) };
    }
    let program = find_program(root, &prepared)?;
    prepared.settings.program_sha256 = Some(files::read_sha256(&program)?);
    prepared.engine_version = match prepared.runner.build {
        Some(_) => host::read_version(&program),
        None => None,
    };
    let mut executor = RealExecutor::new(root, interrupt);
    let healthy = match await_health_at_start(&mut executor, &prepared, earlier.as_ref()) {
        Waited::Healthy(look) => look,
        Waited::Interrupted => return Ok(Outcome::Interrupted),
        Waited::Sick(sick) => {
            let csv = args.resume.as_ref().map(|csv| csv.display().to_string());
            terminal::log(&measure::render_sick(&sick, csv.as_deref()));
            return Ok(Outcome::Stopped);
        }
    };
    let start = SweepStart {
        boot: Some(executor.boot_id().to_owned()),
        health: Some(healthy.clone()).filter(Look::has_gpu),
        ..sweep_start(root, &prepared, guard.record_rule(), earlier.is_some())
    };
    let commit = start.commit.clone();
    let output = open_output(root, args, &prepared, start, earlier)?;
    let finder = Finder { commit, source: output.shown_path(root), command: None };
    let session = Session::new(executor, guard, finder);
    measure::run(root, args, &prepared, output, session, healthy)
}

/// The machine before the first launch of this session. One that measures on its processor alone is not
/// looked at.
fn await_health_at_start(
    executor: &mut RealExecutor,
    prepared: &Prepared,
    earlier: Option<&output::Earlier>,
) -> Waited {
    if prepared.config.device == Device::Cpu {
        return Waited::Healthy(Look::default());
    }
    let before = earlier.and_then(|earlier| earlier.journal.start()).and_then(|last| {
        let then = last.boot.as_deref().unwrap_or_default();
        last.health.as_ref()?.for_resumption(is_another_boot(then, executor.boot_id()))
    });
    let tell = |text: &str| terminal::log(&format!("sweep: {text}"));
    let patience = prepared.config.big_cooldown;
    let waited = await_health(executor, before.as_ref(), Watched::Gpus, patience, tell);
    if let Waited::Healthy(look) = &waited {
        for note in look.describe() {
            terminal::log(&format!("note: {note}"));
        }
    }
    waited
}

/// The program that will measure.
fn find_program(root: &Path, prepared: &Prepared) -> anyhow::Result<PathBuf> {
    let spec = prepared.spec_of(root, prepared.grid.cells().next(), "report.json");
    runner_store::find_program(root, &prepared.runner, &spec.command())
}

/// Starts new files, or goes on with those of an earlier sweep after checking that it is the same.
fn open_output(
    root: &Path,
    args: &Args,
    prepared: &Prepared,
    mut start: SweepStart,
    earlier: Option<output::Earlier>,
) -> anyhow::Result<Output> {
    let scrub = env::read_scrub(root);
    match earlier {
        Some(earlier) => {
            start.notes = output::check_settings(&earlier, &prepared.settings)?;
            let since = earlier.journal.start().map(|last| describe_since(last, &start));
            start.notes.extend(since.unwrap_or_default());
            for note in &start.notes {
                terminal::log(&format!("note: changed since the last start: {note}"));
            }
            Output::go_on(root, earlier, scrub, &start)
        }
        None => {
            let csv = match &args.output {
                Some(path) => output::explicit_name(path)?,
                None => output::automatic_name(root, &prepared.target, &prepared.config_name),
            };
            Output::start(root, &csv, scrub, &start)
        }
    }
}

fn sweep_start(
    root: &Path,
    prepared: &Prepared,
    record_rule: RecordRule,
    resumed: bool,
) -> SweepStart {
    let git = git::read_git_state(root);
    SweepStart {
        time: clock::now_utc(),
        schema: SCHEMA,
        resumed,
        args: env::read_args(),
        request: prepared.request.clone(),
        settings: prepared.settings.clone(),
        settings_sha256: prepare::hash_settings(&prepared.settings),
        config_sha256: prepared.config_sha256.clone(),
        record_in_force: record_rule == RecordRule::InForce,
        host: prepared.host.clone(),
        commit: git.commit,
        dirty: git.dirty,
        engine_version: prepared.engine_version.clone(),
        environment: env::read_relevant_vars(),
        ..SweepStart::default()
    }
}

/// What became of the machine between two sessions.
fn describe_since(last: &SweepStart, now: &SweepStart) -> Vec<String> {
    let [was, is] = [last, now].map(|start| start.health.clone().unwrap_or_default());
    let [then, boot] = [last, now].map(|start| start.boot.as_deref().unwrap_or_default());
    describe_change(&was, &is, is_another_boot(then, boot))
}

fn journal_of(earlier: Option<&output::Earlier>) -> Journal {
    earlier.map(|earlier| earlier.journal.clone()).unwrap_or_default()
}

/// The parts of the output's name that the machine gives.
impl Target {
    /// `cpu_xeon`, `cuda_gb10`.
    fn name(&self) -> String {
        format!("{}_{}", self.backend.name(), self.slug)
    }
}
