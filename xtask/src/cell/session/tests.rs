use std::path::Path;

use super::*;
use crate::cell::classify::{ExitKind, StopReason};
use crate::cell::executor::scripted::{Ending, ScriptedExecutor};
use crate::cell::grid::{self, FakeCell};
use crate::cell::guard::RecordRule;
use crate::cell::health::{DriverLook, DriverState, Look};
use crate::cell::quiet::HostSample;
use crate::cell::runner::{CellVars, Runner, parse_runner};
use crate::cell::serving::{FailureKind, RequestSample, ServeFailure, Served};
use crate::model::reference::ResolvedModel;
use crate::oom_record::{OomRecord, parse_record};

/// Keeps what it is told, in order.
#[derive(Default)]
struct Notes {
    lines: Vec<String>,
    fails_on_launch: bool,
}

impl Ledger for Notes {
    fn note_launch(&mut self, note: LaunchNote) -> anyhow::Result<()> {
        anyhow::ensure!(!self.fails_on_launch, "the disk is full");
        self.lines.push(format!("launch {} under {}", note.command.join(" "), note.boot));
        Ok(())
    }

    fn note_end(&mut self, end: &End) -> anyhow::Result<()> {
        let class = end.classification().map_or("measured", Classification::token);
        self.lines.push(match end {
            End::Refused { reason, .. } => format!("{class}: {reason}"),
            End::NotStarted(reason) => format!("{class}: {reason}"),
            End::Faked(_) => format!("{class}: faked"),
            End::Interrupted => "interrupted before it began".to_owned(),
            End::Ran(outcome) if outcome.was_interrupted() => "interrupted".to_owned(),
            End::Ran(_) => class.to_owned(),
        });
        Ok(())
    }
}

fn model() -> ResolvedModel {
    grid::tests::model("llama")
}

fn runner() -> Runner {
    let text =
        "result = \"profile-text\"\ncommand = [\"engine\", \"{model}\", \"{prompt_tokens}\"]\n";
    parse_runner("engine", "engine.toml", text).unwrap()
}

fn finder() -> Finder {
    Finder { commit: "abc1234".to_owned(), source: "x.csv".to_owned(), command: Some("ab") }
}

fn guard(record: &str) -> Guard {
    let record = if record.is_empty() { OomRecord::default() } else { parse_record(record) };
    Guard::new(record, RecordRule::InForce, Some(1 << 30), 1.0)
}

fn spec(runner: &Runner, len: u64) -> CellSpec<'_> {
    CellSpec {
        root: Path::new("/w"),
        runner,
        vars: CellVars {
            model: "llama".to_owned(),
            model_path: "models/llama".to_owned(),
            prompt_tokens: len,
            max_tokens: 32,
            warmup_tokens: 0,
            threads: None,
            report: "report.json".to_owned(),
            target_dir: "target".to_owned(),
            server: Default::default(),
        },
        base_env: Vec::new(),
        env: Vec::new(),
        timeout: Duration::from_secs(60),
        memory_limit_bytes: None,
    }
}

/// Runs cells of one model, with a variant each, and gives what was noted and recorded.
fn run(
    guard: Guard,
    cells: &[(u64, Option<&str>)],
    script: impl FnMut(&ChildSpec) -> anyhow::Result<Ending>,
) -> (Vec<String>, Vec<OomEntry>) {
    let (model, runner, mut notes) = (model(), runner(), Notes::default());
    let mut session = Session::new(ScriptedExecutor::new(script), guard, finder());
    for &(len, variant) in cells {
        let cell = Cell { model: &model, len, variant };
        session.run(cell, &spec(&runner, len), None, &mut notes).unwrap();
    }
    (notes.lines, session.executor().recorded.clone())
}

/// A machine with a GPU that answers, or does not.
fn gpu_looks(answers: &[bool]) -> Vec<Look> {
    let look = |&answers: &bool| {
        let answering = DriverLook::Answers(DriverState::default());
        Look { driver: if answers { answering } else { DriverLook::Silent }, ..Look::default() }
    };
    answers.iter().map(look).collect()
}

#[test]
fn nothing_is_launched_once_a_cell_has_left_the_driver_ill() {
    let (model, runner, mut notes) = (model(), runner(), Notes::default());
    let fails_at_512 = |spec: &ChildSpec| {
        let is_512 = spec.args.iter().any(|arg| arg == "512");
        Ok(if is_512 { Ending::exit(1, "illegal memory access\n") } else { Ending::measured(50.0) })
    };
    let executor = |answers: &[bool]| {
        let mut executor = ScriptedExecutor::new(fails_at_512);
        executor.looks = gpu_looks(answers);
        executor
    };
    let mut session =
        Session::new(executor(&[true, true, false]), guard(""), finder()).watching_health();
    let mut run = |session: &mut Session<ScriptedExecutor<'_>>, len| {
        let cell = Cell { model: &model, len, variant: None };
        session.run(cell, &spec(&runner, len), None, &mut notes)
    };
    // Looks: before the first; none after what ran; after the failure, which was harmless.
    for (len, looks) in [(128, 1), (256, 1), (512, 1), (128, 2), (128, 2), (512, 2)] {
        run(&mut session, len).unwrap();
        assert_eq!(session.executor().looked, looks, "{len}");
    }
    let launched = session.executor().launched.len();
    let error = run(&mut session, 128).unwrap_err();
    assert!(format!("{error:#}").contains("the driver is not healthy: it does not answer"));
    assert!(run(&mut session, 128).is_err(), "it stays so");
    assert_eq!(session.executor().launched.len(), launched);

    let mut plain = Session::new(executor(&[false]), guard(""), finder());
    run(&mut plain, 512).unwrap();
    run(&mut plain, 128).unwrap();
    assert_eq!(plain.executor().looked, 0, "unless the command asks for it");

    let mut without = Session::new(executor(&[]), guard(""), finder()).watching_health();
    for len in [512, 512, 128] {
        run(&mut without, len).unwrap();
    }
    assert_eq!(without.executor().looked, 1, "without a GPU once, whatever happens");
    assert_eq!(notes.lines.len(), 2 * (6 + 2 + 3));
}

#[test]
fn who_computed_before_a_session_is_not_what_its_cells_have_left() {
    let processes = std::collections::BTreeMap::from([(7, "python3".to_owned())]);
    let state = DriverState { processes, ..DriverState::default() };
    let before = Look { driver: DriverLook::Answers(state), ..Look::default() };
    let judged = |now: &Look| {
        crate::cell::health::judge(
            Some(&before.clone().with_all_standing()),
            now,
            crate::cell::health::Watched::Gpus,
        )
    };
    assert!(judged(&before).is_empty());
    let processes = std::collections::BTreeMap::from([(8, "bench".to_owned())]);
    let state = DriverState { processes, ..DriverState::default() };
    let left = Look { driver: DriverLook::Answers(state), ..Look::default() };
    assert_eq!(judged(&left), ["process 8 (bench) computes on the GPU"]);
}

#[test]
fn a_launch_is_noted_before_it_happens_and_its_end_after() {
    let (lines, recorded) = run(guard(""), &[(512, None)], |_| Ok(Ending::measured(50.0)));
    assert_eq!(lines, ["launch engine llama 512 under boot", "measured"]);
    assert!(recorded.is_empty());
}

#[test]
fn a_true_oom_is_recorded_once_and_stops_every_longer_cell() {
    let cells = [(512, None), (512, None), (2048, Some("kv8")), (128, None)];
    let (lines, recorded) = run(guard(""), &cells, |spec| {
        let is_short = spec.args.iter().any(|arg| arg == "128");
        Ok(if is_short { Ending::measured(50.0) } else { Ending::oom() })
    });
    let reason = "SKIP:oom_backstop: `llama` ran out of memory at 512 tokens in this run";
    assert_eq!(
        lines,
        [
            "launch engine llama 512 under boot",
            "SKIP:oom",
            reason,
            reason,
            "launch engine llama 128 under boot",
            "measured"
        ]
    );
    let entry = OomEntry {
        model: "llama".to_owned(),
        prompt_target_len: 512,
        date: "2026-01-31".to_owned(),
        commit: "abc1234".to_owned(),
        peak_bytes: Some(1 << 20),
        source_csv: "x.csv".to_owned(),
        found_by: Some("ab".to_owned()),
    };
    assert_eq!(recorded, [entry]);
}

#[test]
fn an_oom_of_a_variant_is_that_variants_alone() {
    let cells = [(512, Some("kv8")), (512, None), (512, Some("kv8"))];
    let mut launches = 0;
    let (lines, recorded) = run(guard(""), &cells, |_| {
        launches += 1;
        Ok(if launches == 1 { Ending::oom() } else { Ending::measured(50.0) })
    });
    assert_eq!(lines[3], "measured");
    assert!(lines[4].starts_with("SKIP:oom_backstop: `llama+kv8`"), "{lines:?}");
    assert_eq!(recorded.len(), 1);
    assert_eq!(recorded[0].model, "llama+kv8");
}

#[test]
fn what_the_record_holds_is_not_launched_in_any_variant() {
    let record = "llama,512,2026-01-01,abc,,y.csv\n";
    for variant in [None, Some("kv8")] {
        let (lines, _) =
            run(guard(record), &[(512, variant)], |_| panic!("launched past the record"));
        assert_eq!(
            lines,
            ["SKIP:oom_record: the OOM record holds `llama,512,2026-01-01,abc,,y.csv`"]
        );
    }
    let (lines, _) = run(guard(record), &[(511, None)], |_| Ok(Ending::measured(50.0)));
    assert_eq!(lines[1], "measured");
}

#[test]
fn a_record_that_is_ignored_keeps_nothing_back_and_is_still_appended_to() {
    let record = parse_record("llama,512,2026-01-01,abc,,y.csv\n");
    let ignoring = Guard::new(record, RecordRule::Ignored, None, 1.0);
    let (lines, recorded) = run(ignoring, &[(512, None)], |_| Ok(Ending::oom()));
    assert_eq!(lines[1], "SKIP:oom");
    assert_eq!(recorded.len(), 1);
}

#[test]
fn a_faked_oom_is_recorded_and_never_launched() {
    let class = Classification::Oom;
    let fake = FakeCell { model: "llama".to_owned(), len: 512, class };
    let guard = guard("").with_fakes(vec![fake]);
    let (lines, recorded) =
        run(guard, &[(512, None), (1024, None)], |_| panic!("launched a faked cell"));
    assert_eq!(lines[0], "SKIP:oom: faked");
    assert!(lines[1].starts_with("SKIP:oom_backstop"), "{lines:?}");
    assert_eq!(recorded.len(), 1);
}

#[test]
fn a_program_that_cannot_be_started_is_a_failure_and_no_oom() {
    let (lines, recorded) =
        run(guard(""), &[(512, None)], |_| Err(anyhow::anyhow!("no such program")));
    assert_eq!(lines[1], "FAIL:bench: no such program");
    assert!(recorded.is_empty());
}

#[test]
fn an_interrupt_says_nothing_of_the_cell() {
    let (lines, recorded) = run(guard(""), &[(512, None)], |_| {
        Ok(Ending {
            exit: ExitKind::Signal(9),
            stopped: Some(StopReason::Interrupt),
            ..Ending::oom()
        })
    });
    assert_eq!(lines[1], "interrupted");
    assert!(recorded.is_empty());
}

#[test]
fn a_server_gets_a_port_and_is_judged_by_what_its_client_saw() {
    let text = "result = \"openai-stream\"\ncommand = [\"serve\", \"{model}\", \"{port}\"]\n\
                [server]\nready = \"/\"\n";
    let (model, runner) = (model(), parse_runner("serve", "serve.toml", text).unwrap());
    let answer = RequestSample {
        first_ms: 100.0,
        gap_ms: vec![10.0; 31],
        prompt_tokens: Some(512),
        generated_tokens: Some(32),
        ..RequestSample::default()
    };
    let seen = |kind, said: &[&str]| {
        let said = said.iter().map(|line| (*line).to_owned()).collect();
        Err(ServeFailure { said, ..ServeFailure::new(kind, "why") })
    };
    let cases = [
        (Ok(Served { requests: vec![answer], ..Served::default() }), "measured"),
        (seen(FailureKind::Request, &[]), "FAIL:bench"),
        (seen(FailureKind::Empty, &[]), "FAIL:no_output"),
    ];
    for (served, expected) in cases {
        let ending = Ending {
            served: Some(served),
            stopped: Some(StopReason::Finished),
            ..Ending { exit: ExitKind::Signal(libc::SIGTERM), ..Ending::exit(0, "") }
        };
        let executor = ScriptedExecutor::new(|spec| {
            let client = spec.client.as_ref().unwrap();
            assert_eq!((client.port, client.concurrency, client.prompt_tokens), (4242, 1, 512));
            Ok(ending.clone())
        });
        let mut session = Session::new(executor, guard(""), finder());
        let cell = Cell { model: &model, len: 512, variant: None };
        let mut notes = Notes::default();
        let end = session.run(cell, &spec(&runner, 512), None, &mut notes).unwrap();
        assert_eq!(notes.lines, ["launch serve llama 4242 under boot", expected]);
        let End::Ran(outcome) = end else { panic!("not run") };
        match outcome.numbers {
            Ok(numbers) => assert_eq!(numbers.measured.decode_tok_s, Some(100.0)),
            Err(_) => assert_eq!(outcome.describe(), "why"),
        }
    }
}

#[test]
fn what_cannot_be_noted_is_not_launched() {
    let (model, runner) = (model(), runner());
    let executor = ScriptedExecutor::new(|_| panic!("launched without a note"));
    let mut session = Session::new(executor, guard(""), finder());
    let cell = Cell { model: &model, len: 512, variant: None };
    let mut notes = Notes { fails_on_launch: true, ..Notes::default() };
    let error = session.run(cell, &spec(&runner, 512), None, &mut notes).unwrap_err();
    assert_eq!(error.to_string(), "the disk is full");
}

#[test]
fn a_watched_cell_says_what_disturbed_it() {
    let (model, runner) = (model(), runner());
    let mut executor = ScriptedExecutor::new(|_| Ok(Ending::measured(50.0)));
    let sample = |swapped| HostSample { swapped_pages: Some(swapped), ..HostSample::default() };
    executor.samples = vec![sample(0), sample(0), sample(7)];
    let mut session = Session::new(executor, guard(""), finder());
    let cell = Cell { model: &model, len: 512, variant: None };
    let limits = QuietLimits { max_other_load_pct: 10.0 };
    let watch = Watch { pause: Duration::from_millis(250), shortest: Duration::ZERO, limits };
    let end = session.run(cell, &spec(&runner, 512), Some(watch), &mut Notes::default()).unwrap();
    let End::Ran(outcome) = end else { panic!("not run") };
    assert_eq!(outcome.quiet.unwrap().disturbances, ["swapped: 7 pages"]);
    assert_eq!(session.executor().pauses, [Duration::from_millis(250)]);
}

#[test]
fn a_single_cell_that_is_recorded_is_refused_with_what_overrides_it() {
    let model = model();
    let cell = Cell { model: &model, len: 512, variant: None };
    let guard = guard("llama,512,2026-01-01,abc,,y.csv\n");
    let error = guard.require(cell, "ab").unwrap_err();
    assert_eq!(
        crate::base::diagnostic::render_error(&error),
        "error: `llama` at 512 prompt tokens is not launched: the OOM record holds \
         `llama,512,2026-01-01,abc,,y.csv`\nhint: `cargo xtask ab --ignore-oom-record` launches it \
         anyway; `cargo xtask oom-record prune --model llama` removes its lines from the record"
    );
}

#[test]
fn a_launch_without_an_end_is_judged_by_the_boot() {
    assert_eq!(judge_unended(Some("a"), "a"), Unended::HarnessKilled);
    assert_eq!(judge_unended(Some("a"), "b"), Unended::HostLost);
    for (then, now) in [(None, "a"), (Some(""), "a"), (Some("a"), ""), (Some(""), "")] {
        assert_eq!(judge_unended(then, now), Unended::HostLost, "{then:?} {now}");
    }
}
