//! One launch of the runner, one command oracle, one build: from a plan to a record.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use formats::cell_report::CellReport;

use super::bench::Bench;
use crate::base::diagnostic::HintExt as _;
use crate::base::scrub::Scrub;
use crate::cell::capture::Capture;
use crate::cell::child::{ChildEnd, ChildSpec};
use crate::cell::classify::{Classification, ExitKind, StopReason};
use crate::cell::executor::Executor;
use crate::cell::grid::Cell;
use crate::cell::outcome::CellOutcome;
use crate::cell::quiet::QuietLimits;
use crate::cell::result::CellNumbers;
use crate::cell::runner::{CellVars, Measured, ResultFormat, Runner};
use crate::cell::session::{End, LaunchNote, Ledger, Session, Watch};
use crate::cell::spec::{CellSpec, program_path};
use crate::model::reference::ResolvedModel;
use crate::prereg::chain::{Version, sha256};
use crate::prereg::compose::{Configuration, configure};
use crate::prereg::document::{Document, OracleCheck, Source};
use crate::prereg::metric::{Log, log_cost_s, parse_log, read_series};
use crate::prereg::plan::{CommandStep, Launch};
use crate::prereg::sample::{BuildRecord, CommandRecord, Failure, LaunchRecord, Record, Slot};
use crate::prereg::samples::file as samples_file;
use crate::sys::git::trees as git_trees;
use crate::sys::{env, files, terminal};

/// Where a runner writes its JSON lines.
const LOG_VAR: &str = "ARC_PREREG_LOG";
/// The folder for files that `file-equal` oracles compare.
const OUT_VAR: &str = "ARC_PREREG_OUT";
/// Variables of the shell with these beginnings are no part of the frozen protocol.
const PROTOCOL_PREFIXES: [&str; 4] = ["ARC_", "BENCH_", "MLXCEL_", "RAYON_"];
/// How long the machine is watched before a launch whose time counts.
const PAUSE: Duration = Duration::from_millis(250);
/// A log or report beyond this size is none.
const TEXT_LIMIT_BYTES: u64 = 256 << 20;

/// Everything that launches of one ladder share.
pub(super) struct Launcher<'a, E> {
    session: Session<E>,
    pub(super) root: &'a Path,
    pub(super) name: &'a str,
    pub(super) document: &'a Document,
    pub(super) version: &'a Version,
    pub(super) runner: &'a Runner,
    pub(super) model: &'a ResolvedModel,
    scratch: tempfile::TempDir,
    scrub: Scrub,
    /// Binaries that were checked in this session, by build key.
    ready: BTreeMap<String, Ready>,
    launches: u64,
}

/// A program that is ready to run.
#[derive(Debug, Clone)]
struct Ready {
    /// Where commands run: the user's tree, or one below `target/`.
    tree: PathBuf,
    /// What `{target_dir}` stands for; `None` for a foreign runner.
    target_dir: Option<PathBuf>,
    /// The binary and its hash; `None` for a foreign runner.
    binary: Option<(PathBuf, String)>,
}

/// What came of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It ended, and its record is kept.
    Kept,
    /// The guard forbids the launch, for this reason.
    Refused(String),
    /// The whole run was interrupted; the step says nothing.
    Interrupted,
}

impl<'a, E: Executor> Launcher<'a, E> {
    pub(super) fn new(
        root: &'a Path,
        name: &'a str,
        document: &'a Document,
        version: &'a Version,
        (runner, model): (&'a Runner, &'a ResolvedModel),
        session: Session<E>,
    ) -> anyhow::Result<Launcher<'a, E>> {
        Ok(Launcher {
            session,
            root,
            name,
            document,
            version,
            runner,
            model,
            scratch: files::create_scratch(&root.join("target/prereg"), "run-")?,
            scrub: env::read_scrub(root),
            ready: BTreeMap::new(),
            launches: 0,
        })
    }

    pub(super) fn is_interrupted(&mut self) -> bool {
        self.session.executor().is_interrupted()
    }

    /// Makes the program for these items ready. Returns the record of a build, if one was needed.
    ///
    /// # Errors
    ///
    /// When it does not build, or is not the binary that earlier launches of this run used.
    pub(super) fn prepare(
        &mut self,
        items: &[String],
        records: &[Record],
    ) -> anyhow::Result<Option<BuildRecord>> {
        let configuration = configure(self.document, items);
        let key = configuration.build_key();
        if self.ready.contains_key(&key) {
            return Ok(None);
        }
        let folder = self.root.join("target/prereg").join(self.name);
        let slug =
            sha256(format!("{} {key}", self.version.entry_sha256).as_bytes())[..16].to_owned();
        let tree = self.make_tree(&configuration, &folder.join("trees").join(&slug))?;
        let Some(build) = &self.runner.build else {
            self.ready.insert(key, Ready { tree, target_dir: None, binary: None });
            return Ok(None);
        };
        let target_dir = folder.join("bin").join(&slug);
        let binary = target_dir.join("release").join(&build.bin);
        let earlier = records.iter().rev().find_map(|record| match record {
            Record::Build(build) if build.key == key => Some(build.sha256.clone()),
            _ => None,
        });
        if let Some(earlier) = &earlier
            && files::exists(&binary)
            && files::read_sha256(&binary)? == *earlier
        {
            let binary = Some((binary, earlier.clone()));
            self.ready.insert(key, Ready { tree, target_dir: Some(target_dir), binary });
            return Ok(None);
        }
        let cost_s = self.build(&tree, &configuration, &binary)?;
        let found = files::read_sha256(&binary)?;
        ensure!(
            earlier.as_ref().is_none_or(|earlier| *earlier == found),
            "the binary for `{key}` is not the one that earlier launches of this run used"
        );
        let record = BuildRecord { key: key.clone(), sha256: found.clone(), cost_s };
        let binary = Some((binary, found));
        self.ready.insert(key, Ready { tree, target_dir: Some(target_dir), binary });
        Ok(Some(record))
    }

    /// The tree for a configuration: the user's, or one of its own for revisions.
    fn make_tree(&self, configuration: &Configuration, tree: &Path) -> anyhow::Result<PathBuf> {
        if configuration.revs.is_empty() {
            return Ok(self.root.to_owned());
        }
        let mut commits = Vec::new();
        for revision in &configuration.revs {
            let pinned = self.version.pins.revisions.get(revision);
            let pinned = pinned.with_context(|| format!("revision `{revision}` is not frozen"))?;
            commits.extend(pinned.split(' ').map(str::to_owned));
        }
        terminal::log(&format!("prereg: work tree with {}", configuration.revs.join(", ")));
        files::create_folder(tree.parent().unwrap_or(self.root))?;
        git_trees::make_tree(self.root, tree, &self.version.pins.commit, &commits)?;
        Ok(tree.to_owned())
    }

    fn build(
        &mut self,
        tree: &Path,
        configuration: &Configuration,
        binary: &Path,
    ) -> anyhow::Result<f64> {
        let build = self.runner.build.as_ref().context("the runner is not built here")?;
        let own_tree = tree != self.root;
        // Trees of revisions share a target folder of their own, so that the user's stays warm.
        let target_dir = if own_tree {
            self.root.join("target/prereg/build")
        } else {
            self.root.join(env::read_var("CARGO_TARGET_DIR").unwrap_or_else(|| "target".to_owned()))
        };
        let mut spec = ChildSpec::new("cargo", tree);
        let mut args = vec![
            "build".to_owned(),
            "--release".to_owned(),
            "--locked".to_owned(),
            "--package".to_owned(),
            build.package.clone(),
            "--bin".to_owned(),
            build.bin.clone(),
        ];
        if !configuration.features.is_empty() {
            args.extend(["--features".to_owned(), configuration.features.join(",")]);
        }
        terminal::log(&format!("prereg: cargo {}", args.join(" ")));
        spec.args = args.iter().map(Into::into).collect();
        spec.env =
            vec![("CARGO_TARGET_DIR".to_owned(), Some(target_dir.to_string_lossy().into_owned()))];
        let end = self.session.run_check(&spec)?;
        if end.exit != ExitKind::Code(0) {
            return Err(anyhow::anyhow!(
                "`cargo {}` failed:\n{}",
                args.join(" "),
                end.stderr.last_lines(20).join("\n")
            ))
            .hint(format!("run it in `{}` to see everything", tree.display()));
        }
        files::create_folder(binary.parent().unwrap_or(tree))?;
        samples_file::copy_file(&target_dir.join("release").join(&build.bin), binary)?;
        Ok(seconds(end.wall))
    }

    fn ready_for(&self, configuration: &Configuration) -> anyhow::Result<&Ready> {
        let key = configuration.build_key();
        let ready = self
            .ready
            .get(&key)
            .with_context(|| format!("the program for `{key}` is not ready"))?;
        if let Some((binary, sha256)) = &ready.binary {
            ensure!(
                files::read_sha256(binary)? == *sha256,
                "`{}` changed during the run",
                binary.display()
            );
        }
        Ok(ready)
    }

    /// Variables that nothing of the shell's may reach a launch by.
    fn removed_vars(&self, configuration: &Configuration) -> Vec<(String, Option<String>)> {
        let shell = env::read_relevant_vars()
            .into_keys()
            .filter(|name| PROTOCOL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
        shell.chain(configuration.controlled.iter().cloned()).map(|name| (name, None)).collect()
    }

    /// Launches the runner, for at most `limit`, and keeps what came of it in `bench`.
    pub(super) fn launch(
        &mut self,
        launch: &Launch,
        limit: Duration,
        bench: &mut Bench,
    ) -> anyhow::Result<Ended> {
        self.launches += 1;
        let folder = self.scratch.path().join(format!("launch-{}", self.launches));
        files::create_folder(&folder)?;
        let configuration = configure(self.document, &launch.items);
        let ready = self.ready_for(&configuration)?.clone();
        let log_path = folder.join("log.jsonl");
        let target_dir = match &ready.target_dir {
            Some(folder) => folder.to_string_lossy().into_owned(),
            None => env::read_var("CARGO_TARGET_DIR").unwrap_or_else(|| "target".to_owned()),
        };
        let args: Vec<String> = configuration.args.iter().chain(&launch.args).cloned().collect();
        let runner = self.runner.with_extra_args(&args);
        let mut set: Vec<(String, Option<String>)> = (configuration.env.iter())
            .map(|(name, value)| (name.clone(), Some(value.clone())))
            .collect();
        for (name, path) in [(LOG_VAR, &log_path), (OUT_VAR, &folder)] {
            set.push((name.to_owned(), Some(path.to_string_lossy().into_owned())));
        }
        let own_limit = Duration::from_secs_f64(self.document.protocol.timeout_s);
        let spec = CellSpec {
            root: &ready.tree,
            runner: &runner,
            vars: CellVars {
                model: self.model.name.clone(),
                model_path: self.root.join(&self.model.path).to_string_lossy().into_owned(),
                prompt_tokens: launch.prompt_tokens,
                max_tokens: launch.steps,
                warmup_tokens: self.document.protocol.warmup_tokens,
                threads: self.document.protocol.threads,
                report: folder.join("report.json").to_string_lossy().into_owned(),
                target_dir,
            },
            base_env: self.removed_vars(&configuration),
            env: set,
            timeout: own_limit.min(limit),
            memory_limit_bytes: None,
        };
        let variant = launch.items.join("+");
        let cell = Cell {
            model: self.model,
            len: launch.prompt_tokens,
            variant: (!variant.is_empty()).then_some(&variant),
        };
        let left = RefCell::new(Left::default());
        let mut entries = Entries {
            bench,
            reader: Reader { document: self.document, runner: self.runner, launch },
            scrub: &self.scrub,
            left: &left,
            folder: &folder,
            limit,
            refused: None,
        };
        let reader = entries.reader;
        let end = self.session.run_with(
            cell,
            &spec,
            watch_of(self.document, &launch.slot),
            &mut entries,
            |executor, _| {
                let mut left = left.borrow_mut();
                *left = read_left(executor, &spec.report_path(), &log_path);
                reader.check(&left)
            },
        )?;
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
        let configuration = configure(self.document, &step.items);
        let ready = self.ready_for(&configuration)?.clone();
        let (program, args) = step.command.split_first().context("the command is empty")?;
        let mut spec = ChildSpec::new(program_path(&ready.tree, program), &ready.tree);
        spec.args = args.iter().map(Into::into).collect();
        let set = configuration.env.clone().into_iter().map(|(name, value)| (name, Some(value)));
        spec.env = self.removed_vars(&configuration).into_iter().chain(set).collect();
        let own_limit = Duration::from_secs_f64(self.document.protocol.timeout_s);
        spec.timeout = Some(own_limit.min(limit));
        let end = self.session.run_check(&spec)?;
        if end.stopped == Some(StopReason::Interrupt) {
            return Ok(Ended::Interrupted);
        }
        let free = self.document.protocol.cost_field.is_some();
        bench.append(Record::Command(CommandRecord {
            oracle: step.oracle.clone(),
            item: step.item.clone(),
            exit: match (end.stopped, end.exit) {
                (None, ExitKind::Code(code)) => Some(code),
                _ => None,
            },
            detail: self.scrub.text(&last_line(&end)),
            // Where launches run elsewhere, what runs here costs no machine time there.
            cost_s: if free { 0.0 } else { seconds(end.wall) },
        }))?;
        Ok(Ended::Kept)
    }
}

impl<E> Drop for Launcher<'_, E> {
    fn drop(&mut self) {
        for ready in self.ready.values().filter(|ready| ready.tree != self.root) {
            // A tree that cannot be removed is no reason to fail: it lies below `target/`.
            let _ = git_trees::remove_tree(self.root, &ready.tree);
        }
    }
}

/// What a launch left, besides its output.
#[derive(Debug, Default)]
struct Left {
    report: Option<CellReport>,
    report_json: Option<serde_json::Value>,
    log: Log,
}

fn read_left(executor: &mut impl Executor, report: &Path, log: &Path) -> Left {
    let text = executor.read_text(report, TEXT_LIMIT_BYTES).unwrap_or_default();
    let report_json: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let report: Option<CellReport> =
        report_json.clone().and_then(|json| serde_json::from_value(json).ok());
    Left {
        report: report.filter(|report| report.schema > 0),
        report_json,
        log: parse_log(&executor.read_text(log, TEXT_LIMIT_BYTES).unwrap_or_default()),
    }
}

/// Reads what a launch must leave.
#[derive(Debug, Clone, Copy)]
struct Reader<'a> {
    document: &'a Document,
    runner: &'a Runner,
    launch: &'a Launch,
}

impl Reader<'_> {
    /// The numbers, or what is missing of them.
    fn check(&self, left: &Left) -> Result<CellNumbers, String> {
        let needs_log = self.document.metrics.iter().any(|metric| metric.source == Source::Log);
        if needs_log && left.log.records.is_empty() {
            return Err(format!("it wrote no JSON lines to the file that {LOG_VAR} names"));
        }
        if let Some(problem) = left.log.problem.as_ref().filter(|_| needs_log) {
            return Err(format!("its JSON lines are damaged: {problem}"));
        }
        if self.runner.result == ResultFormat::Report {
            let report = left.report.as_ref();
            let report = report.ok_or("it wrote no cell report that can be read")?;
            let target = report.prompt.target_tokens.or(report.prompt.tokens);
            let wanted = self.launch.prompt_tokens;
            if target != Some(wanted) {
                return Err(format!("its report is of another prompt length than {wanted}"));
            }
        }
        Ok(CellNumbers {
            measured: Measured::default(),
            report: left.report.clone(),
            report_json: left.report_json.clone(),
        })
    }
}

/// One launch's lines in the bench.
struct Entries<'a> {
    bench: &'a mut Bench,
    reader: Reader<'a>,
    scrub: &'a Scrub,
    left: &'a RefCell<Left>,
    folder: &'a Path,
    /// How long it may take at most, under the ceiling.
    limit: Duration,
    /// Why the guard forbids it.
    refused: Option<String>,
}

impl Ledger for Entries<'_> {
    fn note_launch(&mut self, note: LaunchNote) -> anyhow::Result<()> {
        self.bench.note_launch(self.reader.launch, note)
    }

    fn note_end(&mut self, end: &End) -> anyhow::Result<()> {
        let record = match end {
            End::Interrupted => return Ok(()),
            End::Ran(outcome) if outcome.was_interrupted() => return Ok(()),
            // It would not start for any rung, and says nothing of this one.
            End::NotStarted(reason) => anyhow::bail!("{reason}"),
            End::Refused { reason, .. } => {
                self.refused = Some(reason.clone());
                return Ok(());
            }
            End::Faked(class) => {
                let detail = "faked".to_owned();
                self.record(Some(Failure { class: *class, detail }), Vec::new(), 0.0)?
            }
            End::Ran(outcome) => self.record_of(outcome)?,
        };
        let Reader { document, launch, .. } = self.reader;
        self.bench.keep_launch(document, launch, record, self.limit)
    }
}

impl Entries<'_> {
    fn record_of(&self, outcome: &CellOutcome) -> anyhow::Result<LaunchRecord> {
        let failed = outcome.classification.map(|class| Failure {
            class,
            detail: self.scrub.text(&render_failure(
                class,
                &outcome.end,
                outcome.numbers.as_ref().err().map(String::as_str),
            )),
        });
        let disturbed =
            outcome.quiet.as_ref().map(|quiet| quiet.disturbances.clone()).unwrap_or_default();
        let cost_s = match &self.reader.document.protocol.cost_field {
            Some(field) => log_cost_s(&self.left.borrow().log, field).unwrap_or(0.0),
            None => seconds(outcome.end.wall),
        };
        self.record(failed, disturbed, cost_s)
    }

    fn record(
        &self,
        failed: Option<Failure>,
        disturbed: Vec<String>,
        cost_s: f64,
    ) -> anyhow::Result<LaunchRecord> {
        let Reader { document, launch, .. } = self.reader;
        let left = self.left.borrow();
        let report = left.report.as_ref();
        let settings = report.and_then(|report| serde_json::to_value(&report.settings).ok());
        Ok(LaunchRecord {
            slot: launch.slot.clone(),
            items: launch.items.clone(),
            failed,
            rejected: None,
            disturbed,
            series: read_series(document, report, &left.log),
            token_hash: report.and_then(|report| report.output.token_hash.clone()),
            files: hash_files(document, self.folder)?,
            settings: settings.unwrap_or_default(),
            cost_s,
        })
    }
}

/// Watches the machine for a moment before a launch whose time counts. Nothing is watched where
/// nobody looks at the time: oracles compare work, and what runs elsewhere is not disturbed by what
/// runs here.
fn watch_of(document: &Document, slot: &Slot) -> Option<Watch> {
    let is_timed = matches!(slot, Slot::Ladder { .. }) && document.protocol.cost_field.is_none();
    let max_other_load_pct = document.protocol.max_other_load * 100.0;
    is_timed.then_some(Watch { pause: PAUSE, limits: QuietLimits { max_other_load_pct } })
}

fn hash_files(document: &Document, folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    for oracle in &document.oracles {
        if let OracleCheck::FileEqual { file } = &oracle.check
            && samples_file::is_file(&folder.join(file))
        {
            hashes.insert(file.clone(), files::read_sha256(&folder.join(file))?);
        }
    }
    Ok(hashes)
}

/// A duration in seconds, to the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

fn render_failure(class: Classification, end: &ChildEnd, problem: Option<&str>) -> String {
    let how = end.exit;
    let said = match (class, &end.said.cause, problem) {
        (Classification::FailNoOutput, _, Some(problem)) => return problem.to_owned(),
        (Classification::FailTimeout, ..) => return "it ran past its time limit".to_owned(),
        (_, Some(shortage), _) => shortage.line.clone(),
        _ => last_line(end),
    };
    if said.is_empty() { how.to_string() } else { format!("{how}: {said}") }
}

fn last_line(end: &ChildEnd) -> String {
    let last = |capture: &Capture| capture.last_lines(1).pop();
    last(&end.stderr).or_else(|| last(&end.stdout)).unwrap_or_default()
}
