//! Which items each rung carries, and what that means for a launch.
//!
//! It owns the recomposition after items were dropped, the primes in rungs' names, and the merging of
//! items into one configuration. It launches nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Document, Item, NullRung, OnDrop};

/// The id of the null rung in records. No rung of a document can have it.
pub(crate) const NULL: &str = "null";

/// An item that is out, and since when.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Dropped {
    pub(crate) item: String,
    /// 0: before the ladder, by its oracles; n: after the n-th round, by a rule.
    pub(crate) after_round: u32,
    pub(crate) why: String,
}

/// A rung as it runs, or does not.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Composed {
    /// Its id in the document, or [`NULL`].
    pub(crate) id: String,
    /// What it is called after recomposition: `C′`.
    pub(crate) name: String,
    pub(crate) items: Vec<String>,
    pub(crate) state: RungState,
}

/// Whether a rung runs, and for what.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RungState {
    /// It runs and counts.
    Runs,
    /// It runs with a dropped item, as a receipt; it can never land.
    Receipt,
    /// It does not run, for this reason.
    Void(String),
}

/// What one launch is run with, besides the protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) env: BTreeMap<String, String>,
    /// Variables to remove first: everything that any item or the protocol sets.
    pub(crate) controlled: BTreeSet<String>,
    pub(crate) args: Vec<String>,
    pub(crate) features: Vec<String>,
    /// Commits to apply on top of the frozen one, in order.
    pub(crate) revs: Vec<String>,
}

impl Configuration {
    /// What distinguishes its binary from others: `workspace`, with features and revisions.
    pub(crate) fn build_key(&self) -> String {
        let mut key = "workspace".to_owned();
        for rev in &self.revs {
            key.push_str(&format!(" + {rev}"));
        }
        if !self.features.is_empty() {
            key.push_str(&format!(" with {}", self.features.join(",")));
        }
        key
    }
}

/// Adds to `dropped` every item that needs one of them.
pub(crate) fn with_dependents(document: &Document, mut dropped: Vec<Dropped>) -> Vec<Dropped> {
    loop {
        let is_out = |id: &str| dropped.iter().find(|drop| drop.item == id);
        let next =
            document.items.iter().filter(|item| is_out(&item.id).is_none()).find_map(|item| {
                let need = item.needs.iter().find_map(|need| is_out(need))?;
                Some(Dropped {
                    item: item.id.clone(),
                    after_round: need.after_round,
                    why: format!("it needs {}, which was dropped", need.item),
                })
            });
        match next {
            Some(drop) => dropped.push(drop),
            None => return dropped,
        }
    }
}

/// The ladder without the dropped items, the null rung last.
pub(crate) fn plan_rungs(document: &Document, dropped: &[Dropped]) -> Vec<Composed> {
    let is_out = |item: &String| dropped.iter().any(|drop| drop.item == *item);
    let mut rungs: Vec<Composed> = document
        .rungs
        .iter()
        .map(|rung| {
            let left: Vec<String> =
                rung.items.iter().filter(|item| !is_out(item)).cloned().collect();
            let touched = left.len() < rung.items.len();
            let (name, items, state) = match rung.on_drop {
                _ if !touched => (rung.id.clone(), left, RungState::Runs),
                OnDrop::Measure => (rung.id.clone(), rung.items.clone(), RungState::Receipt),
                OnDrop::Recompose => {
                    let stages: BTreeSet<u32> = dropped
                        .iter()
                        .filter(|drop| rung.items.contains(&drop.item))
                        .map(|drop| drop.after_round)
                        .collect();
                    let name = format!("{}{}", rung.id, "′".repeat(stages.len()));
                    let state = if left.is_empty() {
                        RungState::Void("none of its items is left".to_owned())
                    } else {
                        RungState::Runs
                    };
                    (name, left, state)
                }
            };
            Composed { id: rung.id.clone(), name, items, state }
        })
        .collect();
    if document.protocol.null_rung == NullRung::Added {
        let base = document.base();
        rungs.push(Composed {
            id: NULL.to_owned(),
            name: format!("{} again", base.id),
            items: base.items.clone(),
            state: RungState::Runs,
        });
    }
    // The base alone answers nothing.
    let only_base =
        rungs[1..].iter().all(|rung| rung.id == NULL || matches!(rung.state, RungState::Void(_)));
    if only_base {
        for rung in &mut rungs {
            if rung.state == RungState::Runs {
                rung.state = RungState::Void("nothing is left to compare it with".to_owned());
            }
        }
    }
    rungs
}

/// The items of `ids` with everything that they need, in the document's order.
pub(crate) fn with_needs(document: &Document, ids: &[String]) -> Vec<String> {
    let mut wanted: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    loop {
        let before = wanted.len();
        for item in &document.items {
            if ids_contain(&wanted, item) {
                wanted.extend(item.needs.iter().map(String::as_str));
            }
        }
        if wanted.len() == before {
            break;
        }
    }
    document.items.iter().filter(|item| ids_contain(&wanted, item)).map(|i| i.id.clone()).collect()
}

fn ids_contain(ids: &BTreeSet<&str>, item: &Item) -> bool {
    ids.contains(item.id.as_str())
}

/// Adds arguments. A `--flag value` that is there already takes the new value: most programs refuse a
/// flag that is given twice, and the rest take one of the two.
fn merge_args(args: &mut Vec<String>, more: &[String]) {
    let is_flag = |arg: &String| arg.starts_with("--");
    let mut rest = more;
    while let Some((first, others)) = rest.split_first() {
        let value = others.first().filter(|value| is_flag(first) && !is_flag(value));
        let at = args.iter().position(|arg| is_flag(first) && arg == first);
        match (at, value) {
            (Some(at), Some(value)) if args.get(at + 1).is_some_and(|old| !is_flag(old)) => {
                args[at + 1].clone_from(value);
            }
            (Some(_), None) => {}
            (_, value) => {
                args.push(first.clone());
                args.extend(value.cloned());
            }
        }
        rest = &others[usize::from(value.is_some())..];
    }
}

/// The protocol's settings with those of the items on top, later items winning.
pub(crate) fn configure(document: &Document, items: &[String]) -> Configuration {
    let protocol = &document.protocol;
    let mut configuration = Configuration {
        env: protocol.env.clone(),
        controlled: (protocol.env.keys())
            .chain(document.items.iter().flat_map(|item| item.env.keys()))
            .cloned()
            .collect(),
        args: protocol.args.clone(),
        ..Configuration::default()
    };
    for item in items.iter().filter_map(|id| document.item(id)) {
        configuration.env.extend(item.env.clone());
        merge_args(&mut configuration.args, &item.args);
        for feature in &item.features {
            if !configuration.features.contains(feature) {
                configuration.features.push(feature.clone());
            }
        }
        configuration.revs.extend(item.rev.iter().cloned());
    }
    configuration
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prereg::fixture::{SEED, parse, seed_with};

    fn drop_item(item: &str, after_round: u32) -> Dropped {
        Dropped { item: item.to_owned(), after_round, why: String::new() }
    }

    #[test]
    fn a_rung_without_one_of_its_items_runs_under_a_new_name() {
        let ladder = plan_rungs(&parse(SEED), &[drop_item("P1", 0)]);
        let names: Vec<&str> = ladder.iter().map(|rung| rung.name.as_str()).collect();
        assert_eq!(names, ["A", "B", "C′", "A again"]);
        assert_eq!(ladder[1].state, RungState::Receipt);
        assert_eq!(ladder[1].items, ["P1"]);
        assert_eq!(ladder[2].items, ["P2", "P3", "P4"]);
        // Two items at once are one recomposition; a later one is another.
        let ladder = plan_rungs(&parse(SEED), &[drop_item("P1", 0), drop_item("P3", 0)]);
        assert_eq!(ladder[2].name, "C′");
        let ladder = plan_rungs(&parse(SEED), &[drop_item("P1", 0), drop_item("P3", 1)]);
        assert_eq!(ladder[2].name, "C′′");
    }

    #[test]
    fn a_rung_without_any_item_does_not_run_and_the_base_alone_neither() {
        let text = SEED.replace("on_drop = \"measure\"\n", "");
        let document = parse(&text);
        let ladder = plan_rungs(&document, &[drop_item("P1", 0)]);
        assert!(matches!(ladder[1].state, RungState::Void(_)));
        assert_eq!(ladder[0].state, RungState::Runs);
        let all = ["P1", "P2", "P3", "P4"].map(|item| drop_item(item, 0));
        let ladder = plan_rungs(&document, &all);
        assert!(ladder.iter().all(|rung| matches!(rung.state, RungState::Void(_))));
    }

    #[test]
    fn what_needs_a_dropped_item_is_dropped_with_it() {
        let text = seed_with("env = { P3 = \"1\" }", "env = { P3 = \"1\" }\nneeds = [\"P1\"]");
        let text =
            text.replacen("env = { P4 = \"1\" }", "env = { P4 = \"1\" }\nneeds = [\"P3\"]", 1);
        let document = parse(&text);
        let dropped = with_dependents(&document, vec![drop_item("P1", 2)]);
        let items: Vec<(&str, u32)> =
            dropped.iter().map(|drop| (drop.item.as_str(), drop.after_round)).collect();
        assert_eq!(items, [("P1", 2), ("P3", 2), ("P4", 2)]);
        let needs = with_needs(&document, &["P4".to_owned()]);
        assert_eq!(needs, ["P1", "P3", "P4"]);
    }

    #[test]
    fn a_configuration_removes_what_any_item_sets_and_adds_its_own() {
        let configuration = configure(&parse(SEED), &["P2".to_owned()]);
        let controlled: Vec<&str> = configuration.controlled.iter().map(String::as_str).collect();
        assert_eq!(controlled, ["P1", "P2", "P3", "P4"]);
        assert_eq!(
            configuration.env.into_iter().collect::<Vec<_>>(),
            [("P2".to_owned(), "1".to_owned())]
        );
    }

    #[test]
    fn a_flag_that_is_given_again_takes_the_new_value() {
        let merged = |args: &[&str], more: &[&str]| {
            let mut args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let more: Vec<String> = more.iter().map(|arg| (*arg).to_owned()).collect();
            merge_args(&mut args, &more);
            args.join(" ")
        };
        assert_eq!(merged(&["--chunk", "64", "--x"], &["--chunk", "128"]), "--chunk 128 --x");
        assert_eq!(merged(&["--x"], &["--x", "--chunk", "8"]), "--x --chunk 8");
        assert_eq!(merged(&["a"], &["a", "--b", "c"]), "a a --b c");
        assert_eq!(merged(&[], &["-m", "x"]), "-m x");
    }

    #[test]
    fn a_build_is_known_by_its_features_and_revisions() {
        let mut configuration = Configuration::default();
        assert_eq!(configuration.build_key(), "workspace");
        configuration.features.push("cuda".to_owned());
        configuration.revs.push("perf".to_owned());
        assert_eq!(configuration.build_key(), "workspace + perf with cuda");
    }
}
