use super::*;
use crate::cell::classify::Classification;
use crate::prereg::fixture::{SEED, launch as launched, parse, series};
use crate::prereg::sample::Failure;

fn launch(items: &[&str], prompt_tokens: u64, steps: u64, readings: &[(&str, &[f64])]) -> Record {
    let items_of_shot = items.iter().map(|id| (*id).to_owned()).collect();
    let shot = Shot { items: items_of_shot, prompt_tokens, steps, args: Vec::new() };
    let mut launch = launched(Slot::Oracle { shot: shot.key() }, items);
    launch.series =
        readings.iter().map(|(id, values)| ((*id).to_owned(), series(values))).collect();
    Record::Launch(launch)
}

fn judge_p1(oracle: &str, records: &[Record]) -> Option<TrialOutcome> {
    let document = parse(SEED);
    let trials = item_trials(&document);
    let trial = trials.iter().find(|trial| trial.oracle.id == oracle).unwrap();
    judge_trial(&document, trial, records)
}

#[test]
fn a_trial_waits_for_both_launches() {
    let base = launch(&[], 1, 1, &[("loss", &[1.0])]);
    assert_eq!(judge_p1("p1_loss", &[]), None);
    assert_eq!(judge_p1("p1_loss", std::slice::from_ref(&base)), None);
    let item = launch(&["P1"], 1, 1, &[("loss", &[1.0005])]);
    assert_eq!(judge_p1("p1_loss", &[base, item]).unwrap().verdict, TrialVerdict::Passed);
}

#[test]
fn the_bound_is_the_bound() {
    let verdict = |oracle: &str, metric: &str, a: f64, b: f64| {
        let base = launch(&[], 1, 1, &[(metric, &[a])]);
        let item = launch(&["P1"], 1, 1, &[(metric, &[b])]);
        judge_p1(oracle, &[base, item]).unwrap()
    };
    let failed = verdict("p1_loss", "loss", 3.0, 3.0087);
    assert_eq!(failed.verdict, TrialVerdict::Failed);
    assert_eq!(failed.measured, "8.7e-3 (3.0087 against 3)");
    assert_eq!(failed.bound, "loss abs <= 1e-3");
    assert_eq!(verdict("p1_loss", "loss", 0.0, 0.001).verdict, TrialVerdict::Passed);
    assert_eq!(verdict("p1_loss", "loss", 0.0, 0.001_01).verdict, TrialVerdict::Failed);
    assert_eq!(verdict("p1_grad_norm", "grad_norm", 200.0, 201.9).verdict, TrialVerdict::Passed);
    assert_eq!(verdict("p1_grad_norm", "grad_norm", 200.0, 197.9).verdict, TrialVerdict::Failed);
    // In binary, 0.02 / 2 is a little above 1 %.
    assert_eq!(verdict("p1_grad_norm", "grad_norm", 2.0, 2.02).verdict, TrialVerdict::Passed);
    assert_eq!(verdict("p1_grad_norm", "grad_norm", 0.0, 1.0).verdict, TrialVerdict::Failed);
    assert_eq!(verdict("p1_loss", "loss", 1.0, f64::NAN).measured, "a reading is NaN");
}

#[test]
fn a_missing_reading_fails_rather_than_passes() {
    let base = launch(&[], 1, 1, &[("loss", &[1.0])]);
    let item = launch(&["P1"], 1, 1, &[]);
    let outcome = judge_p1("p1_loss", &[base, item]).unwrap();
    assert_eq!(
        (outcome.verdict, outcome.measured.as_str()),
        (TrialVerdict::Failed, "no readings of `loss`")
    );
}

#[test]
fn a_crash_of_the_item_fails_it() {
    let base = launch(&[], 1, 1, &[("loss", &[1.0])]);
    let mut item = launch(&["P1"], 1, 1, &[]);
    if let Record::Launch(launch) = &mut item {
        let detail = "illegal memory access".to_owned();
        launch.failed = Some(Failure { class: Classification::FailBench, detail });
    }
    let outcome = judge_p1("p1_loss", &[base, item]).unwrap();
    assert_eq!(outcome.verdict, TrialVerdict::Failed);
    assert_eq!(outcome.measured, "the item failed: FAIL:bench: illegal memory access");
}

#[test]
fn a_curve_stays_within_the_bases_largest_step() {
    let a = [5.0, 4.0, 4.5, 3.8];
    let verdict = |b: &[f64]| compare_curves(&series(&a), &series(b), 1.0);
    let at_most = |share: &str| format!("at most {share} of the band");
    assert_eq!(verdict(&a), (true, at_most("0.00")));
    assert_eq!(verdict(&[5.5, 4.0, 4.5, 3.8]), (true, at_most("0.50") + " at step 1"));
    assert_eq!(verdict(&[5.0, 4.0, 3.4, 3.8]), (false, at_most("1.10") + " at step 3"));
    assert_eq!(verdict(&[5.0, 4.0, f64::NAN, 3.8]), (false, "the item: NaN at step 3".to_owned()));
    let infinite = [5.0, f64::INFINITY, 4.5, 3.8];
    assert_eq!(verdict(&infinite), (false, "the item: inf at step 2".to_owned()));
    assert!(!verdict(&[5.0, 4.0, 4.5]).0);
    // A base that does not move leaves no room.
    assert!(!compare_curves(&series(&[1.0, 1.0]), &series(&[1.0, 1.1]), 1.0).0);
}

#[test]
fn peaks_are_both_there_and_in_order() {
    let check = |lifetime: &[f64], window: &[f64]| check_peaks(&series(lifetime), &series(window));
    assert!(check(&[3.0, 4.0, 4.0], &[3.0, 4.0, 2.0]).0);
    let (passed, why) = check(&[3.0, 2.9, 4.0], &[1.0, 1.0, 1.0]);
    assert!(!passed);
    assert_eq!(why, "the lifetime peak falls from 3 to 2.9 at step 2");
    let (passed, why) = check(&[3.0, 3.0], &[3.0, 3.5]);
    assert!(!passed);
    assert_eq!(why, "the lifetime peak 3 is below the window's 3.5 at step 2");
    // A report gives the lifetime peak once, for all windows.
    assert!(check(&[4.0], &[3.0, 4.0, 2.0]).0);
    assert!(!check(&[4.0], &[3.0, 4.1]).0);
    assert!(!check(&[3.0, 4.0], &[3.0]).0);
}

#[test]
fn a_bound_that_was_forgotten_never_passes() {
    let check = OracleCheck::Metric { metric: "loss".to_owned(), bound: None };
    let document = parse(SEED);
    let (Record::Launch(a), Record::Launch(b)) =
        (launch(&[], 1, 1, &[("loss", &[1.0])]), launch(&["P1"], 1, 1, &[("loss", &[1.0])]))
    else {
        unreachable!()
    };
    assert_eq!(compare(&document, &check, &a, &b), (false, "the oracle has no bound".to_owned()));
}
