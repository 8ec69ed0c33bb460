//! One run after the other: within the time, with its setting alone, and on disk before the next.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::ending::leg_end_of;
use super::{SANITIZER, file_name, library_env, output};
use crate::base::diagnostic::HintExt as _;
use crate::base::scrub::Scrub;
use crate::cell::executor::Executor;
use crate::cell::grid::Cell;
use crate::cell::outcome::CellOutcome;
use crate::cell::runner::{CellVars, Runner, parse_runner};
use crate::cell::session::{End, LaunchNote, Ledger, Session};
use crate::cell::spec::CellSpec;
use crate::gpu::check::budget::{LEG_LIMIT_S, estimate_s};
use crate::gpu::check::judge::{SANITIZER_ERRORS, judge_sanitizer, not_possible};
use crate::gpu::check::render::render_page;
use crate::gpu::check::{CheckResult, GpuResult, Leg, LegEnd, LegNumbers, SCHEMA, is_standin};
use crate::model::reference::ResolvedModel;
use crate::sys::clock::Stopwatch;
use crate::sys::hardware::render_slug;
use crate::sys::json_lines::JournalFile;
use crate::sys::{clock, env, files, git, host, terminal};

/// With less time left than this no run is started.
const LEAST_S: f64 = 2.0;
/// Tokens of the discarded pass, after which every kernel is loaded.
const WARMUP_TOKENS: u64 = 4;
/// Seconds that a run under the memory checker needs at least.
const SANITIZER_S: f64 = 40.0;

/// What is checked, and within what.
pub(super) struct UnderTest<'a> {
    pub(super) root: &'a Path,
    pub(super) binary: PathBuf,
    pub(super) binary_sha256: &'a str,
    pub(super) models: Vec<ResolvedModel>,
    pub(super) device: &'a str,
    pub(super) started: Stopwatch,
    pub(super) budget_s: f64,
    /// The folder that was asked for.
    pub(super) out: Option<&'a Path>,
}

/// Launches legs and keeps what they left.
pub(super) struct LegLauncher<'a, E> {
    session: Session<E>,
    under_test: UnderTest<'a>,
    scrub: Scrub,
    /// For reports before they are kept; removed with the value.
    scratch: tempfile::TempDir,
    start_entry: serde_json::Value,
    /// Folder and journal: made before the first run.
    kept: Option<(PathBuf, JournalFile)>,
    card: Option<String>,
    launches: usize,
}

impl<'a, E: Executor> LegLauncher<'a, E> {
    pub(super) fn new(
        under_test: UnderTest<'a>,
        session: Session<E>,
    ) -> anyhow::Result<LegLauncher<'a, E>> {
        if let Some(folder) = under_test.out.filter(|folder| files::exists(folder)) {
            return Err(output::taken(folder)).hint("name another folder with --out");
        }
        let facts = host::read_host_facts()?;
        let git = git::read_git_state(under_test.root);
        let start_entry = json!({
            "event": "gpu_check_start",
            "schema": SCHEMA,
            "time": clock::now_utc(),
            "args": env::read_args(),
            "binary_sha256": under_test.binary_sha256,
            "device": under_test.device,
            "budget_s": under_test.budget_s,
            "host": facts,
            "commit": git.commit,
            "dirty": git.dirty,
            "environment": env::read_relevant_vars(),
        });
        Ok(LegLauncher {
            session,
            scratch: files::create_scratch(&under_test.root.join("target/gpu-check"), "run-")?,
            scrub: env::read_scrub(under_test.root),
            start_entry,
            kept: None,
            card: facts.gpu.map(|gpu| gpu.name),
            launches: 0,
            under_test,
        })
    }

    pub(super) fn executor(&mut self) -> &mut E {
        self.session.executor()
    }

    /// The card, as the program named it, or the driver.
    pub(super) fn card(&self) -> String {
        self.card.clone().unwrap_or_else(|| "unknown card".to_owned())
    }

    /// The folder, from the workspace.
    pub(super) fn shown_folder(&self) -> String {
        let folder = self.kept.as_ref().map(|(folder, _)| folder.as_path());
        let folder = folder.unwrap_or(Path::new("nothing"));
        folder.strip_prefix(self.under_test.root).unwrap_or(folder).to_string_lossy().into_owned()
    }

    /// Makes a run, if there is time for it.
    ///
    /// # Errors
    /// When the program cannot be started at all, or nothing can be written.
    pub(super) fn run(
        &mut self,
        check: &str,
        leg: &Leg,
        earlier: &[&LegNumbers],
    ) -> anyhow::Result<LegEnd> {
        let (left_s, needs_s) = (self.left_s(), estimate_s(earlier, leg.max_tokens));
        // The first run of all is made whatever it may take.
        if left_s < LEAST_S || (self.kept.is_some() && left_s < needs_s) {
            let why = format!(
                "{:.0} s of {:.0} s are left, and it needs about {needs_s:.0} s",
                left_s.max(0.0),
                self.under_test.budget_s
            );
            self.note_skipped(check, leg, &why)?;
            return Ok(LegEnd::Skipped(why));
        }
        let runner = self.runner(&[], &leg_args(self.under_test.device, leg))?;
        let variant = leg.variant();
        let (end, _) =
            self.launch(check, leg, variant.as_deref(), &runner, (LEG_LIMIT_S, needs_s))?;
        Ok(end)
    }

    /// Makes a run under the memory checker, if there is time for it, and judges it.
    pub(super) fn run_sanitized(&mut self, check: &str, leg: &Leg) -> anyhow::Result<CheckResult> {
        if self.left_s() < SANITIZER_S {
            let why = format!("{:.0} s are left, too few for it", self.left_s().max(0.0));
            self.note_skipped(check, leg, &why)?;
            return Ok(not_possible(check, &why));
        }
        let exit = SANITIZER_ERRORS.to_string();
        let before = [SANITIZER, "--tool", "memcheck", "--error-exitcode", &exit];
        let runner = self.runner(&before, &leg_args(self.under_test.device, leg))?;
        // With this estimate, being slow under the checker never counts as hanging.
        let limits = (SANITIZER_S * 2.0, SANITIZER_S);
        let (end, outcome) = self.launch(check, leg, Some(SANITIZER), &runner, limits)?;
        let said = outcome
            .as_ref()
            .map(|outcome| format!("{}\n{}", outcome.end.stdout.text(), outcome.end.stderr.text()));
        let exit = outcome.and_then(|outcome| outcome.process_note().exit_code);
        Ok(judge_sanitizer(check, &leg.name, &said.unwrap_or_default(), exit, &end))
    }

    pub(super) fn keep_check(&mut self, result: &CheckResult) -> anyhow::Result<()> {
        terminal::log(&format!("{}: {}: {}", result.name, result.verdict.word(), result.seen));
        self.append(&json!({
            "event": "check",
            "time": clock::now_utc(),
            "check": result.name,
            "verdict": result.verdict,
            "seen": result.seen,
        }))
    }

    /// Writes `result.json` and `report.md`.
    pub(super) fn finish(&mut self, result: &GpuResult) -> anyhow::Result<()> {
        self.append(&json!({
            "event": "gpu_check_end",
            "time": clock::now_utc(),
            "wall_s": result.wall_s,
            "interrupted": result.interrupted,
        }))?;
        let Some((folder, _)) = &self.kept else { return Ok(()) };
        let command = format!("cargo xtask {}", env::read_args().join(" "));
        let json = self.scrub.text(&output::render_json(result)?);
        let page = self.scrub.text(&render_page(result, &command)?);
        files::replace_text(&folder.join(output::RESULT), &format!("{json}\n"))?;
        files::replace_text(&folder.join(output::PAGE), &page)
    }

    fn left_s(&self) -> f64 {
        self.under_test.budget_s - self.under_test.started.elapsed().as_secs_f64()
    }

    fn runner(&self, before: &[&str], args: &[String]) -> anyhow::Result<Runner> {
        let program =
            self.under_test.binary.to_string_lossy().replace('{', "{{").replace('}', "}}");
        let words = before.iter().copied().chain([program.as_str()]);
        let words: Vec<String> =
            words.map(|word| toml::Value::String(word.to_owned()).to_string()).collect();
        let text = format!(
            "result = \"report\"\ncommand = [{}, \"--model\", \"{{model_path}}\", \
             \"--prompt-tokens\", \"{{prompt_tokens}}\", \"--max-tokens\", \"{{max_tokens}}\", \
             \"--warmup-tokens\", \"{{warmup_tokens}}\", \"--report\", \"{{report}}\"]\n",
            words.join(", ")
        );
        Ok(parse_runner("gpu-check", "gpu-check", &text)?.with_extra_args(args))
    }

    /// Runs a leg for at most the first of `limits`, where the second is what it should need, in
    /// seconds.
    fn launch(
        &mut self,
        check: &str,
        leg: &Leg,
        variant: Option<&str>,
        runner: &Runner,
        limits: (f64, f64),
    ) -> anyhow::Result<(LegEnd, Option<Box<CellOutcome>>)> {
        self.launches += 1;
        let name = file_name(self.launches, check, &leg.name)?;
        self.open_folder()?;
        let model = self.under_test.models.iter().find(|model| model.name == leg.model);
        let model = model.context("the model is known")?;
        let report = self.scratch.path().join(format!("{name}.json"));
        let mut changes = leg.setting.env();
        changes.extend(library_env(&self.under_test.binary));
        let (limit_s, needs_s) = limits;
        let spec = CellSpec {
            root: self.under_test.root,
            runner,
            vars: CellVars {
                model: leg.model.clone(),
                model_path: model.path.clone(),
                prompt_tokens: leg.prompt_tokens,
                max_tokens: leg.max_tokens,
                warmup_tokens: WARMUP_TOKENS.min(leg.max_tokens),
                threads: None,
                report: report.to_string_lossy().into_owned(),
                target_dir: env::read_target_dir(),
                server: Default::default(),
            },
            base_env: Vec::new(),
            env: changes,
            timeout: Duration::from_secs_f64(limit_s.min(self.left_s().max(LEAST_S))),
            memory_limit_bytes: None,
        };
        terminal::log(&format!("{check}: {} …", leg.name));
        let (folder, journal) = self.kept.as_mut().context("the folder is open")?;
        let cell = Cell { model, len: leg.prompt_tokens, variant };
        let mut entries =
            Entries { folder, journal, scrub: &self.scrub, check, leg, name: &name, needs_s };
        let end = self.session.run(cell, &spec, None, &mut entries)?;
        let leg_end = leg_end_of(&end, needs_s);
        if let Some(card) = leg_end.numbers().and_then(LegNumbers::card) {
            self.name_card(card.to_owned())?;
        }
        let outcome = match end {
            End::Ran(outcome) => Some(outcome),
            _ => None,
        };
        Ok((leg_end, outcome))
    }

    /// Makes the folder, named after the card as far as the driver tells.
    fn open_folder(&mut self) -> anyhow::Result<()> {
        if self.kept.is_some() {
            return Ok(());
        }
        let slug = card_slug(self.card.as_deref());
        let folder = output::create_folder(
            self.under_test.root,
            self.under_test.out,
            &clock::today(),
            &slug,
        )?;
        files::create_folder(&folder.join(output::REPORTS))?;
        let journal = JournalFile::create_new(&folder.join(output::JOURNAL))?;
        self.kept = Some((folder, journal.with_scrub(self.scrub.clone())));
        self.session.set_source(format!("{}/{}", self.shown_folder(), output::JOURNAL));
        let start = self.start_entry.clone();
        self.append(&start)
    }

    /// Takes the card's name from the program, and renames the folder where it has another.
    fn name_card(&mut self, card: String) -> anyhow::Result<()> {
        let slug = card_slug(Some(&card));
        let is_named = slug == card_slug(self.card.as_deref());
        self.card = Some(card);
        let (false, None, Some((folder, _))) = (is_named, self.under_test.out, &mut self.kept)
        else {
            return Ok(());
        };
        *folder = output::rename_folder(self.under_test.root, folder, &clock::today(), &slug)?;
        self.session.set_source(format!("{}/{}", self.shown_folder(), output::JOURNAL));
        Ok(())
    }

    fn note_skipped(&mut self, check: &str, leg: &Leg, why: &str) -> anyhow::Result<()> {
        self.append(&json!({
            "event": "leg_skipped",
            "time": clock::now_utc(),
            "check": check,
            "leg": leg.name,
            "why": why,
        }))
    }

    fn append(&mut self, entry: &serde_json::Value) -> anyhow::Result<()> {
        match &mut self.kept {
            Some((_, journal)) => journal.append(entry),
            None => Ok(()),
        }
    }
}

/// The card in the folder's name.
fn card_slug(card: Option<&str>) -> String {
    match card {
        Some(card) if is_standin(card) => "stand-in".to_owned(),
        Some(card) => render_slug(card),
        None => "unknown".to_owned(),
    }
}

/// One run's lines in the journal, and its report in a file of its own.
struct Entries<'a> {
    folder: &'a Path,
    journal: &'a mut JournalFile,
    scrub: &'a Scrub,
    check: &'a str,
    leg: &'a Leg,
    name: &'a str,
    needs_s: f64,
}

impl Ledger for Entries<'_> {
    fn note_launch(&mut self, note: LaunchNote) -> anyhow::Result<()> {
        self.journal.append(&json!({
            "event": "leg_launch",
            "time": note.time,
            "boot": note.boot,
            "check": self.check,
            "run": self.name,
            "command": note.command,
            "environment": note.environment,
        }))
    }

    fn note_end(&mut self, end: &End) -> anyhow::Result<()> {
        let outcome = match end {
            // It would not start for any leg, and says nothing about this one.
            End::NotStarted(reason) => anyhow::bail!("{reason}"),
            End::Ran(outcome) => Some(outcome),
            End::Refused { .. } | End::Faked(_) | End::Interrupted => None,
        };
        let numbers = outcome.and_then(|outcome| outcome.numbers.as_ref().ok());
        let mut shown = None;
        if let Some(report) = numbers.and_then(|found| found.report_json.as_ref()) {
            let path = format!("{}/{}.json", output::REPORTS, self.name);
            let text = self.scrub.text(&serde_json::to_string(report)?);
            files::replace_text(&self.folder.join(&path), &format!("{text}\n"))?;
            shown = Some(path);
        }
        let leg_end = leg_end_of(end, self.needs_s);
        let (status, why) = match &leg_end {
            LegEnd::Measured(_) => ("measured", None),
            LegEnd::Failed(why) => ("failed", Some(why)),
            LegEnd::Skipped(why) if outcome.is_none() => ("refused", Some(why)),
            LegEnd::Skipped(why) => ("ended_early", Some(why)),
        };
        self.journal.append(&json!({
            "event": "leg_end",
            "time": clock::now_utc(),
            "check": self.check,
            "leg": self.leg.name,
            "run": self.name,
            "status": status,
            "why": why,
            "classification": end.classification(),
            "evidence": outcome.map(|outcome| outcome.evidence()),
            "process": outcome.map(|outcome| outcome.process_note()),
            "report": shown,
        }))
    }
}

fn leg_args(device: &str, leg: &Leg) -> Vec<String> {
    let mut args = vec!["--device".to_owned(), device.to_owned()];
    if let Some(mib) = leg.leave_free_mib {
        args.extend(["--leave-free-mb".to_owned(), mib.to_string()]);
    }
    args
}
