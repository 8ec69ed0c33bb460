//! Before anything is launched: the definition, the grid, the gate, the runner, the machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::journal_of;
use super::output::Earlier;
use crate::base::diagnostic::HintExt as _;
use crate::base::hash::sha256_hex;
use crate::cell::classify::Classification;
use crate::cell::grid::{Cell, FakeCell, Grid, parse_fake_cell, parse_fake_ooms, plan_grid};
use crate::cell::guard::{Admission, Gate, parse_overhead_factor};
use crate::cell::journal::request::{Device, Request};
use crate::cell::journal::{CellState, ModelNote, Settings};
use crate::cell::run::{CellLaunch, command_of};
use crate::cell::runner::{CellVars, Runner, check_model, file as runner_store};
use crate::model::reference::ResolvedModel;
use crate::model::store::file as model_store;
use crate::oom_record::{OomRecord, RECORD_PATH, file as record_file};
use crate::sweep::args::Args;
use crate::sweep::definition::{
    SweepConfig, choose_default_config, parse_lengths, parse_sweep_config, split_models,
};
use crate::sweep::table::{PlanLine, render_plan};
use crate::sys::hardware::{Backend, HostFacts};
use crate::sys::{env, files, host, terminal};

const FAKE_OOM_VAR: &str = "MLXCEL_BENCH_FAKE_OOM";
const OVERHEAD_FACTOR_VAR: &str = "BENCH_MEM_OVERHEAD_FACTOR";

/// Everything that is known before the first cell.
pub(super) struct Prepared {
    pub(super) request: Request,
    pub(super) config: SweepConfig,
    /// The definition's name, as file names have it.
    pub(super) config_name: String,
    pub(super) config_sha256: String,
    pub(super) settings: Settings,
    pub(super) grid: Grid,
    pub(super) gate: Gate,
    /// The record as it is, even where it does not keep cells from being launched.
    pub(super) record: OomRecord,
    pub(super) ignores_record: bool,
    pub(super) runner: Runner,
    /// Cargo's target folder, as commands have it.
    pub(super) target_dir: String,
    pub(super) host: HostFacts,
    pub(super) target: Target,
    /// The engine's version, once it is built.
    pub(super) engine_version: Option<String>,
}

/// What computes, as rows and file names call it.
pub(super) struct Target {
    pub(super) backend: Backend,
    pub(super) slug: String,
    pub(super) hardware: String,
}

/// Reads and checks everything; launches and writes nothing.
pub(super) fn prepare(
    root: &Path,
    args: &Args,
    earlier: Option<&Earlier>,
) -> anyhow::Result<Prepared> {
    let request = request_of(root, args)?;
    let request = match earlier.and_then(|earlier| earlier.journal.start()) {
        Some(start) => request.or(start.request.clone()),
        None => request,
    };
    let host = host::read_host_facts()?;
    let config_path = match &request.config {
        Some(path) => path.clone(),
        None => {
            let (path, why) = choose_default_config(&host);
            terminal::log(&format!("sweep: {path}, because {why}"));
            path.to_owned()
        }
    };
    let config_text = files::read_text(&root.join(&config_path))
        .hint("definitions of sweeps are in bench-configs/sweep/")?;
    let config = parse_sweep_config(&config_path, &config_text, &request)?;
    let grid =
        plan_grid(model_store::resolve_models(root, &config.models)?, config.lengths.clone())?;
    for model in grid.models() {
        if let Some(note) = model
            .note
            .as_ref()
            .filter(|_| model.kind != crate::model::reference::ModelKind::Missing)
        {
            terminal::log(&format!("note: {note}"));
        }
    }
    let (runner, runner_text) = runner_store::read_runner(root, &config.runner)?;
    for model in grid.models() {
        check_model(&runner, model.kind)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("model `{}`", model.name))?;
    }
    let fakes = parse_fakes(&request, &grid)?;
    let record = record_file::read_record(&root.join(RECORD_PATH))?;
    for warning in record.warnings() {
        terminal::log(&format!("warning: {warning}"));
    }
    let ignores_record = ignores_record(args);
    let target = target_of(&host, config.device);
    let memory_bytes = match target.backend {
        Backend::Cpu => host.memory_bytes,
        Backend::Cuda | Backend::Metal => host.device_memory_bytes(),
    };
    let record_in_force = if ignores_record { OomRecord::default() } else { record.clone() };
    let gate = Gate::new(record_in_force, fakes.clone(), memory_bytes, overhead_factor());
    let settings = Settings {
        config: config_path.clone(),
        runner: config.runner.clone(),
        runner_sha256: sha256_hex(runner_text.as_bytes()),
        program_sha256: None,
        hardware: target.hardware.clone(),
        device: config.device,
        lengths: config.lengths.clone(),
        max_tokens: config.max_tokens,
        warmup_tokens: config.warmup_tokens,
        threads: config.threads,
        timeout_s: config.timeout.as_secs_f64(),
        cooldown_s: config.cooldown.as_secs_f64(),
        big_cooldown_s: config.big_cooldown.as_secs_f64(),
        cell_memory_limit_mb: config.cell_memory_limit_mb,
        fake_cells: fakes.iter().map(|f| format!("{}:{}:{}", f.model, f.len, f.class)).collect(),
        models: grid.models().iter().map(note_of).collect(),
    };
    Ok(Prepared {
        config_name: stem_of(&config_path),
        config_sha256: sha256_hex(config_text.as_bytes()),
        target_dir: env::read_target_dir(),
        request,
        config,
        settings,
        grid,
        gate,
        record,
        ignores_record,
        runner,
        host,
        target,
        engine_version: None,
    })
}

impl Prepared {
    /// How a cell is launched, and its command line.
    pub(super) fn launch_of<'a>(
        &'a self,
        root: &'a Path,
        cell: Option<Cell<'_>>,
        report: &str,
    ) -> (CellLaunch<'a>, Vec<String>) {
        let (model, model_path, len) = match cell {
            Some(Cell { model, len }) => (model.name.clone(), model.path.clone(), len),
            None => Default::default(),
        };
        let limit_mb = self.config.cell_memory_limit_mb;
        let launch = CellLaunch {
            root,
            runner: &self.runner,
            vars: CellVars {
                model,
                model_path,
                prompt_tokens: len,
                max_tokens: self.config.max_tokens,
                warmup_tokens: self.config.warmup_tokens,
                threads: self.config.threads,
                report: report.to_owned(),
                target_dir: self.target_dir.clone(),
            },
            env: Vec::new(),
            timeout: self.config.timeout,
            memory_limit_bytes: limit_mb.map(|mb| mb.saturating_mul(1 << 20)),
        };
        let (command, _) = command_of(&launch);
        (launch, command)
    }

    /// The pause after a cell; `hard` ones give the machine time to return memory.
    pub(super) fn cooldown(&self, hard: bool) -> Duration {
        if hard { self.config.big_cooldown.max(self.config.cooldown) } else { self.config.cooldown }
    }
}

/// What each cell would do and why.
pub(super) fn render_list(
    prepared: &mut Prepared,
    earlier: Option<&Earlier>,
    retry_lost: bool,
) -> String {
    let journal = journal_of(earlier);
    for end in journal.cell_ends() {
        if end.classification.is_some_and(Classification::is_true_oom) {
            prepared.gate.note_true_oom(&end.model, end.prompt_target_len);
        }
    }
    let grid = prepared.grid.clone();
    let lines: Vec<PlanLine> = grid
        .cells()
        .map(|cell| {
            let state = journal.cell_state(&cell.model.name, cell.len);
            let admission = prepared.gate.admit(cell);
            if admission == Admission::Fake(Classification::Oom) {
                prepared.gate.note_true_oom(&cell.model.name, cell.len);
            }
            let (action, reason) = describe(state, &admission, retry_lost);
            PlanLine { model: cell.model.name.clone(), len: cell.len, action, reason }
        })
        .collect();
    render_plan(&lines)
}

fn describe(state: CellState, admission: &Admission, retry_lost: bool) -> (String, String) {
    let done = |reason: &str| ("done".to_owned(), reason.to_owned());
    match (state, admission) {
        (CellState::Finished(class), _) => done(class.map_or("measured", Classification::token)),
        (CellState::LostWithRow, _) if !retry_lost => done(Classification::FailHostLost.token()),
        (CellState::Lost, _) if !retry_lost => (
            Classification::FailHostLost.token().to_owned(),
            "the host was lost during it; --retry-lost launches it again".to_owned(),
        ),
        (_, Admission::Launch) => ("run".to_owned(), "nothing speaks against it".to_owned()),
        (_, Admission::Fake(class)) => (class.token().to_owned(), "faked".to_owned()),
        (_, Admission::Refuse { class, reason }) => (class.token().to_owned(), reason.clone()),
    }
}

/// SHA-256 of the settings, in lower-case hex.
pub(super) fn hash_settings(settings: &Settings) -> String {
    sha256_hex(&serde_json::to_vec(settings).unwrap_or_default())
}

fn request_of(root: &Path, args: &Args) -> anyhow::Result<Request> {
    let config = match &args.config {
        Some(path) => {
            let path = files::absolute(path)?;
            Some(path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned())
        }
        None => None,
    };
    let fake_oom = args.fake_oom.clone().or_else(|| env::read_var(FAKE_OOM_VAR));
    Ok(Request {
        config,
        models: split_models(&args.models)?,
        lengths: args.lengths.as_deref().map(parse_lengths).transpose()?,
        max_tokens: args.max_tokens,
        warmup_tokens: args.warmup_tokens,
        timeout_s: args.timeout,
        cooldown_s: args.cooldown,
        big_cooldown_s: args.big_cooldown,
        runner: args.runner.clone(),
        cell_memory_limit_mb: args.cell_memory_limit_mb,
        fake_oom: fake_oom.filter(|text| !text.trim().is_empty()),
        fake_cells: Some(args.fake_cell.clone()).filter(|cells| !cells.is_empty()),
    })
}

fn parse_fakes(request: &Request, grid: &Grid) -> anyhow::Result<Vec<FakeCell>> {
    let mut fakes = match &request.fake_oom {
        Some(text) => parse_fake_ooms(text, grid)?,
        None => Vec::new(),
    };
    for text in request.fake_cells.iter().flatten() {
        fakes.push(parse_fake_cell(text, grid)?);
    }
    Ok(fakes)
}

/// Whether the record keeps no cell from being launched: asked for by flag or by variable.
fn ignores_record(args: &Args) -> bool {
    // The variable first, so that a value that means nothing is warned of.
    record_file::is_ignored_by_variable() || args.ignore_oom_record
}

fn overhead_factor() -> f64 {
    let (factor, warning) = parse_overhead_factor(env::read_var(OVERHEAD_FACTOR_VAR).as_deref());
    if let Some(warning) = warning {
        terminal::log(&format!("warning: {warning}"));
    }
    factor
}

fn target_of(host: &HostFacts, device: Device) -> Target {
    let host = match device {
        Device::Auto => host.clone(),
        Device::Cpu => HostFacts { gpu: None, ..host.clone() },
    };
    let backend = match device {
        Device::Auto => host.backend(),
        Device::Cpu => Backend::Cpu,
    };
    Target { backend, slug: host.slug(), hardware: host.hardware() }
}

fn note_of(model: &ResolvedModel) -> ModelNote {
    ModelNote {
        name: model.name.clone(),
        path: model.tracked_path.clone(),
        weight_bytes: model.weight_bytes,
    }
}

fn stem_of(path: &str) -> String {
    PathBuf::from(path).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
