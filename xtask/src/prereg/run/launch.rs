//! One step of a ladder: a launch of the runner, or a command oracle, from a plan to a sample.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::bench::Bench;
use super::entries::{Entries, LOG_VAR, Left, Paths, Reader, last_line, seconds};
use super::program::{Programs, TARGET};
use super::verify::watch_files;
use crate::base::scrub::Scrub;
use crate::cell::child::ChildSpec;
use crate::cell::classify::{ExitKind, StopReason};
use crate::cell::executor::Executor;
use crate::cell::grid::Cell;
use crate::cell::quiet::QuietLimits;
use crate::cell::runner::{CellVars, Runner};
use crate::cell::session::{Session, Watch};
use crate::cell::spec::{CellSpec, program_path};
use crate::model::reference::ResolvedModel;
use crate::prereg::chain::Version;
use crate::prereg::compose::{Configuration, configure};
use crate::prereg::document::Document;
use crate::prereg::plan::{CommandStep, Launch};
use crate::prereg::sample::{BuildRecord, CommandRecord, Record, Slot};
use crate::sys::watched::Watched;
use crate::sys::{env, files};

/// The folder for files that `file-equal` oracles compare.
const OUT_VAR: &str = "ARC_PREREG_OUT";
/// Variables of the shell with these beginnings are not part of the frozen protocol.
const PROTOCOL_PREFIXES: [&str; 4] = ["ARC_", "BENCH_", "MLXCEL_", "RAYON_"];
/// How long the machine is watched before a launch whose time counts.
const PAUSE: Duration = Duration::from_millis(250);

/// What the steps of one ladder share.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) root: &'a Path,
    pub(super) name: &'a str,
    pub(super) document: &'a Document,
    pub(super) version: &'a Version,
    pub(super) runner: &'a Runner,
    pub(super) model: &'a ResolvedModel,
}

/// Makes the steps of one ladder.
pub(super) struct StepLauncher<'a, E> {
    session: Session<E>,
    subject: Subject<'a>,
    programs: Programs<'a>,
    /// What every launch runs and reads.
    watched: Vec<Watched>,
    scratch: tempfile::TempDir,
    scrub: Scrub,
    launches: u64,
}

/// What came of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It ended, and its record is kept.
    Kept,
    /// The guard refuses the launch, for this reason.
    Refused(String),
    /// The whole run was interrupted; the step says nothing.
    Interrupted,
}

impl<'a, E: Executor> StepLauncher<'a, E> {
    pub(super) fn new(
        subject: Subject<'a>,
        session: Session<E>,
    ) -> anyhow::Result<StepLauncher<'a, E>> {
        let Subject { root, name, version, runner, document, model } = subject;
        Ok(StepLauncher {
            session,
            subject,
            programs: Programs::new(root, name, version, runner),
            watched: watch_files(root, document, runner, model)?.1,
            scratch: files::create_scratch(&root.join(TARGET), "run-")?,
            scrub: env::read_scrub(root),
            launches: 0,
        })
    }

    pub(super) fn executor(&mut self) -> &mut E {
        self.session.executor()
    }

    /// Makes the program for these items ready. Returns the record of a build, if one was needed.
    ///
    /// # Errors
    /// As [`Programs::prepare`].
    pub(super) fn prepare(
        &mut self,
        items: &[String],
        records: &[Record],
    ) -> anyhow::Result<Option<BuildRecord>> {
        let configuration = configure(self.subject.document, items);
        self.programs.prepare(&mut self.session, &configuration, records)
    }

    /// Launches the runner, for at most `limit`, and keeps what came of it in `bench`.
    ///
    /// # Errors
    /// When a file that the launch runs or reads is not what it was when the run began.
    pub(super) fn launch(
        &mut self,
        launch: &Launch,
        limit: Duration,
        bench: &mut Bench,
    ) -> anyhow::Result<Ended> {
        let Subject { root, document, model, .. } = self.subject;
        self.watched.iter_mut().try_for_each(Watched::check)?;
        self.launches += 1;
        let folder = self.scratch.path().join(format!("launch-{}", self.launches));
        files::create_folder(&folder)?;
        let paths = Paths::within(folder);
        let configuration = configure(document, &launch.items);
        let program = self.programs.get(&configuration)?;
        let args: Vec<String> = configuration.args.iter().chain(&launch.args).cloned().collect();
        let runner = self.subject.runner.with_extra_args(&args);
        let shown = |path: &Path| path.to_string_lossy().into_owned();
        let mut set = set_vars(&configuration);
        set.push((LOG_VAR.to_owned(), Some(shown(&paths.log))));
        set.push((OUT_VAR.to_owned(), Some(shown(&paths.folder))));
        let spec = CellSpec {
            root: &program.tree,
            runner: &runner,
            vars: CellVars {
                model: model.name.clone(),
                model_path: shown(&root.join(&model.path)),
                prompt_tokens: launch.prompt_tokens,
                max_tokens: launch.steps,
                warmup_tokens: document.protocol.warmup_tokens,
                threads: document.protocol.threads,
                report: shown(&paths.report),
                target_dir: program.target_dir,
                server: Default::default(),
            },
            base_env: removed_vars(&configuration),
            env: set,
            timeout: own_limit(document).min(limit),
            memory_limit_bytes: None,
        };
        let variant = launch.items.join("+");
        let variant = (!variant.is_empty()).then_some(variant.as_str());
        let cell = Cell { model, len: launch.prompt_tokens, variant };
        let left = RefCell::new(Left::default());
        let reader =
            Reader { document, runner: self.subject.runner, launch, paths: &paths, left: &left };
        let mut entries = Entries { bench, reader, scrub: &self.scrub, limit, refused: None };
        let watch = watch_of(document, &launch.slot);
        let read = |executor: &mut E, _: &_| reader.read(executor);
        let end = self.session.run_with(cell, &spec, watch, &mut entries, read)?;
        Ok(match (end.was_interrupted(), entries.refused) {
            (true, _) => Ended::Interrupted,
            (false, Some(why)) => Ended::Refused(why),
            (false, None) => Ended::Kept,
        })
    }

    /// Runs a command oracle, for at most `limit`.
    pub(super) fn command(
        &mut self,
        step: &CommandStep,
        limit: Duration,
        bench: &mut Bench,
    ) -> anyhow::Result<Ended> {
        let document = self.subject.document;
        let configuration = configure(document, &step.items);
        let tree = self.programs.get(&configuration)?.tree;
        let (program, args) = step.command.split_first().context("the command is empty")?;
        let mut spec = ChildSpec::new(program_path(&tree, program), &tree);
        spec.args = args.iter().map(Into::into).collect();
        spec.env = removed_vars(&configuration);
        spec.env.extend(set_vars(&configuration));
        spec.timeout = Some(own_limit(document).min(limit));
        let end = self.session.run_check(&spec)?;
        if end.stopped == Some(StopReason::Interrupt) {
            return Ok(Ended::Interrupted);
        }
        let is_free = document.protocol.cost_field.is_some();
        bench.append(Record::Command(CommandRecord {
            oracle: step.oracle.clone(),
            item: step.item.clone(),
            exit: match (end.stopped, end.exit) {
                (None, ExitKind::Code(code)) => Some(code),
                _ => None,
            },
            detail: self.scrub.text(&last_line(&end)),
            // Where launches run elsewhere, what runs here costs no machine time there.
            cost_s: if is_free { 0.0 } else { seconds(end.wall) },
        }))?;
        Ok(Ended::Kept)
    }
}

fn own_limit(document: &Document) -> Duration {
    Duration::from_secs_f64(document.protocol.timeout_s)
}

/// The variables that the protocol and the items set.
fn set_vars(configuration: &Configuration) -> Vec<(String, Option<String>)> {
    configuration.env.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect()
}

/// The variables through which the shell could steer a launch, removed.
fn removed_vars(configuration: &Configuration) -> Vec<(String, Option<String>)> {
    let shell = env::read_relevant_vars()
        .into_keys()
        .filter(|name| PROTOCOL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    shell.chain(configuration.controlled.iter().cloned()).map(|name| (name, None)).collect()
}

/// Watches the machine for a moment before a launch whose time counts. Nothing is watched where the
/// time does not: oracles compare work, and what runs elsewhere is not disturbed by what runs here.
fn watch_of(document: &Document, slot: &Slot) -> Option<Watch> {
    let is_timed = matches!(slot, Slot::Ladder { .. }) && document.protocol.cost_field.is_none();
    let max_other_load_pct = document.protocol.max_other_load * 100.0;
    is_timed.then_some(Watch {
        pause: PAUSE,
        shortest: Duration::ZERO,
        limits: QuietLimits { max_other_load_pct },
    })
}
