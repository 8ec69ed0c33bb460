//! The loop over checks, with a scripted executor: no process is started.

use super::*;
use crate::cell::child::ChildSpec;
use crate::cell::executor::scripted::{Ending, ScriptedExecutor};
use crate::cell::guard::Guard;
use crate::gpu::check::fixture;
use crate::model::reference::ModelKind;
use crate::oom_record::{OomEntry, parse_record};

/// What came of checking the model `m`.
struct Made {
    results: Vec<CheckResult>,
    /// Setting and prompt length of each process that was started.
    launched: Vec<String>,
    recorded: Vec<OomEntry>,
    journal: Vec<serde_json::Value>,
}

impl Made {
    /// The verdict on a check, and what was seen.
    fn check(&self, name: &str) -> (CheckVerdict, &str) {
        let found = self.results.iter().find(|result| result.name == name);
        found.map(|result| (result.verdict, result.seen.as_str())).unwrap()
    }

    /// How many legs of a check have this status in the journal.
    fn count(&self, check: &str, status: &str) -> usize {
        let is_it = |line: &&serde_json::Value| line["check"] == check && line["status"] == status;
        self.journal.iter().filter(is_it).count()
    }
}

/// Makes the quick checks past a guard with this record.
fn make(record: &str, mut play: impl FnMut(&str, &ChildSpec) -> Ending) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let model = ResolvedModel {
        name: "m".to_owned(),
        path: "models/m".to_owned(),
        tracked_path: "models/m".to_owned(),
        kind: ModelKind::Gguf,
        weight_bytes: None,
        note: None,
    };
    let mut launched = Vec::new();
    let executor = ScriptedExecutor::new(|spec| {
        let leg = format!("{} {}", setting_of(spec).name(), argument(spec, "--prompt-tokens"));
        let ending = play(&leg, spec);
        launched.push(leg);
        Ok(ending)
    });
    let guard = Guard::new(parse_record(record), RecordRule::InForce, None, 1.0);
    let finder =
        Finder { commit: "abc1234".to_owned(), source: String::new(), command: Some("gpu-check") };
    let under_test = UnderTest {
        root,
        binary: root.join("decode-bench"),
        binary_sha256: "00",
        models: vec![model],
        device: "cuda:0",
        started: clock::Stopwatch::start(),
        budget_s: 1000.0,
        out: None,
    };
    let session = Session::new(executor, guard, finder);
    let mut launcher = LegLauncher::new(under_test, session).unwrap();
    let mut checks = Checks { launcher: &mut launcher, results: Vec::new(), measured: Vec::new() };
    // The memory checker may be installed here, and is not what this is about.
    let planned = plan_checks(&["m".to_owned()], Plan::QUICK).into_iter();
    checks.make_all(planned.filter(|check| check.kind != CheckKind::Sanitizer).collect()).unwrap();
    let results = checks.results;
    let journal = root.join(launcher.shown_folder()).join(output::JOURNAL);
    let journal = files::read_text_if_present(&journal).unwrap().unwrap_or_default();
    let recorded = launcher.executor().recorded.clone();
    drop(launcher);
    let journal = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Made { results, launched, recorded, journal }
}

fn argument(spec: &ChildSpec, name: &str) -> String {
    let after = spec.args.iter().skip_while(|arg| *arg != name).nth(1);
    after.unwrap().to_string_lossy().into_owned()
}

fn setting_of(spec: &ChildSpec) -> Setting {
    let env = |name: &str| spec.env.iter().rev().find(|(known, _)| known == name)?.1.as_deref();
    match (env("ARC_CANDLE_ALLOC_CACHE"), env("ARC_ALLOC_CACHE_MAX_MB")) {
        (Some("0"), None) => Setting::Killed,
        (None, Some("0")) => Setting::Unbounded,
        (None, Some(mib)) => Setting::CapMib(mib.parse().unwrap()),
        (None, None) => Setting::On,
        other => panic!("{other:?}"),
    }
}

/// What a sound program reports.
fn sound(spec: &ChildSpec) -> Ending {
    let mut report = fixture::numbers(setting_of(spec)).report;
    report.schema = formats::cell_report::SCHEMA;
    report.prompt.target_tokens = argument(spec, "--prompt-tokens").parse().ok();
    Ending { report: Some(serde_json::to_string(&report).unwrap()), ..Ending::exit(0, "") }
}

#[test]
fn every_check_of_a_sound_program_is_made() {
    let made = make("", |_, spec| sound(spec));
    for name in ["start/m", "decode/m", "memory/m", "cap/m"] {
        assert_eq!(made.check(name).0, CheckVerdict::Pass, "{}", made.check(name).1);
    }
    assert_eq!(
        made.launched,
        [
            "on 16",
            "on 128",
            "killed 128",
            "on 64",
            "unbounded 64",
            "killed 64",
            "cap-1-mib 128",
            "on 128"
        ]
    );
    assert!(made.recorded.is_empty());
}

#[test]
fn a_check_whose_legs_the_record_forbids_is_not_possible_and_the_others_are_made() {
    let line = "m,100,2026-01-01,abc1234,,old.csv";
    let made = make(&format!("{line}\n"), |_, spec| sound(spec));
    assert_eq!(made.launched, ["on 16", "on 64", "unbounded 64", "killed 64"]);
    let refused = format!("not launched: the OOM record holds `{line}`");
    assert_eq!(made.check("decode/m"), (CheckVerdict::NotPossible, &*format!("on-1: {refused}")));
    assert_eq!(made.check("cap/m"), (CheckVerdict::NotPossible, &*format!("cap-1-mib: {refused}")));
    assert_eq!(made.check("memory/m").0, CheckVerdict::Pass);
    assert_eq!((made.count("decode/m", "refused"), made.count("memory/m", "measured")), (2, 3));
}

#[test]
fn a_refused_leg_leaves_no_comparison_with_the_other() {
    let made = make("m+killed,128,2026-01-01,abc1234,,old.csv\n", |_, spec| sound(spec));
    let (verdict, seen) = made.check("decode/m");
    assert_eq!(verdict, CheckVerdict::NotPossible, "{seen}");
    assert!(seen.contains("killed-1: not launched: the OOM record holds"), "{seen}");
    assert_eq!(made.check("memory/m").0, CheckVerdict::Pass, "at 64 tokens nothing is known");
}

#[test]
fn an_oom_of_its_own_is_recorded_once_and_stops_every_leg_of_that_length() {
    let made = make("", |leg, spec| if leg == "on 128" { Ending::oom() } else { sound(spec) });
    assert_eq!(made.check("decode/m").0, CheckVerdict::Fail);
    assert_eq!(made.launched, ["on 16", "on 128", "on 64", "unbounded 64", "killed 64"]);
    assert_eq!(made.check("cap/m").0, CheckVerdict::NotPossible);
    assert_eq!(made.recorded.len(), 1);
    let entry = &made.recorded[0];
    assert_eq!((entry.model.as_str(), entry.prompt_target_len), ("m", 128));
    assert_eq!(entry.found_by.as_deref(), Some("gpu-check"));
    assert!(entry.source_csv.ends_with("-gpu-check-card/samples.jsonl"), "{}", entry.source_csv);
}

#[test]
fn a_program_that_does_not_start_is_not_tried_again() {
    let made = make("", |_, _| Ending::exit(1, "no such device\n"));
    assert_eq!(made.launched, ["on 16"]);
    assert_eq!(made.check("start/m").0, CheckVerdict::Fail);
    for name in ["decode/m", "memory/m", "cap/m", "oom-rescue/m"] {
        assert_eq!(made.check(name), (CheckVerdict::NotPossible, "`start/m` did not pass"));
    }
}
