//! `cargo xtask gpu-check`: a built program on a GPU, within a budget of time.
//!
//! Plans the checks, makes the runs of each as far as the time allows, judges it, and writes
//! everything as it comes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::executor::Executor;
use crate::cell::executor::run::RealExecutor;
use crate::cell::grid::Cell;
use crate::cell::guard::RecordRule;
use crate::cell::guard::file::{read_fake_ooms, read_guard};
use crate::cell::session::{Finder, Session};
use crate::gpu::check::args::Args;
use crate::gpu::check::judge::{
    Run, judge_cap, judge_decode, judge_memory, judge_oom_rescue, judge_start, not_possible,
};
use crate::gpu::check::plan::Check;
use crate::gpu::check::{
    CheckKind, CheckResult, CheckVerdict, GpuResult, Leg, LegNumbers, Plan, SCHEMA, Setting,
    is_standin, plan_checks, render,
};
use crate::model::reference::ResolvedModel;
use crate::model::store::file as model_store;
use crate::sys::interrupt::Interrupt;
use crate::sys::launch_lock::LaunchLock;
use crate::sys::{clock, env, files, git, host, terminal};

use launch::{LegLauncher, UnderTest};

mod ending;
mod launch;
mod output;

const NO_GRAPHS: &str = "decode-bench does not offer graph capture; docs/CUDA.md says why";
/// NVIDIA's checker of device memory.
const SANITIZER: &str = "compute-sanitizer";

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    let started = clock::Stopwatch::start();
    let interrupt = Interrupt::install()?;
    let binary = find_binary(&args.binary)?;
    let models = find_models(root, &args.models)?;
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let _lock = LaunchLock::acquire(root, "gpu-check")?;
    let plan = if args.quick { Plan::QUICK } else { Plan::FULL };
    let binary_sha256 = files::read_sha256(&binary)?;
    let planned = plan_checks(&names, plan);
    let session = open_session(root, args, &models, &planned, interrupt)?;
    let under_test = UnderTest {
        root,
        binary,
        binary_sha256: &binary_sha256,
        models,
        device: &args.device,
        started,
        budget_s: args.budget_s,
        out: args.out.as_deref(),
    };
    let mut launcher = LegLauncher::new(under_test, session)?;
    let mut checks = Checks { launcher: &mut launcher, results: Vec::new(), measured: Vec::new() };
    let ran = checks.make_all(planned);
    let results = checks.results;
    let git = git::read_git_state(root);
    let card = launcher.card();
    let result = GpuResult {
        schema: SCHEMA,
        date: clock::today(),
        is_standin: is_standin(&card),
        card,
        commit: git.commit,
        dirty: git.dirty,
        binary_sha256: binary_sha256.clone(),
        wall_s: started.elapsed().as_secs_f64(),
        budget_s: args.budget_s,
        interrupted: interrupt.is_set(),
        checks: results,
    };
    // Whatever ended the runs, what they showed so far goes to disk.
    let written = launcher.finish(&result);
    ran?;
    written?;
    if args.json {
        terminal::data(&output::render_json(&result)?);
    } else {
        terminal::data(&render::render_table(&result.checks));
    }
    terminal::log(&format!("gpu-check: {}", render::render_summary(&result)));
    terminal::log(&format!("gpu-check: wrote `{}`", launcher.shown_folder()));
    if interrupt.is_set() {
        return Ok(Outcome::Interrupted);
    }
    if let Some(why) = result.find_nothing_checked() {
        return Err(anyhow!(why))
            .hint("allow more time with --budget-s, or fix what the table names");
    }
    Ok(if result.has_failed() { Outcome::Violation } else { Outcome::Done })
}

/// The session that launches every leg, past the guard over what the plan measures.
fn open_session(
    root: &Path,
    args: &Args,
    models: &[ResolvedModel],
    planned: &[Check],
    interrupt: Interrupt,
) -> anyhow::Result<Session<RealExecutor>> {
    let asked = RecordRule::from_flag(args.ignore_oom_record);
    let mut guard = read_guard(root, asked, host::read_host_facts()?.device_memory_bytes())?;
    let cells: Vec<Cell<'_>> = planned
        .iter()
        .flat_map(|check| &check.legs)
        .filter_map(|leg| {
            let model = models.iter().find(|model| model.name == leg.model)?;
            Some(Cell { model, len: leg.prompt_tokens, variant: None })
        })
        .collect();
    let most = planned.iter().flat_map(|check| &check.legs).map(|leg| leg.max_tokens).max();
    guard = guard.with_fakes(read_fake_ooms(&cells)?).with_most_tokens(most.unwrap_or(0));
    for cell in &cells {
        guard.require(*cell, "gpu-check")?;
    }
    let commit = git::read_git_state(root).commit;
    let finder = Finder { commit, source: String::new(), command: Some("gpu-check") };
    Ok(Session::new(RealExecutor::new(root, interrupt), guard, finder).watching_health())
}

fn find_binary(path: &Path) -> anyhow::Result<PathBuf> {
    let path = files::absolute(path)?;
    host::which(&path.to_string_lossy())
        .ok_or_else(|| anyhow!("there is no program `{}`", path.display()))
        .hint("build it: cargo xtask cuda-setup")
}

fn find_models(root: &Path, words: &[String]) -> anyhow::Result<Vec<ResolvedModel>> {
    let models = model_store::resolve_models(root, words)?;
    match models.iter().find(|model| model.kind == crate::model::reference::ModelKind::Missing) {
        Some(missing) => {
            let why = missing.note.clone().unwrap_or_default();
            Err(anyhow!("model `{}`: {why}", missing.name)).hint("cargo xtask model list")
        }
        None => Ok(models),
    }
}

/// The checks as they are made.
struct Checks<'a, 'b, E> {
    launcher: &'a mut LegLauncher<'b, E>,
    results: Vec<CheckResult>,
    measured: Vec<(Leg, LegNumbers)>,
}

impl<E: Executor> Checks<'_, '_, E> {
    fn make_all(&mut self, checks: Vec<Check>) -> anyhow::Result<()> {
        for check in checks {
            if self.launcher.executor().is_interrupted() {
                return Ok(());
            }
            let result = match self.find_obstacle(&check) {
                Some(why) => not_possible(&check.name, &why),
                None => self.make(&check)?,
            };
            // A check that a signal cut off has no verdict.
            if self.launcher.executor().is_interrupted() && result.verdict != CheckVerdict::Pass {
                return Ok(());
            }
            self.launcher.keep_check(&result)?;
            self.results.push(result);
        }
        Ok(())
    }

    /// Why a check need not be tried: its model does not even start.
    fn find_obstacle(&self, check: &Check) -> Option<String> {
        let model = check.name.split_once('/')?.1;
        let start = format!("start/{model}");
        let failed =
            |result: &&CheckResult| result.name == start && result.verdict != CheckVerdict::Pass;
        (check.kind != CheckKind::Start)
            .then(|| self.results.iter().find(failed))?
            .map(|_| format!("`{start}` did not pass"))
    }

    fn make(&mut self, check: &Check) -> anyhow::Result<CheckResult> {
        let name = check.name.as_str();
        Ok(match check.kind {
            CheckKind::Start => judge_start(name, &self.run_all(check)?),
            CheckKind::Decode => judge_decode(name, &self.run_all(check)?),
            CheckKind::Memory => judge_memory(name, &self.run_all(check)?),
            CheckKind::Cap => {
                let runs = self.run_all(check)?;
                judge_cap(name, &runs, self.find_free_run(&check.legs[0]))
            }
            CheckKind::OomRescue => {
                let runs = self.run_all(check)?;
                judge_oom_rescue(name, &runs, self.find_free_run(&check.legs[0]))
            }
            CheckKind::Sanitizer => self.make_sanitizer(check)?,
            CheckKind::GraphCapture => not_possible(name, NO_GRAPHS),
        })
    }

    /// A run of the same work with the cache on and memory free, to compare tokens with.
    fn find_free_run(&self, leg: &Leg) -> Option<(&Leg, &LegNumbers)> {
        let is_free = |other: &Leg| {
            other.setting == Setting::On
                && other.leave_free_mib.is_none()
                && (&other.model, other.prompt_tokens) == (&leg.model, leg.prompt_tokens)
        };
        self.measured.iter().find(|(other, _)| is_free(other)).map(|(leg, run)| (leg, run))
    }

    /// Makes the runs of a check, as far as the time allows.
    fn run_all(&mut self, check: &Check) -> anyhow::Result<Vec<Run>> {
        let mut runs = Vec::new();
        for leg in &check.legs {
            if self.launcher.executor().is_interrupted() {
                break;
            }
            let earlier: Vec<&LegNumbers> = self
                .measured
                .iter()
                .filter(|(other, _)| other.model == leg.model)
                .map(|(_, numbers)| numbers)
                .collect();
            let end = self.launcher.run(&check.name, leg, &earlier)?;
            if let Some(numbers) = end.numbers() {
                self.measured.push((leg.clone(), numbers.clone()));
            }
            runs.push((leg.clone(), end));
        }
        Ok(runs)
    }

    fn make_sanitizer(&mut self, check: &Check) -> anyhow::Result<CheckResult> {
        let name = check.name.as_str();
        if host::which(SANITIZER).is_none() {
            return Ok(not_possible(name, "compute-sanitizer is not installed"));
        }
        self.launcher.run_sanitized(name, &check.legs[0])
    }
}

/// The environment of a run, besides its setting: a folder `lib` beside the program is searched first.
fn library_env(binary: &Path) -> Vec<(String, Option<String>)> {
    let folder = binary.parent().map(|parent| parent.join("lib"));
    let Some(folder) = folder.filter(|folder| files::exists(folder)) else { return Vec::new() };
    let before = env::read_var("LD_LIBRARY_PATH");
    let path = crate::gpu::toolkit::prepend_path(&folder.to_string_lossy(), before.as_deref());
    vec![("LD_LIBRARY_PATH".to_owned(), Some(path))]
}

/// The name of a run, as a file can have it.
fn file_name(number: usize, check: &str, leg: &str) -> anyhow::Result<String> {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
    let name: String = format!("{number:02}-{check}-{leg}").chars().map(safe).collect();
    (name.len() < 200).then_some(name).context("the name of the model is too long for a file")
}

#[cfg(test)]
mod tests;
