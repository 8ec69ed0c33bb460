//! Before the first run: the definition, the model, the programs, the hashes, the folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::output;
use crate::ab::args::Args;
use crate::ab::config::{AbPlan, Leg, LegRole, parse_ab};
use crate::ab::samples::{AbStart, Identity, Log, SCHEMA};
use crate::base::diagnostic::HintExt as _;
use crate::base::hash::sha256_hex;
use crate::cell::environment::Inherited;
use crate::cell::guard::file::read_guard_of_model;
use crate::cell::guard::{Guard, RecordRule};
use crate::cell::pins::file::watch_runner;
use crate::cell::runner::{
    CellVars, Runner, check_model, file as runner_store, render_command, render_env,
};
use crate::cell::spec::CellSpec;
use crate::model::reference::{ModelKind, ResolvedModel, is_weight_file};
use crate::model::store::file as model_store;
use crate::sys::hardware::HostFacts;
use crate::sys::watched::Watched;
use crate::sys::{clock, env, files, git, host, terminal};

/// The definition that is used where none is named.
const DEFAULT_CONFIG: &str = "bench-configs/ab/default.toml";

/// Everything that is known before the first run.
pub(super) struct Prepared {
    pub(super) start: AbStart,
    /// What an earlier, interrupted comparison left; empty for a new one.
    pub(super) log: Log,
    pub(super) folder: PathBuf,
    pub(super) is_resumed: bool,
    pub(super) model: ResolvedModel,
    /// How base, null and test legs are run.
    pub(super) runner: Runner,
    /// How the baseline leg is run.
    pub(super) baseline_runner: Option<Runner>,
    /// What must not change from run to run.
    pub(super) watched: Vec<Watched>,
}

impl Prepared {
    /// How a leg is started, with its report at a path of its own.
    pub(super) fn spec_of<'a>(&'a self, root: &'a Path, leg: &Leg, report: &Path) -> CellSpec<'a> {
        let plan = &self.start.plan;
        let runner = match (leg.role, &self.baseline_runner) {
            (LegRole::Baseline, Some(runner)) => runner,
            _ => &self.runner,
        };
        let value_of = |name: &str| {
            leg.env.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        CellSpec {
            root,
            runner,
            vars: vars_of(plan, &self.model, &report.to_string_lossy()),
            base_env: Vec::new(),
            // Every variable that any leg sets is removed unless this leg sets it, whatever the
            // shell has.
            env: plan
                .variables()
                .into_iter()
                .map(|name| (name.to_owned(), value_of(name)))
                .collect(),
            timeout: Duration::from_secs_f64(plan.timeout_s),
            memory_limit_bytes: None,
        }
    }
}

/// Reads and checks everything, builds the engine, and makes the folder of a new comparison.
pub(super) fn prepare(root: &Path, args: &Args) -> anyhow::Result<(Prepared, Guard)> {
    let facts = host::read_host_facts()?;
    match &args.resume {
        Some(folder) => prepare_resumed(root, folder, args),
        None => prepare_new(root, args, &facts),
    }
}

fn prepare_new(root: &Path, args: &Args, facts: &HostFacts) -> anyhow::Result<(Prepared, Guard)> {
    let definition = read_definition(root, args.config.as_deref())?;
    let plan = plan_of(definition.as_ref(), args)?;
    let model = find_model(root, &plan.model)?;
    // Before anything is built: a base that is refused leaves nothing to compare with.
    let guard = read_guard_of(root, &plan, &model, args)?;
    let mut found = find(root, &plan, model, args)?;
    let git = git::read_git_state(root);
    let date = clock::today();
    if let Some((path, _)) = &definition {
        let watched = Watched::begin("the definition", &root.join(path))?;
        found.identity.config_sha256 = Some(watched.sha256().to_owned());
        found.watched.push(watched);
    }
    let folder = output::create_folder(root, &date, &plan.slug())?;
    let start = AbStart {
        schema: SCHEMA,
        time: clock::now_utc(),
        date,
        args: env::read_args(),
        identity: found.identity.clone(),
        host: facts.clone(),
        hardware: facts.hardware(),
        device_bytes: facts.device_memory_bytes(),
        commit: git.commit,
        dirty: git.dirty,
        environment: env::read_relevant_vars(),
        inherited: Some(found.inherited.clone()),
        plan,
    };
    Ok((found.into_prepared(start, Log::default(), folder, false), guard))
}

/// The plan of a definition and a command line, checked as that of a comparison with another binary.
pub(super) fn read_plan(root: &Path, args: &Args) -> anyhow::Result<AbPlan> {
    let definition = read_definition(root, args.config.as_deref())?;
    let args = Args { baseline_bin: Some(PathBuf::new()), ..args.clone() };
    plan_of(definition.as_ref(), &args)
}

fn plan_of(definition: Option<&(String, String)>, args: &Args) -> anyhow::Result<AbPlan> {
    parse_ab(definition.map(|(path, text)| (path.as_str(), text.as_str())), args)
}

/// What a command line speaks of, for the name of its program alone.
pub(super) fn vars_of_nothing(target_dir: &str) -> CellVars {
    CellVars { target_dir: target_dir.to_owned(), ..CellVars::default() }
}

fn prepare_resumed(root: &Path, folder: &Path, args: &Args) -> anyhow::Result<(Prepared, Guard)> {
    let folder = files::absolute(folder)?;
    let (start, log) = output::read_earlier(&folder)?;
    let has_baseline = start.plan.legs.iter().any(|leg| leg.role == LegRole::Baseline);
    match (has_baseline, &args.baseline_bin) {
        (true, None) => {
            return Err(anyhow::anyhow!("the comparison has a leg with another binary"))
                .hint("give --baseline-bin PATH again, with the same binary");
        }
        (false, Some(_)) => bail!("the comparison has no leg with another binary"),
        (true, Some(_)) | (false, None) => {}
    }
    for number in &log.unreadable_lines {
        terminal::log(&format!(
            "warning: line {number} of samples.jsonl is cut off and is ignored"
        ));
    }
    let model = find_model(root, &start.plan.model)?;
    let guard = read_guard_of(root, &start.plan, &model, args)?;
    let mut found = find(root, &start.plan, model, args)?;
    if let Some(path) = &start.plan.config {
        let path = match &args.config {
            Some(path) => files::absolute(path)?,
            None => root.join(path),
        };
        let watched = Watched::begin("the definition", &path).hint(
            "give --config PATH again if it lies outside the checkout; its hash must be the same",
        )?;
        found.identity.config_sha256 = Some(watched.sha256().to_owned());
        found.watched.push(watched);
    }
    let mut changes = start.identity.changes(&found.identity);
    if let Some(then) = &start.inherited {
        // What a reader of the disk has, so that paths agree.
        let now = found.inherited.scrubbed(&env::read_scrub(root));
        changes.extend(then.changes(&now));
    }
    if !changes.is_empty() {
        return Err(anyhow::anyhow!("cannot resume: {}", changes.join("; ")))
            .hint("runs before and after the change cannot be compared; start a new comparison");
    }
    Ok((found.into_prepared(start, log, folder, true), guard))
}

/// What a plan's words stand for on this machine.
struct Found {
    model: ResolvedModel,
    runner: Runner,
    baseline_runner: Option<Runner>,
    identity: Identity,
    watched: Vec<Watched>,
    inherited: Inherited,
}

impl Found {
    fn into_prepared(
        self,
        start: AbStart,
        log: Log,
        folder: PathBuf,
        is_resumed: bool,
    ) -> Prepared {
        let Found { model, runner, baseline_runner, watched, identity: _, inherited: _ } = self;
        Prepared { start, log, folder, is_resumed, model, runner, baseline_runner, watched }
    }
}

fn find(root: &Path, plan: &AbPlan, model: ResolvedModel, args: &Args) -> anyhow::Result<Found> {
    let (runner, _) = runner_store::read_runner(root, &plan.runner)?;
    check_model(&runner, model.kind)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("model `{}`", model.name))?;
    let runner = runner.with_extra_args(&plan.runner_args);
    let runner = match &args.base_bin {
        Some(path) => runner.with_program(&files::absolute(path)?.to_string_lossy()),
        None => {
            runner_store::build_runner(root, &runner)?;
            runner
        }
    };

    let command = render_command(&runner, &vars_of(plan, &model, ""));
    let program = runner_store::find_program(root, &runner, &command)?;
    let mut watched = vec![Watched::begin("the program", &program)?];
    let mut identity =
        Identity { program_sha256: watched[0].sha256().to_owned(), ..Identity::default() };
    let baseline_runner =
        match args.baseline_bin.as_deref() {
            None => None,
            Some(path) => {
                let path = files::absolute(path)?;
                let program = Watched::begin("the baseline program", &path)?;
                if program.sha256() == identity.program_sha256 {
                    return Err(anyhow::anyhow!(
                    "`{}` is byte for byte the program that the other legs run",
                    path.display()
                ))
                .hint("give the binary of another build; the null leg runs this one again already");
                }
                identity.baseline_sha256 = Some(program.sha256().to_owned());
                watched.push(program);
                Some(runner.with_program(&path.to_string_lossy()))
            }
        };
    let definition = runner_store::definition_path(root, &plan.runner);
    watched.push(Watched::begin("the runner's definition", &definition)?);
    identity.runner_sha256 =
        watched.last().map(|watched| watched.sha256().to_owned()).unwrap_or_default();
    let (model_files, model_sha256) = watch_model(root, &model)?;
    identity.model_sha256 = model_sha256;
    watched.extend(model_files);
    let model_path = root.join(&model.path);
    let (pins, pinned) =
        watch_runner(root, &runner, &command, &model_path, &env::read_scrub(root))?;
    identity.pins = pins;
    watched.extend(pinned);
    let of_runner = render_env(&runner, &vars_of(plan, &model, "")).into_keys();
    let changed = of_runner.chain(plan.variables().into_iter().map(str::to_owned)).collect();
    let inherited = Inherited::of(&env::read_all_vars(), &changed);
    Ok(Found { model, runner, baseline_runner, identity, watched, inherited })
}

/// What a runner's command line may speak of.
fn vars_of(plan: &AbPlan, model: &ResolvedModel, report: &str) -> CellVars {
    CellVars {
        model: model.name.clone(),
        model_path: model.path.clone(),
        prompt_tokens: plan.prompt_tokens,
        max_tokens: plan.max_tokens,
        warmup_tokens: plan.warmup_tokens,
        threads: plan.threads,
        report: report.to_owned(),
        target_dir: env::read_target_dir(),
        server: Default::default(),
    }
}

fn find_model(root: &Path, word: &str) -> anyhow::Result<ResolvedModel> {
    let mut models = model_store::resolve_models(root, &[word.to_owned()])?;
    if models.len() != 1 {
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        bail!("a comparison takes one model, but `{word}` matches {}", names.join(", "));
    }
    let model = models.remove(0);
    if model.kind == ModelKind::Missing {
        let why = model.note.clone().unwrap_or_else(|| "there is no such model".to_owned());
        return Err(anyhow::anyhow!("model `{word}`: {why}"))
            .hint("`cargo xtask model list` shows the models");
    }
    if let Some(note) = &model.note {
        terminal::log(&format!("note: {note}"));
    }
    Ok(model)
}

/// The files that a model consists of, and one hash over them; none where the runner knows the model
/// by a name of its own.
fn watch_model(
    root: &Path,
    model: &ResolvedModel,
) -> anyhow::Result<(Vec<Watched>, Option<String>)> {
    let path = root.join(&model.path);
    let paths: Vec<PathBuf> = match model.kind {
        ModelKind::Synthetic | ModelKind::Gguf => vec![path],
        ModelKind::Directory => files::list_files(&path)
            .into_iter()
            .filter(|path| {
                path.file_name().is_some_and(|name| is_weight_file(&name.to_string_lossy()))
            })
            .collect(),
        ModelKind::Missing => Vec::new(),
    };
    let watched = paths
        .iter()
        .map(|path| Watched::begin("the model", path))
        .collect::<Result<Vec<_>, _>>()?;
    let hash = match watched.as_slice() {
        [] => None,
        [one] => Some(one.sha256().to_owned()),
        many => {
            let hashes: Vec<&str> = many.iter().map(Watched::sha256).collect();
            Some(sha256_hex(hashes.join("\n").as_bytes()))
        }
    };
    Ok((watched, hash))
}

fn read_guard_of(
    root: &Path,
    plan: &AbPlan,
    model: &ResolvedModel,
    args: &Args,
) -> anyhow::Result<Guard> {
    let asked = RecordRule::from_flag(args.ignore_oom_record);
    read_guard_of_model(root, asked, model, &[plan.prompt_tokens], plan.max_tokens, "ab")
}

fn read_definition(root: &Path, named: Option<&Path>) -> anyhow::Result<Option<(String, String)>> {
    let path = match named {
        Some(path) => files::absolute(path)?,
        None => root.join(DEFAULT_CONFIG),
    };
    if named.is_none() && !files::exists(&path) {
        return Ok(None);
    }
    let text =
        files::read_text(&path).hint("definitions of comparisons are in bench-configs/ab/")?;
    let shown = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
    Ok(Some((shown, text)))
}
