//! What a document's parts say of each other: names, references, the types of expressions.

use std::collections::BTreeSet;

use super::Problems;
use crate::prereg::document::signature::{NUMBERS, Place, Scope, check_known, ids_of};
use crate::prereg::document::{Action, Document, OracleCheck, ReadRole};
use crate::stats::expr::{Expr, Kind};

impl Problems {
    /// Names are unique within their kind, and expressions can spell them.
    pub(super) fn check_ids(&mut self, document: &Document) {
        let of = |kind| (kind, ids_of(document, kind));
        let reads_and_guards = [ids_of(document, "read"), ids_of(document, "guard")].concat();
        for (kind, ids) in [
            of("metric"),
            of("oracle"),
            of("item"),
            of("rung"),
            of("rule"),
            ("read or guard", reads_and_guards),
        ] {
            let mut seen = BTreeSet::new();
            for id in &ids {
                let plain = id.starts_with(|c: char| c.is_ascii_alphabetic())
                    && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                let reserved = ["and", "or", "not", "always", "never", "value", "null"];
                if !plain || reserved.contains(&id.as_str()) || NUMBERS.contains(&id.as_str()) {
                    self.note(
                        &format!("{kind} `{id}`"),
                        "a name starts with a letter, has only letters, digits and `_`, and is not \
                         a word of the rules' language",
                    );
                }
                if !seen.insert(id) {
                    self.note(&format!("{kind} `{id}`"), "the name is used twice");
                }
            }
        }
        let mut numbers = BTreeSet::new();
        for expectation in &document.expectations {
            let number = &expectation.number;
            let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
            let plain = digits.parse::<u32>().is_ok() && number.len() - digits.len() <= 1;
            if !plain || !numbers.insert(number) {
                self.note(
                    &format!("expectation `{number}`"),
                    "a number looks like `3` or `3b`, and each is used once",
                );
            }
        }
    }

    /// What refers to another part by name finds it.
    pub(super) fn check_references(&mut self, document: &Document) {
        let mut uses: Vec<(String, &str, &str)> = Vec::new();
        for item in &document.items {
            let place = format!("item `{}`", item.id);
            uses.extend(item.oracles.iter().map(|id| (place.clone(), "oracle", id.as_str())));
            uses.extend(item.needs.iter().map(|id| (place.clone(), "item", id.as_str())));
        }
        for oracle in &document.oracles {
            let place = format!("oracle `{}`", oracle.id);
            let metrics: Vec<&str> = match &oracle.check {
                OracleCheck::Metric { metric, .. } | OracleCheck::Overlay { metric, .. } => {
                    vec![metric]
                }
                OracleCheck::Peaks { lifetime, window } => vec![lifetime, window],
                _ => Vec::new(),
            };
            uses.extend(metrics.into_iter().map(|id| (place.clone(), "metric", id)));
            uses.extend(oracle.rung.iter().map(|id| (place.clone(), "rung", id.as_str())));
        }
        for rung in &document.rungs {
            let place = format!("rung `{}`", rung.id);
            uses.extend(rung.items.iter().map(|id| (place.clone(), "item", id.as_str())));
        }
        for read in &document.reads {
            uses.push((format!("read `{}`", read.id), "metric", &read.metric));
        }
        for guard in &document.guards {
            let place = format!("guard `{}`", guard.id);
            uses.push((place.clone(), "metric", &guard.metric));
            uses.extend(guard.fails.iter().map(|id| (place.clone(), "read", id.as_str())));
        }
        for rule in &document.rules {
            let items: Vec<&String> = match &rule.action {
                Action::Land(items) => items.iter().map(|landed| &landed.item).collect(),
                Action::Drop(item) => vec![item],
                Action::LandAll | Action::Park => Vec::new(),
            };
            let place = format!("rule `{}`", rule.id);
            uses.extend(items.iter().map(|id| (place.clone(), "item", id.as_str())));
        }
        if let Some(transfer) = &document.transfer {
            let place = "transfer".to_owned();
            uses.extend(transfer.reads.iter().map(|id| (place.clone(), "read", id.as_str())));
        }
        for (place, kind, id) in uses {
            self.or_note(&place, check_known(kind, id, &ids_of(document, kind)), ());
        }
        match document.rungs.first() {
            None => self.note("rungs", "there are none; the first is the base"),
            Some(base) if !base.items.is_empty() => self.note(
                &format!("rung `{}`", base.id),
                "the first rung is the base and carries no items",
            ),
            Some(_) => {}
        }
        let primaries = document.reads.iter().filter(|read| read.role == ReadRole::Primary).count();
        if primaries != 1 {
            self.note("reads", format!("exactly one read must be `primary`, not {primaries}"));
        }
        for (kind, empty) in
            [("metrics", document.metrics.is_empty()), ("rules", document.rules.is_empty())]
        {
            if empty {
                self.note(kind, "there are none");
            }
        }
    }

    /// Every expression yields what its place needs, of names that are known there.
    pub(super) fn check_expressions(&mut self, document: &Document) {
        let mut found = Vec::new();
        let mut check = |place: String, expr: &Expr, at: Place, kind: Kind| {
            // What did not parse has been noted, and stands as `never`.
            if *expr == Expr::Constant(false) {
                return;
            }
            match expr.check(&Scope { document, place: at }) {
                Ok(yields) if yields == kind => {}
                Ok(yields) => {
                    found.push((place, format!("{kind} is needed here, but this is {yields}")))
                }
                Err(problem) => found.push((place, problem)),
            }
        };
        for read in &document.reads {
            check(format!("read `{}`: value", read.id), &read.value, Place::Formula, Kind::Number);
        }
        for guard in &document.guards {
            let place = format!("guard `{}`", guard.id);
            check(format!("{place}: value"), &guard.value, Place::Formula, Kind::Number);
            check(format!("{place}: passes"), &guard.passes, Place::Bound, Kind::Condition);
        }
        for rule in &document.rules {
            let place = format!("rule `{}`: when", rule.id);
            check(place, &rule.when, Place::Condition, Kind::Condition);
            let Action::Land(items) = &rule.action else { continue };
            for landed in items {
                let Some(condition) = &landed.only_if else { continue };
                let place = format!("rule `{}`: item {}", rule.id, landed.item);
                check(place, condition, Place::Condition, Kind::Condition);
            }
        }
        for one in &document.expectations {
            let place = format!("expectation `{}`: holds", one.number);
            check(place, &one.holds, Place::Condition, Kind::Condition);
        }
        if let Some(transfer) = &document.transfer {
            let place = "transfer: expect".to_owned();
            check(place, &transfer.expect, Place::Transfer, Kind::Condition);
        }
        for (place, problem) in found {
            self.note(&place, problem);
        }
    }
}
