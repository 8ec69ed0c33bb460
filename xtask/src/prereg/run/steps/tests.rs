//! The loop over a ladder's steps, with a scripted executor: no process is started.

use std::path::Path;

use super::*;
use crate::cell::child::ChildSpec;
use crate::cell::classify::{Classification, ExitKind, StopReason};
use crate::cell::executor::scripted::{Ending, ScriptedExecutor};
use crate::cell::guard::{Guard, RecordRule};
use crate::cell::quiet::HostSample;
use crate::cell::runner::{Runner, parse_runner};
use crate::cell::session::{Finder, Session};
use crate::model::reference::{ModelKind, ResolvedModel};
use crate::oom_record::{OomEntry, OomRecord, parse_record};
use crate::prereg::chain::{DataBefore, Frozen, NewVersion, Pins};
use crate::prereg::fixture;
use crate::prereg::run::launch::Subject;

/// A ladder in a folder of its own: two rungs and the base again, one launch each, in this order.
struct Lab {
    folder: tempfile::TempDir,
    document: Document,
    frozen: Frozen,
    runner: Runner,
    model: ResolvedModel,
    record: OomRecord,
    boot: &'static str,
    /// What the system is said to have counted, one for each look.
    samples: Vec<HostSample>,
}

/// What came of a session of a run.
struct Ran {
    ended: anyhow::Result<HowEnded>,
    records: Vec<Record>,
    /// The items that each process was started with.
    launched: Vec<String>,
    recorded: Vec<OomEntry>,
}

impl Lab {
    fn new() -> Lab {
        let text = fixture::SMALL
            .replace(
                "from = \"log\"\nfield = \"ms\"",
                "from = \"report\"\nfield = \"timing.decode_ms\"",
            )
            .replace("order = \"interleaved\"", "order = \"sequential\"")
            .replace("repeats = 3", "repeats = 1");
        let runner = "result = \"report\"\ncommand = [\"engine\", \"{model}\", \"{prompt_tokens}\", \"--report\", \"{report}\"]\n";
        let pins = Pins {
            commit: "abc1234".to_owned(),
            code_sha256: None,
            runner_sha256: "r".to_owned(),
            model_sha256: "m".to_owned(),
            revisions: [].into(),
            machine: "CPU_8GB".to_owned(),
            files: [].into(),
        };
        let version = NewVersion {
            date: "2026-01-31".to_owned(),
            why: None,
            data: DataBefore::default(),
            pins,
            document: text.clone(),
        };
        Lab {
            folder: tempfile::tempdir().unwrap(),
            document: fixture::parse(&text),
            frozen: Frozen::new("small").with(version).unwrap(),
            runner: parse_runner("scripted", "scripted.toml", runner).unwrap(),
            model: ResolvedModel {
                name: "llama".to_owned(),
                path: "models/llama".to_owned(),
                tracked_path: "models/llama".to_owned(),
                kind: ModelKind::Gguf,
                weight_bytes: None,
                note: None,
            },
            record: OomRecord::default(),
            boot: "boot",
            samples: Vec::new(),
        }
    }

    /// The same with a runner that is built first.
    fn with_build(self) -> Lab {
        let runner = "result = \"report\"\ncommand = [\"{target_dir}/release/b\", \"{model}\", \"{prompt_tokens}\", \"--report\", \
                      \"{report}\"]\n[build]\npackage = \"p\"\nbin = \"b\"\n";
        Lab { runner: parse_runner("built", "built.toml", runner).unwrap(), ..self }
    }

    /// One session of the run: goes on where the last one stopped.
    fn run(&self, mut play: impl FnMut(&str) -> anyhow::Result<Ending>) -> Ran {
        let root = self.folder.path();
        let mut launched = Vec::new();
        let mut executor = ScriptedExecutor::new(|spec| {
            let items = items_of(spec);
            launched.push(items.clone());
            play(&items)
        });
        executor.boot_id = self.boot.to_owned();
        executor.samples.clone_from(&self.samples);
        let finder = Finder {
            commit: "abc1234".to_owned(),
            source: "samples.jsonl".to_owned(),
            command: Some("prereg run"),
        };
        let guard = Guard::new(self.record.clone(), RecordRule::InForce, None, 1.0);
        let mut bench = Bench::open(root, &root.join("run"), &"test").unwrap();
        bench.settle_lost_launch(&self.document, self.boot).unwrap();
        let subject = Subject {
            root,
            name: "small",
            document: &self.document,
            version: self.frozen.last().unwrap(),
            runner: &self.runner,
            model: &self.model,
        };
        let session = Session::new(executor, guard, finder);
        let mut launcher = StepLauncher::new(subject, session).unwrap();
        let ended = measure(&self.document, &mut bench, &mut launcher);
        let recorded = launcher.executor().recorded.clone();
        drop(launcher);
        Ran { ended, records: bench.records, launched, recorded }
    }
}

/// The items that a process runs with, by the variable that the item sets.
fn items_of(spec: &ChildSpec) -> String {
    let is_set = |(name, value): &(String, Option<String>)| name == "X" && value.is_some();
    let program = Path::new(&spec.program).file_name().unwrap().to_string_lossy().into_owned();
    if spec.env.iter().any(is_set) { format!("{program} item") } else { program }
}

/// A launch that took so long.
fn took(decode_ms: f64) -> anyhow::Result<Ending> {
    let mut report = formats::cell_report::CellReport { schema: 1, ..Default::default() };
    report.prompt.target_tokens = Some(8);
    report.timing.decode_ms = Some(decode_ms);
    Ok(Ending { report: Some(serde_json::to_string(&report).unwrap()), ..Ending::exit(0, "") })
}

/// What the samples come to, in words.
fn end_of(lab: &Lab, ran: &Ran) -> String {
    match judge(&lab.document, &ran.records).phase {
        Phase::Decided { rule, .. } => format!("decided by {rule}"),
        Phase::NotShown { rule, why } => format!("{rule} is not shown: {why}"),
        Phase::Undecided { why } => format!("undecided: {why}"),
        phase => format!("open: {phase:?}"),
    }
}

fn classes(ran: &Ran) -> Vec<Option<Classification>> {
    let class = |record: &Record| match record {
        Record::Launch(launch) => Some(launch.failed.as_ref().map(|failure| failure.class)),
        _ => None,
    };
    ran.records.iter().filter_map(class).collect()
}

#[test]
fn every_rung_is_launched_once_and_the_rule_decides() {
    let lab = Lab::new();
    let ran = lab.run(|items| took(if items == "engine item" { 80.0 } else { 100.0 }));
    assert_eq!(ran.ended.as_ref().unwrap(), &HowEnded::Complete);
    assert_eq!(ran.launched, ["engine", "engine item", "engine"]);
    assert_eq!(end_of(&lab, &ran), "decided by land");
    // Nothing is left for a second session.
    let again = lab.run(|_| panic!("nothing is launched"));
    assert_eq!(again.ended.unwrap(), HowEnded::Complete);
    assert_eq!(again.records, ran.records);
}

#[test]
fn a_base_out_of_memory_is_recorded_once_and_ends_the_run_undecided_at_that_launch() {
    let lab = Lab::new();
    let ran = lab.run(|_| Ok(Ending::oom()));
    assert_eq!(ran.ended.as_ref().unwrap(), &HowEnded::Complete);
    assert_eq!(ran.launched, ["engine"]);
    assert_eq!(classes(&ran), [Some(Classification::Oom)]);
    let told = end_of(&lab, &ran);
    let expected = "undecided: the base failed as rung A, launch 1: SKIP:oom: ";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(ran.recorded.len(), 1);
    assert_eq!(ran.recorded[0].model, "llama");
    assert_eq!(ran.recorded[0].found_by.as_deref(), Some("prereg run"));
}

#[test]
fn a_rung_that_the_record_forbids_stops_the_run_without_a_decision() {
    let record = parse_record("llama+item,8,2026-01-01,abc1234,,old.csv\n");
    let lab = Lab { record, ..Lab::new() };
    let ran = lab.run(|_| took(100.0));
    assert_eq!(ran.ended.as_ref().unwrap(), &HowEnded::Refused);
    assert_eq!(ran.launched, ["engine"], "the base alone");
    assert_eq!(classes(&ran), [None]);
    let Some(Record::Stopped { why }) = ran.records.last() else { panic!("{:?}", ran.records) };
    assert!(why.starts_with("rung B 1/1 is not launched: the OOM record holds `llama+item,8,"));
    assert!(end_of(&lab, &ran).starts_with("open: Ladder"), "{}", end_of(&lab, &ran));
    assert!(ran.recorded.is_empty());
}

#[test]
fn a_launch_that_the_harness_did_not_survive_is_made_again() {
    let lab = Lab::new();
    let killed = lab.run(|_| anyhow::bail!("killed"));
    assert_eq!(killed.ended.unwrap_err().to_string(), "killed");
    assert!(killed.records.is_empty());
    let ran = lab.run(|_| took(100.0));
    assert_eq!(ran.launched, ["engine", "engine item", "engine"]);
    assert_eq!(classes(&ran), [None, None, None]);
}

#[test]
fn a_launch_that_the_machine_did_not_survive_is_a_crash_and_is_not_made_again() {
    let lab = Lab::new();
    lab.run(|_| anyhow::bail!("killed"));
    let lab = Lab { boot: "another", ..lab };
    let ran = lab.run(|_| took(100.0));
    assert_eq!(classes(&ran), [Some(Classification::FailHostLost)]);
    assert!(matches!(&ran.records[1], Record::Deviation { text } if text.contains("went down")));
    // It was the base: nothing can be judged, and nothing more is launched.
    assert_eq!(ran.launched, [""; 0]);
    assert!(end_of(&lab, &ran).contains("FAIL:host_lost"), "{}", end_of(&lab, &ran));
}

#[test]
fn what_the_base_does_not_report_is_found_at_the_first_launch() {
    let lab = Lab::new();
    let ran = lab.run(|_| {
        let mut ending = took(100.0)?;
        let report = ending.report.as_mut().unwrap();
        *report = report.replace("100.0", "null");
        Ok(ending)
    });
    assert_eq!(ran.ended.as_ref().unwrap(), &HowEnded::Complete);
    assert_eq!(ran.launched, ["engine"]);
    let told = end_of(&lab, &ran);
    let why = "it reported no ms: its report has no number at `timing.decode_ms`";
    assert!(told.contains(why), "{told}");
}

#[test]
fn a_gain_below_what_the_base_again_shows_is_not_shown_and_lands_nothing() {
    let lab = Lab::new();
    // The base, the item 15 % faster over a bar of 10 %, and the base again 22.75 % slower.
    let mut times = [100.0, 85.0, 122.75].into_iter();
    let ran = lab.run(|_| took(times.next().unwrap()));
    assert_eq!(ran.ended.as_ref().unwrap(), &HowEnded::Complete);
    assert_eq!(
        end_of(&lab, &ran),
        "land is not shown: gain = +15.00 % is within the noise, the base measured again is 22.75 % apart"
    );
}

#[test]
fn a_disturbed_launch_is_made_again_and_one_out_of_memory_never_is() {
    let pages = |n: u64| HostSample { swapped_pages: Some(n * 1_000_000), ..HostSample::default() };
    let lab = Lab { samples: (0..60).map(pages).collect(), ..Lab::new() };
    let ran = lab.run(|items| match items {
        "engine item" => Ok(Ending::oom()),
        _ => took(100.0),
    });
    let base = "engine";
    assert_eq!(ran.launched, [base, base, base, "engine item", base, base, base]);
    let rejected =
        |record: &&Record| matches!(record, Record::Launch(launch) if launch.rejected.is_some());
    assert_eq!(ran.records.iter().filter(rejected).count(), 4);
    assert_eq!(ran.recorded.len(), 1);
}

#[test]
fn an_interrupt_keeps_nothing_of_its_launch_and_the_next_session_makes_it_again() {
    let lab = Lab::new();
    let interrupted = Ending {
        stopped: Some(StopReason::Interrupt),
        ..Ending { exit: ExitKind::Signal(15), ..Ending::exit(0, "") }
    };
    let ran = lab.run(|_| Ok(interrupted.clone()));
    assert_eq!(ran.ended.unwrap(), HowEnded::Interrupted);
    assert!(ran.records.is_empty());
    assert_eq!(lab.run(|_| took(100.0)).launched.len(), 3);
    // The same for a build, which is not a failed one.
    let lab = Lab::new().with_build();
    let ran = lab.run(|_| Ok(interrupted.clone()));
    assert_eq!(ran.ended.unwrap(), HowEnded::Interrupted);
    assert_eq!(ran.launched, ["cargo"]);
    let failed = lab.run(|_| Ok(Ending::exit(101, "error: no such crate\n")));
    let said = failed.ended.unwrap_err().to_string();
    assert!(said.starts_with("`cargo build --release") && said.contains("no such crate"), "{said}");
}

#[test]
fn what_does_not_fit_under_the_ceiling_is_not_launched() {
    let mut lab = Lab::new();
    // A scripted process takes a second.
    lab.document.protocol.ceiling_min = 1.5 / 60.0;
    let ran = lab.run(|_| took(100.0));
    assert_eq!(ran.ended.unwrap(), HowEnded::AtCeiling);
    assert_eq!(ran.launched, ["engine"]);
    assert!(matches!(ran.records.last(), Some(Record::Stopped { .. })));
    let again = lab.run(|_| panic!("nothing is launched"));
    assert_eq!(again.records.len(), ran.records.len(), "said once");
}
