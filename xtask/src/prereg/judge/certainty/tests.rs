use crate::prereg::document::Document;
use crate::prereg::fixture::{SMALL, launch, parse, series};
use crate::prereg::judge::{Phase, RuleResult, Standing, judge};
use crate::prereg::sample::{Judging, Record, RunRecord, Slot};

/// The small ladder with these milliseconds of the rungs A, B and A again, a launch each.
fn records(a: [f64; 3], b: [f64; 3], null: [f64; 3]) -> Vec<Record> {
    let mut records = Vec::new();
    for (rung, values) in [("A", a), ("B", b), ("null", null)] {
        for (at, value) in values.iter().enumerate() {
            let slot = Slot::Ladder { round: 1, rung: rung.to_owned(), repeat: at as u64 + 1 };
            let mut launch = launch(slot, if rung == "B" { &["item"] } else { &[] });
            launch.series.insert("ms".to_owned(), series(&[*value]));
            records.push(Record::Launch(launch));
        }
    }
    records
}

fn small(bar: &str) -> Document {
    parse(&SMALL.replace("gain >= 10 %", bar))
}

fn judged(bar: &str, records: &[Record]) -> Standing {
    judge(&small(bar), records)
}

const SAME: [f64; 3] = [10.0; 3];

#[test]
fn the_interval_of_a_read_is_students_t_below_six_launches() {
    let standing = judged("gain >= 5 %", &records(SAME, [9.0, 9.1, 8.9], SAME));
    let certainty = standing.rounds[0].reads[0].certainty.as_ref().unwrap();
    let interval = certainty.interval.unwrap();
    // By hand: mean 0.1, deviation 0.01, t for two degrees of freedom 4.3027: 0.1 ± 0.02484.
    assert!((interval.low - 0.075_16).abs() < 1e-5, "{interval:?}");
    assert!((interval.high - 0.124_84).abs() < 1e-5, "{interval:?}");
    assert_eq!((certainty.neutral, certainty.null_apart), (0.0, Some(0.0)));
    assert!(matches!(standing.phase, Phase::Decided { .. }), "{:?}", standing.phase);
}

#[test]
fn a_read_below_what_the_base_again_shows_lands_nothing() {
    // The base again reads 22.75 % more, and the item gains 8 %, over a bar of 5 %.
    let far = [12.275; 3];
    let standing = judged("gain >= 5 %", &records(SAME, [9.2; 3], far));
    let Phase::NotShown { rule, why } = &standing.phase else { panic!("{:?}", standing.phase) };
    assert_eq!(rule, "land");
    assert_eq!(why, "gain = +8.00 % is within the noise, the base measured again is 22.75 % apart");
    assert_eq!(standing.rounds[0].rules[0].result, RuleResult::NotShown);
    assert_eq!(standing.rounds[0].rules[1].result, RuleResult::NotReached);
    // Beyond it the same rule fires.
    let standing = judged("gain >= 5 %", &records(SAME, [7.0; 3], far));
    assert!(matches!(standing.phase, Phase::Decided { .. }), "{:?}", standing.phase);
}

#[test]
fn a_read_whose_interval_holds_no_effect_lands_nothing() {
    let standing = judged("gain >= 5 %", &records(SAME, [9.0, 10.5, 8.0], SAME));
    let Phase::NotShown { why, .. } = &standing.phase else { panic!("{:?}", standing.phase) };
    assert!(why.contains("gain = +10.00 % is within the noise, its interval from −"), "{why}");
    assert!(why.ends_with("holds +0.00 %"), "{why}");
}

#[test]
fn a_rule_that_does_not_rest_on_the_read_lands_what_it_lands() {
    let text = SMALL.replace("gain >= 10 %", "gain < 5 % or gain >= 50 %");
    let standing = judge(&parse(&text), &records(SAME, [9.99; 3], [12.0; 3]));
    assert!(matches!(standing.phase, Phase::Decided { .. }), "{:?}", standing.phase);
}

#[test]
fn a_rule_may_ask_for_the_end_of_the_interval() {
    let near = records(SAME, [9.0, 9.1, 8.9], SAME);
    let fired = |bar: &str| match judged(bar, &near).phase {
        Phase::Decided { rule, .. } => rule,
        other => panic!("{other:?}"),
    };
    // The interval is from 7.516 to 12.484 %.
    assert_eq!(fired("lower(gain) >= 7.5 %"), "land");
    assert_eq!(fired("lower(gain) >= 7.6 %"), "park");
    assert_eq!(fired("upper(gain) >= 12.4 %"), "land");
    assert_eq!(fired("upper(gain) >= 12.5 %"), "park");
}

#[test]
fn a_run_that_began_under_the_older_rules_has_no_interval_and_lands_by_value() {
    let mut old = records(SAME, [9.2; 3], [12.275; 3]);
    old.insert(
        0,
        Record::Run(RunRecord {
            name: "small".to_owned(),
            version: 1,
            entry_sha256: String::new(),
            date: String::new(),
            machine: String::new(),
            commit: String::new(),
            judging: Judging::ByValue,
        }),
    );
    let standing = judged("gain >= 5 %", &old);
    assert!(matches!(standing.phase, Phase::Decided { .. }), "{:?}", standing.phase);
    assert_eq!(standing.rounds[0].reads[0].certainty, None);
}
