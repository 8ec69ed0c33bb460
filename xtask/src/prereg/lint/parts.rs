//! Parts that nothing uses, that lack something, or that contradict each other.

use super::{Linter, Reports};
use crate::prereg::compose::with_needs;
use crate::prereg::document::signature::check_known;
use crate::prereg::document::{Guard, OracleCheck, ReadRole, Source, rungs_in};
use crate::prereg::metric::report_fields;
use crate::stats::expr::Expr;

impl Linter<'_> {
    pub(super) fn check_uses(&mut self) {
        let document = self.document;
        let formulas: Vec<&Expr> = (document.reads.iter().map(|read| &read.value))
            .chain(document.guards.iter().map(|guard| &guard.value))
            .collect();
        for rung in &document.rungs {
            let used = formulas.iter().any(|formula| rungs_in(formula).contains(&rung.id.as_str()))
                || self.is_called(&["unstable", "crashed", "nan", "value"], &rung.id);
            if !used {
                self.error(
                    "unused-rung",
                    &rung.id,
                    "no read, guard, rule or expectation uses this rung, so it would be measured \
                     for nothing",
                );
            }
        }
        for item in &document.items {
            if !document.rungs.iter().any(|rung| rung.items.contains(&item.id)) {
                self.error("unused-item", &item.id, "no rung carries this item");
            }
            if item.oracles.is_empty() {
                self.warning(
                    "item-without-oracle",
                    &item.id,
                    "no oracle shows that this item does the same work as the base",
                );
            }
        }
        for guard in &document.guards {
            if guard.fails.is_empty() && !self.is_called(&["guard"], &guard.id) {
                self.error(
                    "unused-guard",
                    &guard.id,
                    "it fails no read and no rule asks for it, so it can never matter",
                );
            }
        }
        for read in &document.reads {
            let binds = self.is_read_by_rules(&read.id);
            if read.role == ReadRole::Primary && !binds {
                self.error("primary-decides-nothing", &read.id, "no rule uses the primary read");
            }
        }
    }

    pub(super) fn check_metrics(&mut self) {
        let document = self.document;
        let known = report_fields();
        for metric in &document.metrics {
            let guards: Vec<&str> = (document.guards.iter())
                .filter(|guard| metrics_in(guard).contains(&metric.id.as_str()))
                .map(|guard| guard.id.as_str())
                .collect();
            let problem = match (metric.source, self.surroundings.reports) {
                (Source::Report, Reports::None) => {
                    Some(format!("runner `{}` writes no cell report", document.protocol.runner))
                }
                (Source::Report, Reports::Written) if !known.contains(&metric.field) => {
                    let list: Vec<String> = known.iter().cloned().collect();
                    check_known("field", &metric.field, &list).err()
                }
                _ => None,
            };
            if let Some(problem) = problem {
                for guard in &guards {
                    self.error(
                        "guard-without-metric",
                        guard,
                        format!("its metric `{}` is not in the reports: {problem}", metric.id),
                    );
                }
                if guards.is_empty() {
                    self.error("metric-without-field", &metric.id, problem);
                }
            }
        }
    }

    pub(super) fn check_oracles(&mut self) {
        let document = self.document;
        for oracle in &document.oracles {
            let unbound = matches!(
                oracle.check,
                OracleCheck::Metric { bound: None, .. }
                    | OracleCheck::Overlay { band: None, .. }
                    | OracleCheck::Command { exit: None, .. }
            );
            if unbound {
                self.error(
                    "oracle-without-bound",
                    &oracle.id,
                    "without a bound it can neither pass nor fail: give `bound`, or `exit` for a \
                     command",
                );
            }
            let items: Vec<&str> = (document.items.iter())
                .filter(|item| item.oracles.contains(&oracle.id))
                .map(|item| item.id.as_str())
                .collect();
            match (&oracle.rung, items.is_empty()) {
                (None, true) => self.error(
                    "unused-oracle",
                    &oracle.id,
                    "no item lists it under `oracles`, and it has no `rung`",
                ),
                (Some(_), false) => self.error(
                    "oracle-of-two",
                    &oracle.id,
                    format!("it belongs to a rung and to {}: use two oracles", items.join(", ")),
                ),
                (Some(_), true) if !self.is_called(&["oracle"], &oracle.id) => self.warning(
                    "idle-oracle",
                    &oracle.id,
                    "it drops no item, and no rule or expectation asks for it",
                ),
                _ => {}
            }
        }
    }

    pub(super) fn check_rungs(&mut self) {
        let document = self.document;
        for rung in &document.rungs {
            for item in rung.items.iter().filter_map(|id| document.item(id)) {
                if let Some(need) = item.needs.iter().find(|need| !rung.items.contains(need)) {
                    self.error(
                        "rung-without-need",
                        &rung.id,
                        format!("it carries {0} without {need}, which {0} needs", item.id),
                    );
                }
            }
            for (at, item) in rung.items.iter().enumerate() {
                if rung.items[..at].contains(item) {
                    self.error("item-twice", &rung.id, format!("it carries {item} twice"));
                }
            }
            let items: Vec<_> = rung.items.iter().filter_map(|id| document.item(id)).collect();
            for (at, a) in items.iter().enumerate() {
                for b in &items[at + 1..] {
                    let related = with_needs(document, std::slice::from_ref(&b.id)).contains(&a.id)
                        || with_needs(document, std::slice::from_ref(&a.id)).contains(&b.id);
                    let clash = a.env.iter().find(|(name, value)| {
                        b.env.get(*name).is_some_and(|other| other != *value)
                    });
                    if let (false, Some((name, _))) = (related, clash) {
                        self.error(
                            "items-clash",
                            &rung.id,
                            format!("{} and {} set `{name}` to different values", a.id, b.id),
                        );
                    }
                }
            }
        }
        for item in &document.items {
            if with_needs(document, &item.needs).contains(&item.id) {
                self.error("needs-itself", &item.id, "it needs itself through its `needs`");
            }
        }
    }
}

/// The metrics that a guard speaks of: its own where a rung stands for itself, and those of `value`.
fn metrics_in(guard: &Guard) -> Vec<&str> {
    let mut metrics = Vec::new();
    guard.value.walk(&mut |expr| match expr {
        Expr::Name(_) => metrics.push(guard.metric.as_str()),
        Expr::Call(function, args) if function == "value" => metrics.push(&args[0]),
        _ => {}
    });
    metrics
}
