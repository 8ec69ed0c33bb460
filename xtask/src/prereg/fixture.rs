//! What the tests of ladders share.

use super::document::{Document, parse_document};
use super::sample::{LaunchRecord, Reading, Series, Slot};

/// A ladder with the shape of a real one.
pub(super) const SEED: &str = include_str!("../../tests/it/prereg/seed.toml");

/// Two rungs and the base again, three times each.
pub(super) const SMALL: &str = r#"
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

pub(super) fn parse(text: &str) -> Document {
    parse_document("x.toml", text).unwrap()
}

/// The seed with one passage replaced, which must be there.
pub(super) fn seed_with(from: &str, to: &str) -> String {
    assert!(SEED.contains(from), "the seed has no `{from}`");
    SEED.replacen(from, to, 1)
}

/// Readings at the steps from 1.
pub(super) fn series(values: &[f64]) -> Series {
    Series {
        steps: (1..=values.len() as u64).collect(),
        values: values.iter().copied().map(Reading).collect(),
    }
}

/// A launch that ended well and read nothing.
pub(super) fn launch(slot: Slot, items: &[&str]) -> LaunchRecord {
    let items = items.iter().map(|id| (*id).to_owned()).collect();
    LaunchRecord { cost_s: 1.0, ..LaunchRecord::new(slot, items) }
}
