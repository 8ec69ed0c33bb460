//! Before anything is launched: the definition, the grid, the guard, the runner, the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::journal_of;
use super::output::Earlier;
use crate::base::diagnostic::HintExt as _;
use crate::base::hash::sha256_hex;
use crate::cell::classify::Classification;
use crate::cell::grid::{Cell, FakeCell, Grid, Order, parse_fake_cell, parse_fake_ooms, plan_grid};
use crate::cell::guard::file::{FAKE_OOM_VAR, read_guard};
use crate::cell::guard::{Admission, Guard, RecordRule};
use crate::cell::journal::request::{Device, Request};
use crate::cell::journal::{CellState, ModelNote, Settings};
use crate::cell::runner::{CellVars, Runner, ServerVars, check_model, file as runner_store};
use crate::cell::spec::CellSpec;
use crate::model::reference::ResolvedModel;
use crate::model::store::file as model_store;
use crate::sweep::args::Args;
use crate::sweep::definition::{
    SweepConfig, choose_default_config, parse_lengths, parse_sweep_config, split_models,
};
use crate::sweep::repeats::find_whole_runs;
use crate::sweep::table::{PlanLine, render_plan};
use crate::sys::hardware::{Backend, HostFacts};
use crate::sys::{boot, env, files, host, terminal};

/// Everything that is known before the first cell.
pub(super) struct Prepared {
    pub(super) request: Request,
    pub(super) config: SweepConfig,
    /// The definition's name, as file names have it.
    pub(super) config_name: String,
    pub(super) config_sha256: String,
    pub(super) settings: Settings,
    pub(super) grid: Grid,
    pub(super) runner: Runner,
    /// The runner with each variant's arguments, by the variant's name.
    pub(super) variant_runners: BTreeMap<String, Runner>,
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
) -> anyhow::Result<(Prepared, Guard)> {
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
    let grid = plan_grid(model_store::resolve_models(root, &config.models)?, Vec::new())?
        .with_pairs(&config.lengths, config.max_tokens)
        .with_variants(&config.variants, config.plain)
        .with_concurrency(&config.concurrency)
        .in_order(config.order);
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
    if runner.server.is_none() && config.concurrency != [1] {
        bail!(
            "`concurrency` needs a server, but runner `{}` starts none: its `result` is not \
             `openai-stream`",
            runner.name
        );
    }
    let fakes = parse_fakes(&request, &grid)?;
    let target = target_of(&host, config.device);
    if target.backend == Backend::Cuda && host.gpu_kinds.len() > 1 {
        return Err(anyhow::anyhow!(
            "the GPUs that programs see here differ ({}): rows of one CSV would be of different hardware",
            host.gpu_kinds.join(", ")
        ))
        .hint(
            "let them see one kind: set CUDA_VISIBLE_DEVICES to UUIDs (`nvidia-smi -L` shows them), or to \
             numbers with CUDA_DEVICE_ORDER=PCI_BUS_ID",
        );
    }
    let memory_bytes = match target.backend {
        Backend::Cpu => host.memory_bytes,
        Backend::Cuda | Backend::Metal => host.device_memory_bytes(),
    };
    let asked = RecordRule::from_flag(args.ignore_oom_record);
    let guard = read_guard(root, asked, memory_bytes)?
        .with_fakes(fakes.clone())
        .with_variants(config.variants.clone())
        .with_max_tokens(config.max_tokens);
    let settings = Settings {
        config: config_path.clone(),
        runner: config.runner.clone(),
        runner_sha256: sha256_hex(runner_text.as_bytes()),
        runner_meaning_sha256: Some(hash_meaning(&runner_text)?),
        program_sha256: None,
        hardware: target.hardware.clone(),
        device: config.device,
        lengths: config.lengths.clone(),
        concurrency: Some(config.concurrency.clone()).filter(|all| *all != [1]),
        max_tokens: config.max_tokens,
        warmup_tokens: config.warmup_tokens,
        threads: config.threads,
        timeout_s: config.timeout.as_secs_f64(),
        cooldown_s: config.cooldown.as_secs_f64(),
        big_cooldown_s: config.big_cooldown.as_secs_f64(),
        quiet: Some(config.quiet),
        variants: config.variants.clone(),
        plain: Some(config.plain).filter(|plain| !plain),
        repeats: Some(config.repeats).filter(|repeats| *repeats > 1),
        order: Some(config.order).filter(|order| *order != Order::default()),
        cell_memory_limit_mb: config.cell_memory_limit_mb,
        fake_cells: fakes.iter().map(|f| format!("{}:{}:{}", f.model, f.len, f.class)).collect(),
        models: grid.models().iter().map(note_of).collect(),
    };
    let mut variant_runners = BTreeMap::new();
    for variant in &config.variants {
        let runner = variant.apply_to(&runner)?;
        variant_runners.insert(variant.name.clone(), runner);
    }
    let prepared = Prepared {
        config_name: stem_of(&config_path),
        config_sha256: sha256_hex(config_text.as_bytes()),
        target_dir: env::read_target_dir(),
        request,
        config,
        settings,
        grid,
        variant_runners,
        runner,
        host,
        target,
        engine_version: None,
    };
    Ok((prepared, guard))
}

impl Prepared {
    pub(super) fn spec_of<'a>(
        &'a self,
        root: &'a Path,
        cell: Option<Cell<'_>>,
        report: &str,
    ) -> CellSpec<'a> {
        let (model, model_path, len) = match cell {
            Some(Cell { model, len, .. }) => (model.name.clone(), model.path.clone(), len),
            None => Default::default(),
        };
        let limit_mb = self.config.cell_memory_limit_mb;
        CellSpec {
            root,
            runner: self.runner_of(cell),
            vars: CellVars {
                model,
                model_path,
                prompt_tokens: len,
                max_tokens: self.max_tokens_of(cell),
                warmup_tokens: self.config.warmup_tokens,
                threads: self.config.threads,
                report: report.to_owned(),
                target_dir: self.target_dir.clone(),
                server: ServerVars {
                    port: None,
                    concurrency: cell.map_or(1, |cell| self.grid.concurrency_of(cell)),
                },
            },
            base_env: Vec::new(),
            env: Vec::new(),
            timeout: self.config.timeout,
            memory_limit_bytes: limit_mb.map(|mb| mb.saturating_mul(1 << 20)),
        }
    }

    /// How many tokens a cell generates at most.
    pub(super) fn max_tokens_of(&self, cell: Option<Cell<'_>>) -> u64 {
        cell.and_then(|cell| self.grid.generate_of(cell)).unwrap_or(self.config.max_tokens)
    }

    /// The runner, with the arguments of the cell's variant.
    fn runner_of(&self, cell: Option<Cell<'_>>) -> &Runner {
        let change = cell.and_then(|cell| self.grid.change_of(cell));
        change.and_then(|name| self.variant_runners.get(name)).unwrap_or(&self.runner)
    }

    /// The pause after a cell; `hard` ones give the machine time to return memory.
    pub(super) fn cooldown(&self, hard: bool) -> Duration {
        if hard { self.config.big_cooldown.max(self.config.cooldown) } else { self.config.cooldown }
    }
}

/// What each cell would do and why.
pub(super) fn render_list(
    prepared: &Prepared,
    mut guard: Guard,
    earlier: Option<&Earlier>,
    retry_lost: bool,
) -> String {
    let journal = journal_of(earlier);
    let boot = boot::read_boot_id();
    for end in journal.cell_ends() {
        if end.classification.is_some_and(Classification::is_true_oom) {
            guard.note_true_oom(&end.model, end.prompt_target_len);
        }
    }
    let lines: Vec<PlanLine> = prepared
        .grid
        .cells()
        .map(|cell| {
            let state = journal.cell_state(&cell.name(), cell.len, &boot);
            let admission = guard.admit(cell);
            if admission == Admission::Fake(Classification::Oom) {
                guard.note_true_oom(&cell.name(), cell.len);
            }
            let (name, len) = (cell.name(), cell.len);
            let (action, reason) =
                match find_whole_runs(&journal, &name, len, prepared.config.repeats) {
                    Some(_) => ("row".to_owned(), "its runs are in the journal".to_owned()),
                    None => describe(state, &admission, retry_lost),
                };
            PlanLine { model: cell.name(), len: cell.len, action, reason }
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
            "the host went down during this cell; --retry-lost launches it again".to_owned(),
        ),
        (_, Admission::Launch) => ("run".to_owned(), "nothing blocks it".to_owned()),
        (_, Admission::Fake(class)) => (class.token().to_owned(), "faked".to_owned()),
        (_, Admission::Refuse { class, reason }) => (class.token().to_owned(), reason.clone()),
    }
}

/// SHA-256 of what a definition in TOML says, whatever its comments and the order of its keys.
fn hash_meaning(text: &str) -> anyhow::Result<String> {
    let table: toml::Table = text.parse().context("the runner's definition is not TOML")?;
    Ok(sha256_hex(&serde_json::to_vec(&table).context("cannot write the definition as JSON")?))
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
        quiet: args.quiet,
        runner: args.runner.clone(),
        cell_memory_limit_mb: args.cell_memory_limit_mb,
        fake_oom: fake_oom.filter(|text| !text.trim().is_empty()),
        fake_cells: Some(args.fake_cell.clone()).filter(|cells| !cells.is_empty()),
    })
}

fn parse_fakes(request: &Request, grid: &Grid) -> anyhow::Result<Vec<FakeCell>> {
    let cells: Vec<Cell<'_>> = grid.cells().collect();
    let mut fakes = match &request.fake_oom {
        Some(text) => parse_fake_ooms(text, &cells)?,
        None => Vec::new(),
    };
    for text in request.fake_cells.iter().flatten() {
        fakes.push(parse_fake_cell(text, &cells)?);
    }
    Ok(fakes)
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
