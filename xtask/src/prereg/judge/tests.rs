use super::*;
use crate::prereg::fixture::{SMALL, launch as launched, parse, series};
use crate::prereg::sample::Slot;

/// What makes the read of the small ladder one that a guard can fail.
const GUARD: &str = r#"
[[metrics]]
id = "memory"
from = "log"
field = "memory"
[[guards]]
id = "peak"
metric = "memory"
value = "(B - A) / A"
passes = "value <= 2 %"
fails = ["gain"]
"#;

fn document() -> Document {
    let once = SMALL.replace("repeats = 3", "repeats = 1\nrefuse_null_rung = \"a test\"");
    parse(&(once + GUARD))
}

fn launch(rung: &str, readings: &[(&str, f64)]) -> Record {
    let slot = Slot::Ladder { round: 1, rung: rung.to_owned(), repeat: 1 };
    let mut launch = launched(slot, if rung == "B" { &["item"] } else { &[] });
    launch.series =
        readings.iter().map(|(id, value)| ((*id).to_owned(), series(&[*value]))).collect();
    Record::Launch(launch)
}

fn phase_of(a: &[(&str, f64)], b: &[(&str, f64)]) -> Phase {
    let document = document();
    judge(&document, &[launch("A", a), launch("B", b)]).phase
}

fn rule_of(a: &[(&str, f64)], b: &[(&str, f64)]) -> String {
    match phase_of(a, b) {
        Phase::Decided { rule, .. } => rule,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_rule_that_holds_is_taken() {
    let a = [("ms", 10.0), ("memory", 100.0)];
    assert_eq!(rule_of(&a, &[("ms", 9.0), ("memory", 100.0)]), "land");
    assert_eq!(rule_of(&a, &[("ms", 9.1), ("memory", 100.0)]), "park");
}

#[test]
fn a_read_that_its_guard_failed_satisfies_no_rule() {
    let a = [("ms", 10.0), ("memory", 100.0)];
    assert_eq!(rule_of(&a, &[("ms", 5.0), ("memory", 102.0)]), "land");
    assert_eq!(rule_of(&a, &[("ms", 5.0), ("memory", 102.1)]), "park");
}

#[test]
fn what_was_not_reported_stops_the_judgement_before_a_later_rule_is_taken() {
    let a = [("ms", 10.0), ("memory", 100.0)];
    let Phase::Undecided { why } = phase_of(&a, &[("memory", 100.0)]) else { panic!() };
    assert_eq!(why, "rule `land` cannot be judged: B reported no ms");
    // A guard that cannot be judged leaves its read open as well.
    let Phase::Undecided { why } = phase_of(&a, &[("ms", 5.0)]) else { panic!() };
    assert!(why.contains("guard peak cannot be judged: B reported no memory"), "{why}");
}

#[test]
fn a_missing_launch_leaves_the_ladder_open() {
    let document = document();
    let standing = judge(&document, &[launch("A", &[("ms", 1.0), ("memory", 1.0)])]);
    assert_eq!(standing.phase, Phase::Ladder { round: 1 });
    assert!(standing.rounds.is_empty());
}

#[test]
fn a_rejected_launch_does_not_count() {
    let document = document();
    let mut disturbed = launch("B", &[("ms", 1.0), ("memory", 100.0)]);
    if let Record::Launch(launch) = &mut disturbed {
        launch.rejected = Some("load".to_owned());
    }
    let a = launch("A", &[("ms", 10.0), ("memory", 100.0)]);
    let b = launch("B", &[("ms", 10.0), ("memory", 100.0)]);
    let standing = judge(&document, &[a, disturbed, b]);
    let round = standing.last_round().unwrap();
    assert_eq!(round.number("ms", "B"), crate::stats::expr::Number::Known(10.0));
}
