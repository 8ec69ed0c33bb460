//! Stopping and judging over made-up samples.

use serde_json::json;

use super::*;
use crate::ab::args::Args;
use crate::ab::config::parse_ab;
use crate::ab::samples::{Entry, RunEnd};
use crate::cell::journal::{Evidence, ProcessNote};
use crate::cell::quiet::QuietNote;
use crate::cell::runner::Measured;

pub(crate) fn start(text: &str, pairs: Option<usize>) -> AbStart {
    let args = Args { env: vec!["FEATURE=1".to_owned()], pairs, ..Args::default() };
    AbStart {
        schema: 1,
        time: String::new(),
        date: "2026-01-31".to_owned(),
        args: Vec::new(),
        plan: parse_ab(Some(("x.toml", text)), &args).unwrap(),
        identity: Identity::default(),
        host: HostFacts::default(),
        hardware: "chip".to_owned(),
        device_bytes: None,
        commit: "unknown".to_owned(),
        dirty: None,
        environment: BTreeMap::new(),
        inherited: None,
    }
}

fn run(block: usize, leg: &str, tok_s: f64) -> RunEnd {
    let raw = if leg == "test" { json!("1") } else { json!(null) };
    RunEnd {
        time: String::new(),
        block,
        leg: leg.to_owned(),
        attempt: 0,
        status: RunStatus::Accepted,
        classification: None,
        evidence: Evidence::default(),
        process: ProcessNote { wall_ms: 60_000.0, ..ProcessNote::default() },
        pause_ms: 0.0,
        quiet: QuietNote::default(),
        measured: Some(Measured { decode_tok_s: Some(tok_s), ..Measured::default() }),
        report: Some(json!({
            "environment": [{"name": "FEATURE", "raw": raw, "parsed": raw}],
            "output": {"token_hash": "aa"},
        })),
        report_changes: None,
    }
}

pub(crate) fn log(blocks: usize, of: impl Fn(usize, &str) -> f64) -> Log {
    let mut log = Log::default();
    for block in 0..blocks {
        for leg in ["base", "test", "null"] {
            log.push(Entry::RunEnd(Box::new(run(block, leg, of(block, leg)))));
        }
    }
    log
}

/// A value that jumps by `noise` from block to block, a little differently for each leg.
pub(crate) fn noisy(noise: f64) -> impl Fn(usize, &str) -> f64 {
    move |block, leg| {
        let phase = match leg {
            "base" => 0,
            "test" => 1,
            _ => 2,
        };
        100.0 * (1.0 + noise * ((block * 7 + phase * 5) % 4) as f64)
    }
}

#[test]
fn it_grows_until_the_interval_is_narrow_or_a_maximum_is_there() {
    let growing = start("max_blocks = 10\nmax_minutes = 100.0\n", None);
    let stop =
        |noise, blocks, minutes| check_stop(&growing, &log(blocks, noisy(noise)), blocks, minutes);
    assert_eq!(stop(1e-5, 4, 0.0), None, "fewer than the least");
    assert_eq!(stop(1e-5, 6, 0.0), Some(Stop::NarrowEnough));
    assert_eq!(stop(1e-5, 7, 0.0), None, "half a mirrored pair");
    assert_eq!(stop(0.1, 6, 0.0), None);
    assert_eq!(stop(0.1, 6, 100.0), Some(Stop::MaxMinutes));
    assert_eq!(stop(0.1, 10, 0.0), Some(Stop::MaxBlocks));
    let fixed = start("", Some(7));
    assert_eq!(check_stop(&fixed, &log(6, noisy(1e-5)), 6, 999.0), None);
    assert_eq!(check_stop(&fixed, &log(7, noisy(0.1)), 7, 0.0), Some(Stop::FixedBlocks));
}

#[test]
fn what_cannot_be_compared_stops_after_one_block() {
    let plan = start("", None);
    let mut inert = log(1, noisy(0.0));
    for run in &mut inert.runs {
        run.report.as_mut().unwrap()["environment"] = json!([{"name": "OTHER", "raw": null}]);
    }
    assert_eq!(check_stop(&plan, &inert, 1, 0.0), Some(Stop::Inert));
    let mut other = log(1, noisy(0.0));
    other.runs[1].report.as_mut().unwrap()["output"]["token_hash"] = json!("bb");
    assert_eq!(check_stop(&plan, &other, 1, 0.0), Some(Stop::OtherWork));
    let mut failed = log(1, noisy(0.0));
    failed.runs[1].status = RunStatus::Failed;
    assert_eq!(check_stop(&plan, &failed, 1, 0.0), Some(Stop::LegsFailed));
    assert_eq!(check_stop(&plan, &log(1, noisy(0.0)), 1, 0.0), None);
}

#[test]
fn the_same_samples_give_the_same_result_and_rejected_runs_do_not_count() {
    let plan = start("", Some(6));
    let mut samples = log(6, noisy(0.01));
    let result = analyse(&plan, &samples).unwrap();
    let json = |result: &AbResult| serde_json::to_value(result).unwrap();
    assert_eq!(json(&result), json(&analyse(&plan, &samples).unwrap()));
    let mut wild = run(0, "test", 1.0);
    wild.status = RunStatus::Rejected;
    samples.runs.insert(0, wild);
    let with_rejected = analyse(&plan, &samples).unwrap();
    assert_eq!(with_rejected.runs.rejected, 1);
    assert_eq!(json(&with_rejected)["legs"], json(&result)["legs"]);
}

#[test]
fn a_leg_without_a_null_leg_beside_it_has_no_verdict() {
    let plan = start("", Some(6));
    let mut samples = log(6, noisy(0.01));
    samples.runs.retain(|run| run.leg != "null");
    let result = analyse(&plan, &samples).unwrap();
    let test = result.legs.iter().find(|leg| leg.leg.name == "test").unwrap();
    assert_eq!(test.verdict, Some(Verdict::Inconclusive));
    assert!(!result.violations.is_empty());
}

/// The recorded runs of the smallest model, with five percent put into one of the two legs that are the
/// same: the noise is that of a real machine.
#[test]
fn five_percent_on_recorded_runs_is_decided_in_fewer_than_half_of_the_blocks() {
    let folder = "benchmarks/ab/2026-11-30-arc-candle-alloc-cache-0-tiny";
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = std::fs::read_to_string(root.join(folder).join("samples.jsonl")).unwrap();
    let mut recorded = crate::ab::samples::parse_samples(&text);
    let blocks_with = |until_decided: bool, recorded: &Log| {
        let mut start = recorded.start.clone().unwrap();
        start.plan.until_decided = until_decided;
        (2..=40).step_by(2).find_map(|blocks| {
            let runs = recorded.runs.iter().filter(|run| run.block < blocks).cloned().collect();
            let log = Log { runs, ..Log::default() };
            let stop = check_stop(&start, &log, blocks, 0.0)?;
            Some((stop, blocks, analyse(&start, &log).unwrap().legs[2].verdict.unwrap()))
        })
    };
    recorded.runs.retain(|run| run.leg != "test");
    let base = recorded.runs.iter().filter(|run| run.leg == "base").cloned();
    let again: Vec<RunEnd> = base.map(|run| RunEnd { leg: "test".to_owned(), ..run }).collect();
    // Null takes the place of the leg that is 5 % faster, and base with itself shows no floor.
    for run in &mut recorded.runs {
        if run.leg == "null" {
            run.leg = "test".to_owned();
            let measured = run.measured.as_mut().unwrap();
            measured.decode_tok_s = measured.decode_tok_s.map(|tok_s| 1.05 * tok_s);
        }
    }
    recorded.runs.extend(again.into_iter().map(|run| RunEnd { leg: "null".to_owned(), ..run }));
    let mut start = recorded.start.clone().unwrap();
    start.plan.legs[2].env = vec![("FEATURE".to_owned(), "1".to_owned())];
    for run in &mut recorded.runs {
        let raw = if run.leg == "test" { json!("1") } else { json!(null) };
        let environment = json!([{"name": "FEATURE", "raw": raw, "parsed": raw}]);
        run.report.as_mut().unwrap()["environment"] = environment;
    }
    recorded.start = Some(start);
    let (_, fixed, _) = blocks_with(false, &recorded).unwrap();
    let (stop, blocks, verdict) = blocks_with(true, &recorded).unwrap();
    assert_eq!((stop, verdict), (Stop::Decided, Verdict::Faster));
    assert!(2 * blocks < fixed, "{blocks} blocks, {fixed} of the fixed design");
}

#[test]
fn the_next_pair_is_not_begun_where_it_would_end_late() {
    let start = start("max_minutes = 30.0\nquiet = \"noted\"\nmax_blocks = 40\n", None);
    let noise = |block: usize, leg: &str| {
        100.0 + 9.0 * ((block * 7 + usize::from(leg.as_bytes()[0])) % 5) as f64
    };
    let stop = |blocks, minutes| check_stop(&start, &log(blocks, noise), blocks, minutes);
    // Eight blocks in 26 minutes: ten end after 32.5, within a tenth of the limit.
    assert_eq!(stop(8, 26.0), None);
    assert_eq!(stop(8, 27.0), Some(Stop::MaxMinutes));
    // It holds before the fewest blocks are done as well, and one pair is always run.
    assert_eq!(stop(2, 17.0), Some(Stop::MaxMinutes));
    assert_eq!(stop(1, 17.0), None);
}
