//! The loop over a temporary folder: real files, scripted processes.

use std::fs;

use super::*;
use crate::base::scrub::Scrub;
use crate::cell::child::ChildSpec;
use crate::cell::classify::ExitKind;
use crate::cell::classify::StopReason;
use crate::cell::executor::scripted::{Ending, ScriptedExecutor};
use crate::cell::grid::plan_grid;
use crate::cell::grid::tests::model;
use crate::cell::guard::{Guard, RecordRule};
use crate::cell::health::{DriverLook, DriverState};
use crate::cell::journal::request::Request;
use crate::cell::journal::{CellLaunch, Entry, Journal, Settings, SweepStart};
use crate::cell::row::{parse_csv, render_header};
use crate::cell::runner::parse_runner;
use crate::cell::session::Finder;
use crate::oom_record::parse_record;
use crate::sweep::definition::parse_sweep_config;
use crate::sweep::run::output::read_earlier;
use crate::sweep::run::prepare::Target;
use crate::sys::hardware::{Backend, HostFacts};

const LENGTHS: [u64; 3] = [128, 512, 2048];

/// A workspace with a sweep of one model at [`LENGTHS`].
struct Place {
    folder: tempfile::TempDir,
    prepared: Prepared,
}

/// What a sweep left.
struct Left {
    outcome: Outcome,
    /// Lengths that were launched.
    launched: Vec<String>,
    /// Model and length of the lines that the record got.
    recorded: Vec<(String, u64)>,
    /// Looks at the machine's health.
    looked: usize,
}

impl Place {
    fn new() -> Place {
        let text = "models = [\"llama\"]\nlengths = [128, 512, 2048]\ncooldown_s = 1\n";
        let config = parse_sweep_config("s.toml", text, &Request::default()).unwrap();
        let runner = "result = \"profile-text\"\n\
                      command = [\"engine\", \"{model}\", \"{prompt_tokens}\"]\n";
        let prepared = Prepared {
            request: Request::default(),
            config_name: "s".to_owned(),
            config_sha256: String::new(),
            settings: Settings::default(),
            grid: plan_grid(vec![model("llama")], Vec::new())
                .unwrap()
                .with_pairs(&config.lengths, config.max_tokens),
            config,
            runner: parse_runner("engine", "engine.toml", runner).unwrap(),
            variant_runners: Default::default(),
            target_dir: "target".to_owned(),
            host: HostFacts::default(),
            target: Target {
                backend: Backend::Cpu,
                slug: "chip".to_owned(),
                hardware: "Chip_1GB".to_owned(),
            },
            engine_version: None,
        };
        Place { folder: tempfile::tempdir().unwrap(), prepared }
    }

    /// Opens the output: a new one, or the one that is there.
    fn output(&self) -> Output {
        let csv = self.folder.path().join("out.csv");
        let (scrub, start) = (Scrub::new(&[]), SweepStart::default());
        if csv.exists() {
            let earlier = read_earlier(&csv).unwrap();
            return Output::go_on(self.folder.path(), earlier, scrub, &start).unwrap();
        }
        Output::start(self.folder.path(), &csv, scrub, &start).unwrap()
    }

    /// Runs the sweep, or goes on with it, on a machine without a GPU.
    fn sweep(&self, record: &str, executor: ScriptedExecutor<'_>) -> Left {
        self.sweep_on(record, executor, Look::default())
    }

    fn sweep_on(&self, record: &str, executor: ScriptedExecutor<'_>, healthy: Look) -> Left {
        let guard = Guard::new(parse_record(record), RecordRule::InForce, None, 1.0);
        let source = "out.csv".to_owned();
        let finder = Finder { commit: "abc1234".to_owned(), source, command: None };
        let session = Session::new(executor, guard, finder);
        let args = Args::default();
        let (root, output) = (self.folder.path(), self.output());
        let mut sweep =
            Sweep::begin(root, &args, &self.prepared, output, session, healthy).unwrap();
        let step = sweep.do_cells().unwrap();
        let executor = sweep.session.executor();
        let launched = executor.launched.iter().map(|words| words[2].clone()).collect();
        let recorded = executor.recorded.iter();
        let recorded =
            recorded.map(|entry| (entry.model.clone(), entry.prompt_target_len)).collect();
        let looked = executor.looked;
        let outcome = sweep.finish(step, &args, "out.csv").unwrap();
        Left { outcome, launched, recorded, looked }
    }

    /// Length and class of each row, `-` where it was measured.
    fn rows(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("out.csv")).unwrap();
        assert_eq!(text, format!("{}{}", render_header(), self.journal().rows()));
        let table = parse_csv(&text).unwrap();
        let render = |row| {
            let len = table.value(row, "prompt_target_len").unwrap();
            format!("{len} {}", row.classification_token().unwrap_or("-"))
        };
        table.rows().iter().map(render).collect()
    }

    fn journal(&self) -> Journal {
        read_earlier(&self.folder.path().join("out.csv")).unwrap().journal
    }

    /// Whether the last line of the journal ends the sweep, and calls it interrupted.
    fn was_closed(&self) -> Option<bool> {
        match self.journal().entries.last() {
            Some(Entry::SweepEnd(end)) => Some(end.interrupted),
            _ => None,
        }
    }

    /// Leaves what a kill leaves during the cell of 128 tokens.
    fn leave_launch_without_end(&self, boot: &str) {
        let launch = CellLaunch {
            model: "llama".to_owned(),
            prompt_target_len: 128,
            boot: Some(boot.to_owned()),
            ..CellLaunch::default()
        };
        self.output().journal.append(&Entry::CellLaunch(launch)).unwrap();
    }
}

fn measured(_: &ChildSpec) -> anyhow::Result<Ending> {
    Ok(Ending::measured(50.0))
}

fn is_at(spec: &ChildSpec, len: u64) -> bool {
    spec.args.iter().any(|arg| *arg == *len.to_string())
}

#[test]
fn after_an_oom_no_longer_cell_is_launched_and_one_line_is_recorded() {
    let place = Place::new();
    let left = place.sweep(
        "",
        ScriptedExecutor::new(|spec| {
            Ok(if is_at(spec, 512) { Ending::oom() } else { Ending::measured(50.0) })
        }),
    );
    assert_eq!(left.launched, ["128", "512"]);
    assert_eq!(left.recorded, [("llama".to_owned(), 512)]);
    assert_eq!(place.rows(), ["128 -", "512 SKIP:oom", "2048 SKIP:oom_backstop"]);
    assert_eq!(left.outcome, Outcome::Done);
    assert_eq!(place.was_closed(), Some(false));
}

#[test]
fn a_launch_without_an_end_is_launched_again_under_the_same_boot() {
    let place = Place::new();
    place.leave_launch_without_end("boot");
    let left = place.sweep("", ScriptedExecutor::new(measured));
    assert_eq!(left.launched, LENGTHS.map(|len| len.to_string()));
    assert_eq!(place.rows(), ["128 -", "512 -", "2048 -"]);
    assert_eq!(left.outcome, Outcome::Done);
}

#[test]
fn a_launch_without_an_end_under_another_boot_is_a_lost_host() {
    let place = Place::new();
    place.leave_launch_without_end("an earlier boot");
    let left = place.sweep("", ScriptedExecutor::new(measured));
    assert_eq!(left.launched, ["512", "2048"]);
    assert_eq!(place.rows(), ["128 FAIL:host_lost", "512 -", "2048 -"]);
    assert_eq!(left.outcome, Outcome::Violation);
    // Once it has its row, going on again adds nothing.
    let again = place.sweep("", ScriptedExecutor::new(measured));
    assert!(again.launched.is_empty());
    assert_eq!(place.rows().len(), 3);
    assert_eq!(again.outcome, Outcome::Violation);
}

#[test]
fn an_interrupt_closes_the_journal_and_the_cell_is_measured_on_resumption() {
    let place = Place::new();
    let interrupted = ScriptedExecutor::new(|spec| {
        if !is_at(spec, 512) {
            return Ok(Ending::measured(50.0));
        }
        let exit = ExitKind::Signal(15);
        Ok(Ending { exit, stopped: Some(StopReason::Interrupt), ..Ending::oom() })
    });
    let left = place.sweep("", interrupted);
    assert_eq!(left.outcome, Outcome::Interrupted);
    assert_eq!(left.launched, ["128", "512"]);
    assert!(left.recorded.is_empty());
    assert_eq!(place.rows(), ["128 -"]);
    assert_eq!(place.was_closed(), Some(true));

    let left = place.sweep("", ScriptedExecutor::new(measured));
    assert_eq!(left.launched, ["512", "2048"]);
    assert_eq!(place.rows(), ["128 -", "512 -", "2048 -"]);
    assert_eq!(left.outcome, Outcome::Done);
    assert_eq!(place.was_closed(), Some(false));
}

#[test]
fn a_recorded_cell_is_never_launched() {
    let place = Place::new();
    let record = "llama,512,2026-01-01,abc,,y.csv\n";
    let left = place.sweep(record, ScriptedExecutor::new(measured));
    assert_eq!(left.launched, ["128"]);
    assert!(left.recorded.is_empty());
    assert_eq!(place.rows(), ["128 -", "512 SKIP:oom_record", "2048 SKIP:oom_record"]);
    let reason = place.journal().cell_ends().last().unwrap().reason.clone();
    assert_eq!(reason.unwrap(), "the OOM record holds `llama,512,2026-01-01,abc,,y.csv`");
}

#[test]
fn an_oom_whose_line_a_kill_kept_from_the_record_is_recorded_on_resumption() {
    let place = Place::new();
    let oom_at_the_end = ScriptedExecutor::new(|spec| {
        Ok(if is_at(spec, 2048) { Ending::oom() } else { Ending::measured(50.0) })
    });
    assert_eq!(place.sweep("", oom_at_the_end).recorded, [("llama".to_owned(), 2048)]);
    let launches_nothing = || ScriptedExecutor::new(|_| panic!("launched a finished cell"));
    // As if the kill had come before the record had its line, and as if it had come after.
    let left = place.sweep("", launches_nothing());
    assert_eq!(left.recorded, [("llama".to_owned(), 2048)]);
    let left = place.sweep("llama,2048,2026-01-31,abc1234,,out.csv\n", launches_nothing());
    assert!(left.recorded.is_empty());
    assert_eq!(place.rows(), ["128 -", "512 -", "2048 SKIP:oom"]);
}

/// A crash by a signal is a hard cell, and keeps no longer one from being launched.
fn crashes_at_512(spec: &ChildSpec) -> anyhow::Result<Ending> {
    let crashed = Ending { exit: ExitKind::Signal(11), ..Ending::exit(1, "") };
    Ok(if is_at(spec, 512) { crashed } else { Ending::measured(50.0) })
}

#[test]
fn health_is_looked_at_after_a_hard_cell_and_only_where_there_is_a_gpu() {
    let place = Place::new();
    let left = place.sweep("", ScriptedExecutor::new(crashes_at_512));
    assert_eq!((left.launched.len(), left.looked), (3, 0), "without a GPU it costs nothing");

    let healthy = Look { driver: DriverLook::Answers(DriverState::default()), ..Look::default() };
    let place = Place::new();
    let mut executor = ScriptedExecutor::new(crashes_at_512);
    executor.looks = vec![healthy.clone()];
    let left = place.sweep_on("", executor, healthy.clone());
    assert_eq!((left.launched.len(), left.looked), (3, 1), "two of three cells were easy");

    let place = Place::new();
    let mut executor = ScriptedExecutor::new(|spec| {
        Ok(if is_at(spec, 512) {
            Ending::exit(1, "illegal access\n")
        } else {
            Ending::measured(50.0)
        })
    });
    executor.looks = vec![healthy.clone()];
    let left = place.sweep_on("", executor, healthy.clone());
    assert_eq!((left.launched.len(), left.looked), (3, 1), "a failure is one by exit code, too");

    let place = Place::new();
    let mut executor = ScriptedExecutor::new(crashes_at_512);
    executor.looks = vec![Look { driver: DriverLook::Silent, ..Look::default() }];
    let left = place.sweep_on("", executor, healthy.clone());
    assert_eq!(left.outcome, Outcome::Stopped);
    assert_eq!(left.launched, ["128", "512"]);
    assert_eq!(place.rows(), ["128 -", "512 FAIL:bench"]);
    assert_eq!(place.was_closed(), Some(true));
    let mut executor = ScriptedExecutor::new(crashes_at_512);
    executor.looks = vec![healthy.clone()];
    assert_eq!(place.sweep_on("", executor, healthy).launched, ["2048"]);
}

/// A cell of three runs: 62, 40 and 50 tok/s.
fn varied() -> ScriptedExecutor<'static> {
    let mut launches = 0;
    ScriptedExecutor::new(move |_| {
        launches += 1;
        Ok(Ending::measured([62.0, 40.0, 50.0][launches % 3]))
    })
}

/// Wherever a kill comes, even within a line: rows are the same in the end, a cell whose runs are all in the
/// journal is not launched again, and of one whose runs are not all of them are.
#[test]
fn a_kill_between_runs_and_row_costs_no_launch() {
    let place = || {
        let mut place = Place::new();
        place.prepared.config.repeats = 3;
        place
    };
    let whole = place();
    assert_eq!(whole.sweep("", varied()).launched.len(), 9);
    let read =
        |place: &Place, name: &str| fs::read_to_string(place.folder.path().join(name)).unwrap();
    let (csv, journal) = (read(&whole, "out.csv"), read(&whole, "out.csv.journal.jsonl"));
    assert_eq!(csv.matches(",50.00,").count(), 3, "{csv}");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 1 + 3 * 7 + 1);
    for cut in 1..lines.len() {
        // A kill within a line, here and there.
        for torn in [0, lines[cut].len() / 2].into_iter().take(if cut % 4 == 0 { 2 } else { 1 }) {
            let (kept, place) = (lines[..cut].concat(), place());
            let rows = kept.matches("\"row\":\"llama").count();
            let written: String = csv.split_inclusive('\n').take(1 + rows).collect();
            let path = place.folder.path().join("out.csv");
            fs::write(&path, written).unwrap();
            let torn = format!("{kept}{}", &lines[cut][..torn]);
            fs::write(crate::cell::journal::journal_path(&path), torn).unwrap();

            let left = place.sweep("", varied());
            assert_eq!(read(&place, "out.csv"), csv, "cut after line {cut}");
            let is_whole = |len: &u64| {
                kept.lines().any(|line| {
                    line.contains(&format!("\"prompt_target_len\":{len},"))
                        && line.contains("run 3 of 3")
                })
            };
            let expected: Vec<String> = LENGTHS
                .iter()
                .filter(|len| !is_whole(len))
                .flat_map(|len| [len.to_string(), len.to_string(), len.to_string()])
                .collect();
            assert_eq!(left.launched, expected, "cut after line {cut}");
            assert_eq!(left.outcome, Outcome::Done);
            let journal = place.journal();
            let with_row: Vec<_> = journal.cell_ends().filter(|end| end.row.is_some()).collect();
            assert_eq!(with_row.len(), 3);
            for end in with_row {
                let speeds = &end.repeats.as_ref().unwrap().decode_tok_s;
                assert_eq!(speeds, &[Some(40.0), Some(50.0), Some(62.0)], "cut after line {cut}");
                assert!(end.launched && end.process.is_some() && end.evidence.is_some());
            }
        }
    }
}
