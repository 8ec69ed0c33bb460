use super::*;
use crate::cell::classify::Classification;
use crate::prereg::fixture::{SEED, SMALL, launch as launched, parse, series};
use crate::prereg::judge::judge;
use crate::prereg::sample::{Failure, LaunchRecord};

fn record(launch: &Launch) -> LaunchRecord {
    let items: Vec<&str> = launch.items.iter().map(String::as_str).collect();
    let mut record = launched(launch.slot.clone(), &items);
    record.series.insert("ms".to_owned(), series(&[1.0]));
    record
}

/// Launches until nothing is left, each recorded as `play` says: the rungs in their order.
fn run_through(document: &Document, play: impl Fn(&Launch) -> LaunchRecord) -> Vec<String> {
    let (mut records, mut rungs) = (Vec::new(), Vec::new());
    loop {
        let standing = judge(document, &records);
        let left = count_left(document, &standing, &records);
        let Step::Launch(launch) = plan_step(document, &standing, &records) else {
            assert_eq!(left, 0);
            return rungs;
        };
        assert!(left > 0);
        if let Slot::Ladder { rung, .. } = &launch.slot {
            rungs.push(rung.clone());
        }
        records.push(Record::Launch(play(&launch)));
        assert!(records.len() < 100, "it never ends");
    }
}

#[test]
fn interleaved_blocks_hold_each_rung_once_and_a_seed_repeats_them() {
    let document_7 = parse(SMALL);
    let order = run_through(&document_7, record);
    assert_eq!(order.len(), 9);
    for block in order.chunks(3) {
        let mut block = block.to_vec();
        block.sort();
        assert_eq!(block, ["A", "B", "null"]);
    }
    assert_ne!(order[..3], order[3..6], "blocks are rotated");
    assert_eq!(order, run_through(&document_7, record));
    let other: Vec<Vec<String>> = (0..8)
        .map(|seed| {
            let text = SMALL.replace("seed = 7", &format!("seed = {seed}"));
            run_through(&parse(&text), record)
        })
        .collect();
    assert!(other.iter().any(|one| *one != order), "the seed draws the order");
}

#[test]
fn a_sequential_ladder_finishes_one_rung_before_the_next() {
    let document = parse(&SMALL.replace("interleaved", "sequential"));
    let order = run_through(&document, record);
    assert_eq!(order, ["A", "A", "A", "B", "B", "B", "null", "null", "null"]);
}

#[test]
fn a_rung_that_crashed_is_not_launched_again_and_the_others_are() {
    let document = parse(&SMALL.replace("interleaved", "sequential"));
    let order = run_through(&document, |launch| {
        let mut launch = record(launch);
        if launch.items == ["item"] {
            let detail = "out of memory".to_owned();
            launch.failed = Some(Failure { class: Classification::Oom, detail });
        }
        launch
    });
    assert_eq!(order, ["A", "A", "A", "B", "null", "null", "null"]);
}

#[test]
fn a_rejected_launch_is_planned_again() {
    let document = parse(&SMALL.replace("interleaved", "sequential"));
    let standing = judge(&document, &[]);
    let Step::Launch(first) = plan_step(&document, &standing, &[]) else { panic!() };
    let mut rejected = record(&first);
    rejected.rejected = Some("load".to_owned());
    let records = [Record::Launch(rejected)];
    assert_eq!(count_rejected(&records, &first.slot), 1);
    let Step::Launch(again) = plan_step(&document, &judge(&document, &records), &records) else {
        panic!()
    };
    assert_eq!(again, first);
}

#[test]
fn launches_are_counted_with_one_contingency_pass() {
    assert_eq!(count_launches(&parse(SMALL)), 9);
    // Seven for oracles, four rungs, and the ladder again for the rule that drops an item.
    assert_eq!(count_launches(&parse(SEED)), 7 + 4 + 4);
}
