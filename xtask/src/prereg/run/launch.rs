//! One launch of the runner, one command oracle, one build: from a plan to a record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use formats::cell_report::CellReport;

use crate::base::diagnostic::HintExt as _;
use crate::base::scrub::Scrub;
use crate::cell::capture::Capture;
use crate::cell::child::run::{ChildEnd, ChildSpec, run_child};
use crate::cell::classify::{Classification, Ending, ExitKind, ResultState, StopReason, classify};
use crate::cell::quiet::file::read_host_sample;
use crate::cell::quiet::{QuietLimits, Stretch, check_quiet};
use crate::cell::run::program_path;
use crate::cell::runner::{CellVars, ResultFormat, Runner, render_command, render_env};
use crate::model::reference::ResolvedModel;
use crate::prereg::chain::{Version, sha256};
use crate::prereg::compose::{Configuration, configure};
use crate::prereg::document::{Document, OracleCheck, Source};
use crate::prereg::metric::{Log, log_cost_s, parse_log, read_series};
use crate::prereg::plan::{CommandStep, Launch};
use crate::prereg::sample::{BuildRecord, CommandRecord, Failure, LaunchRecord, Record, Slot};
use crate::prereg::samples::file as samples_file;
use crate::sys::git::trees as git_trees;
use crate::sys::interrupt::Interrupt;
use crate::sys::{clock, env, files, terminal};

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
pub(super) struct Launcher<'a> {
    pub(super) root: &'a Path,
    pub(super) name: &'a str,
    pub(super) document: &'a Document,
    pub(super) version: &'a Version,
    pub(super) runner: &'a Runner,
    pub(super) model: &'a ResolvedModel,
    pub(super) interrupt: Interrupt,
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
pub(super) enum Ended {
    /// It ended, and this is its record.
    Recorded(Box<Record>),
    /// The whole run was interrupted; the step says nothing.
    Interrupted,
}

impl<'a> Launcher<'a> {
    pub(super) fn new(
        root: &'a Path,
        name: &'a str,
        document: &'a Document,
        version: &'a Version,
        (runner, model): (&'a Runner, &'a ResolvedModel),
        interrupt: Interrupt,
    ) -> anyhow::Result<Launcher<'a>> {
        Ok(Launcher {
            root,
            name,
            document,
            version,
            runner,
            model,
            interrupt,
            scratch: files::create_scratch(&root.join("target/prereg"), "run-")?,
            scrub: env::read_scrub(root),
            ready: BTreeMap::new(),
            launches: 0,
        })
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
        &self,
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
        let end = run_child(&spec, self.interrupt)?;
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

    /// Changes to the environment: nothing that the shell set for the engine, then the runner's own,
    /// then the protocol's and the items'.
    fn environment(
        &self,
        configuration: &Configuration,
        runner_env: BTreeMap<String, String>,
    ) -> Vec<(String, Option<String>)> {
        let shell = env::read_relevant_vars()
            .into_keys()
            .filter(|name| PROTOCOL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
        let mut changes: Vec<(String, Option<String>)> = shell
            .chain(configuration.controlled.iter().cloned())
            .map(|name| (name, None))
            .collect();
        let set = runner_env.into_iter().chain(configuration.env.clone());
        changes.extend(set.map(|(name, value)| (name, Some(value))));
        changes
    }

    /// Launches the runner, for at most `limit`.
    pub(super) fn launch(&mut self, launch: &Launch, limit: Duration) -> anyhow::Result<Ended> {
        self.launches += 1;
        let folder = self.scratch.path().join(format!("launch-{}", self.launches));
        files::create_folder(&folder)?;
        let configuration = configure(self.document, &launch.items);
        let ready = self.ready_for(&configuration)?;
        let report_path = folder.join("report.json");
        let log_path = folder.join("log.jsonl");
        let target_dir = match &ready.target_dir {
            Some(folder) => folder.to_string_lossy().into_owned(),
            None => env::read_var("CARGO_TARGET_DIR").unwrap_or_else(|| "target".to_owned()),
        };
        let vars = CellVars {
            model: self.model.name.clone(),
            model_path: self.root.join(&self.model.path).to_string_lossy().into_owned(),
            prompt_tokens: launch.prompt_tokens,
            max_tokens: launch.steps,
            warmup_tokens: self.document.protocol.warmup_tokens,
            threads: self.document.protocol.threads,
            report: report_path.to_string_lossy().into_owned(),
            target_dir,
        };
        let mut command = render_command(self.runner, &vars);
        let program = command.remove(0);
        command.extend(configuration.args.iter().chain(&launch.args).cloned());
        let mut spec = ChildSpec::new(program_path(&ready.tree, &program), &ready.tree);
        spec.args = command.iter().map(Into::into).collect();
        spec.env = self.environment(&configuration, render_env(self.runner, &vars));
        for (name, path) in [(LOG_VAR, &log_path), (OUT_VAR, &folder)] {
            spec.env.push((name.to_owned(), Some(path.to_string_lossy().into_owned())));
        }
        let own_limit = Duration::from_secs_f64(self.document.protocol.timeout_s);
        spec.timeout = Some(own_limit.min(limit));
        let Some(before) = self.watch_before(launch) else { return Ok(Ended::Interrupted) };
        let (end, wall) = clock::time(|| run_child(&spec, self.interrupt));
        let end = end?;
        if end.stopped == Some(StopReason::Interrupt) {
            return Ok(Ended::Interrupted);
        }
        let mut record = self.record(launch, &end, &folder, &report_path, &log_path)?;
        if let Some(before) = before {
            let during = Stretch { start: before.end, end: read_host_sample(), wall, own: end.cpu };
            let limits =
                QuietLimits { max_other_load_pct: self.document.protocol.max_other_load * 100.0 };
            record.disturbed = check_quiet(&before, &during, limits).disturbances;
        }
        Ok(Ended::Recorded(Box::new(Record::Launch(record))))
    }

    /// Watches the machine for a moment before a launch whose time counts. `None` where a signal came;
    /// nothing within where nobody watches: oracles compare work, and what runs elsewhere is not
    /// disturbed by what runs here.
    fn watch_before(&self, launch: &Launch) -> Option<Option<Stretch>> {
        let is_timed = matches!(launch.slot, Slot::Ladder { .. });
        if !is_timed || self.document.protocol.cost_field.is_some() {
            return Some(None);
        }
        let start = read_host_sample();
        let (may_go_on, wall) = clock::time(|| self.interrupt.sleep(PAUSE));
        let end = read_host_sample();
        may_go_on.then_some(Some(Stretch { start, end, wall, own: Duration::ZERO }))
    }

    fn record(
        &self,
        launch: &Launch,
        end: &ChildEnd,
        folder: &Path,
        report_path: &Path,
        log_path: &Path,
    ) -> anyhow::Result<LaunchRecord> {
        let report = read_report(report_path)?;
        let log = parse_log(&read_limited(log_path)?.unwrap_or_default());
        let problem = self.find_problem(launch, report.as_ref(), &log);
        let (class, _) = classify(&Ending {
            exit: end.exit,
            stopped: end.stopped,
            pattern: end.pattern.clone(),
            result: if problem.is_none() { ResultState::Numbers } else { ResultState::Missing },
        });
        let failed = class.map(|class| Failure {
            class,
            detail: self.scrub.text(&render_failure(class, end, problem.as_deref())),
        });
        let by_log = self.document.protocol.cost_field.as_ref();
        let settings =
            report.as_ref().and_then(|report| serde_json::to_value(&report.settings).ok());
        Ok(LaunchRecord {
            slot: launch.slot.clone(),
            items: launch.items.clone(),
            failed,
            rejected: None,
            disturbed: Vec::new(),
            series: read_series(self.document, report.as_ref(), &log),
            token_hash: report.as_ref().and_then(|report| report.output.token_hash.clone()),
            files: self.hash_files(folder)?,
            settings: settings.unwrap_or_default(),
            cost_s: match by_log {
                Some(field) => log_cost_s(&log, field).unwrap_or(0.0),
                None => seconds(end.wall),
            },
        })
    }

    /// What is missing of a launch that ended well, if anything.
    fn find_problem(
        &self,
        launch: &Launch,
        report: Option<&CellReport>,
        log: &Log,
    ) -> Option<String> {
        let needs_log = self.document.metrics.iter().any(|metric| metric.source == Source::Log);
        if needs_log && log.records.is_empty() {
            return Some(format!("it wrote no JSON lines to the file that {LOG_VAR} names"));
        }
        if let Some(problem) = log.problem.as_ref().filter(|_| needs_log) {
            return Some(format!("its JSON lines are damaged: {problem}"));
        }
        if self.runner.result != ResultFormat::Report {
            return None;
        }
        match report {
            None => Some("it wrote no cell report that can be read".to_owned()),
            Some(report) => {
                let target = report.prompt.target_tokens.or(report.prompt.tokens);
                (target != Some(launch.prompt_tokens)).then(|| {
                    format!("its report is of another prompt length than {}", launch.prompt_tokens)
                })
            }
        }
    }

    fn hash_files(&self, folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
        let mut hashes = BTreeMap::new();
        for oracle in &self.document.oracles {
            if let OracleCheck::FileEqual { file } = &oracle.check
                && samples_file::is_file(&folder.join(file))
            {
                hashes.insert(file.clone(), files::read_sha256(&folder.join(file))?);
            }
        }
        Ok(hashes)
    }

    /// Runs a command oracle, for at most `limit`.
    pub(super) fn command(&mut self, step: &CommandStep, limit: Duration) -> anyhow::Result<Ended> {
        let configuration = configure(self.document, &step.items);
        let ready = self.ready_for(&configuration)?;
        let (program, args) = step.command.split_first().context("the command is empty")?;
        let mut spec = ChildSpec::new(program_path(&ready.tree, program), &ready.tree);
        spec.args = args.iter().map(Into::into).collect();
        spec.env = self.environment(&configuration, BTreeMap::new());
        let own_limit = Duration::from_secs_f64(self.document.protocol.timeout_s);
        spec.timeout = Some(own_limit.min(limit));
        let end = run_child(&spec, self.interrupt)?;
        if end.stopped == Some(StopReason::Interrupt) {
            return Ok(Ended::Interrupted);
        }
        let free = self.document.protocol.cost_field.is_some();
        Ok(Ended::Recorded(Box::new(Record::Command(CommandRecord {
            oracle: step.oracle.clone(),
            item: step.item.clone(),
            exit: match (end.stopped, end.exit) {
                (None, ExitKind::Code(code)) => Some(code),
                _ => None,
            },
            detail: self.scrub.text(&last_line(&end)),
            // Where launches run elsewhere, what runs here costs no machine time there.
            cost_s: if free { 0.0 } else { seconds(end.wall) },
        }))))
    }
}

impl Drop for Launcher<'_> {
    fn drop(&mut self) {
        for ready in self.ready.values().filter(|ready| ready.tree != self.root) {
            // A tree that cannot be removed is no reason to fail: it lies below `target/`.
            let _ = git_trees::remove_tree(self.root, &ready.tree);
        }
    }
}

/// A duration in seconds, to the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

fn render_failure(class: Classification, end: &ChildEnd, problem: Option<&str>) -> String {
    let how = match end.exit {
        ExitKind::Code(code) => format!("exit code {code}"),
        ExitKind::Signal(signal) => format!("signal {signal}"),
    };
    let said = match (class, &end.pattern, problem) {
        (Classification::FailNoOutput, _, Some(problem)) => return problem.to_owned(),
        (Classification::FailTimeout, ..) => return "it ran past its time limit".to_owned(),
        (_, Some(pattern), _) => pattern.line.clone(),
        _ => last_line(end),
    };
    if said.is_empty() { how } else { format!("{how}: {said}") }
}

fn last_line(end: &ChildEnd) -> String {
    let last = |capture: &Capture| capture.last_lines(1).pop();
    last(&end.stderr).or_else(|| last(&end.stdout)).unwrap_or_default()
}

fn read_limited(path: &Path) -> anyhow::Result<Option<String>> {
    if samples_file::size_bytes(path) > TEXT_LIMIT_BYTES {
        return Ok(None);
    }
    files::read_text_if_present(path)
}

/// The cell report; `None` where there is none, or what is there is not one.
fn read_report(path: &Path) -> anyhow::Result<Option<CellReport>> {
    let Some(text) = read_limited(path)? else { return Ok(None) };
    let report: Option<CellReport> = serde_json::from_str(&text).ok();
    Ok(report.filter(|report| report.schema > 0))
}
