use std::collections::BTreeMap;

use super::*;
use crate::cell::classify::Classification;
use crate::prereg::document::parse_document;
use crate::prereg::judge::judge;
use crate::prereg::sample::{Failure, LaunchRecord};

/// Two rungs and the base again, three times each.
const DOCUMENT: &str = r#"
question = "Is B faster?"
[protocol]
runner = "scripted"
model = "model.toml"
prompt_tokens = 8
steps = 4
repeats = 3
order = "interleaved"
seed = 7
ceiling_min = 10
[[metrics]]
id = "ms"
from = "log"
field = "ms"
[[items]]
id = "item"
env = { X = "1" }
[[rungs]]
id = "A"
[[rungs]]
id = "B"
items = ["item"]
[[reads]]
id = "gain"
role = "primary"
metric = "ms"
value = "(A - B) / A"
[[rules]]
id = "land"
when = "gain >= 10 %"
then = "land-all"
[[rules]]
id = "park"
when = "always"
then = "park"
"#;

fn document(text: &str) -> Document {
    parse_document("x.toml", text).unwrap()
}

fn record(launch: &Launch) -> LaunchRecord {
    LaunchRecord {
        slot: launch.slot.clone(),
        items: launch.items.clone(),
        failed: None,
        rejected: None,
        disturbed: Vec::new(),
        series: BTreeMap::new(),
        token_hash: None,
        files: BTreeMap::new(),
        settings: serde_json::Value::Null,
        cost_s: 1.0,
    }
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
    let document_7 = document(DOCUMENT);
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
            let text = DOCUMENT.replace("seed = 7", &format!("seed = {seed}"));
            run_through(&document(&text), record)
        })
        .collect();
    assert!(other.iter().any(|one| *one != order), "the seed draws the order");
}

#[test]
fn a_sequential_ladder_finishes_one_rung_before_the_next() {
    let document = document(&DOCUMENT.replace("interleaved", "sequential"));
    let order = run_through(&document, record);
    assert_eq!(order, ["A", "A", "A", "B", "B", "B", "null", "null", "null"]);
}

#[test]
fn a_rung_that_crashed_is_not_launched_again_and_the_others_are() {
    let document = document(&DOCUMENT.replace("interleaved", "sequential"));
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
    let document = document(&DOCUMENT.replace("interleaved", "sequential"));
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
    assert_eq!(count_launches(&document(DOCUMENT)), 9);
    let seed = include_str!("../../../tests/it/prereg/seed.toml");
    // Seven for oracles, four rungs, and the ladder again for the rule that drops an item.
    assert_eq!(count_launches(&document(seed)), 7 + 4 + 4);
}
