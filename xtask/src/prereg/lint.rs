//! What is wrong with a document that reads well: rules that cannot fire, outcomes that none covers,
//! guards without a metric, actions without a rung.
//!
//! It owns the findings. It changes nothing and measures nothing; the logic of the rules is played
//! through in `outcomes`.

use std::collections::BTreeSet;
use std::fmt;

use super::compose::with_needs;
use super::document::{Action, Document, NullRung, OnDrop, OracleCheck, Role, Source};
use super::judge::percent;
use super::metric::report_fields;
use super::plan::count_launches;
use crate::stats::expr::Expr;

mod outcomes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// What kind of finding: a word that a waiver names.
    pub(crate) code: &'static str,
    pub(crate) subject: String,
    pub(crate) severity: Severity,
    pub(crate) text: String,
    pub(crate) waived: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// The ladder cannot be frozen with it.
    Error,
    /// It can, and the author should know.
    Warning,
}

impl Finding {
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.code, self.subject)
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.severity == Severity::Error && self.waived.is_none()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grade = match (&self.waived, self.severity) {
            (Some(_), _) => "waived",
            (None, Severity::Error) => "error",
            (None, Severity::Warning) => "warning",
        };
        write!(f, "{grade}[{}]: {}", self.name(), self.text)?;
        if let Some(why) = &self.waived {
            write!(f, " (waived: {why})")?;
        }
        Ok(())
    }
}

/// What is known beyond the document.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Surroundings {
    pub(crate) reports: Reports,
    /// The noise of an earlier run, as a fraction.
    pub(crate) measured_noise: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reports {
    #[default]
    Written,
    /// Its numbers are read from its output.
    None,
}

/// Finds everything, the gravest first, each kind in the document's order.
pub(crate) fn check_document(document: &Document, surroundings: Surroundings) -> Vec<Finding> {
    let mut linter = Linter { document, surroundings, findings: Vec::new() };
    linter.check_uses();
    linter.check_metrics();
    linter.check_oracles();
    linter.check_rungs();
    linter.check_actions();
    linter.check_noise();
    linter.check_cost();
    outcomes::check_outcomes(&mut linter);
    for finding in &mut linter.findings {
        let waiver = document.waivers.iter().find(|waiver| waiver.finding == finding.name());
        finding.waived = waiver.map(|waiver| waiver.why.clone());
    }
    let found: BTreeSet<String> = linter.findings.iter().map(Finding::name).collect();
    for waiver in &document.waivers {
        if !found.contains(&waiver.finding) {
            linter.warning(
                "idle-waiver",
                &waiver.finding,
                "nothing of this name was found, so there is nothing to waive",
            );
        }
    }
    linter.findings.sort_by_key(|finding| finding.severity);
    linter.findings
}

struct Linter<'a> {
    document: &'a Document,
    surroundings: Surroundings,
    findings: Vec<Finding>,
}

impl Linter<'_> {
    fn error(&mut self, code: &'static str, subject: &str, text: impl Into<String>) {
        self.push(code, subject, Severity::Error, text.into());
    }

    fn warning(&mut self, code: &'static str, subject: &str, text: impl Into<String>) {
        self.push(code, subject, Severity::Warning, text.into());
    }

    fn push(&mut self, code: &'static str, subject: &str, severity: Severity, text: String) {
        let subject = subject.to_owned();
        self.findings.push(Finding { code, subject, severity, text, waived: None });
    }

    fn conditions(&self) -> Vec<&Expr> {
        let rules = self.document.rules.iter().map(|rule| &rule.when);
        rules.chain(self.document.expectations.iter().map(|one| &one.holds)).collect()
    }

    fn is_called(&self, function: &[&str], arg: &str) -> bool {
        let mut found = false;
        for condition in self.conditions() {
            condition.walk(&mut |expr| {
                if let Expr::Call(name, args) = expr {
                    found |= function.contains(&name.as_str()) && args.iter().any(|one| one == arg);
                }
            });
        }
        found
    }

    fn is_read_by_rules(&self, name: &str) -> bool {
        self.document.rules.iter().any(|rule| rule.when.names().contains(&name))
    }

    fn check_uses(&mut self) {
        let document = self.document;
        let formulas: Vec<&Expr> = (document.reads.iter().map(|read| &read.value))
            .chain(document.guards.iter().map(|guard| &guard.value))
            .collect();
        for rung in &document.rungs {
            let used = formulas.iter().any(|formula| formula.names().contains(&rung.id.as_str()))
                || self.is_called(&["unstable", "crashed", "nan", "value"], &rung.id);
            if !used {
                self.error(
                    "unused-rung",
                    &rung.id,
                    "no read, guard, rule or expectation speaks of this rung: it would be measured \
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
                    "nothing proves that this item does the same work as the base",
                );
            }
        }
        for guard in &document.guards {
            if guard.fails.is_empty() && !self.is_called(&["guard"], &guard.id) {
                self.error(
                    "unused-guard",
                    &guard.id,
                    "it fails no read and no rule asks for it: it can never bind",
                );
            }
        }
        for read in &document.reads {
            let binds = self.is_read_by_rules(&read.id);
            if read.role == Role::Primary && !binds {
                self.error(
                    "primary-decides-nothing",
                    &read.id,
                    "no rule speaks of the primary read",
                );
            }
        }
    }

    fn check_metrics(&mut self) {
        let document = self.document;
        let known = report_fields();
        for metric in &document.metrics {
            let guards: Vec<&str> = (document.guards.iter())
                .filter(|guard| guard.metric == metric.id)
                .map(|guard| guard.id.as_str())
                .collect();
            let problem = match (metric.source, self.surroundings.reports) {
                (Source::Report, Reports::None) => {
                    Some(format!("runner `{}` writes no cell report", document.protocol.runner))
                }
                (Source::Report, Reports::Written) if !known.contains(&metric.field) => {
                    let list: Vec<String> = known.iter().cloned().collect();
                    super::document::signature::check_known("field", &metric.field, &list).err()
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

    fn check_oracles(&mut self) {
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
                    "no item must pass it, and it names no `rung`",
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

    fn check_rungs(&mut self) {
        let document = self.document;
        for rung in &document.rungs {
            for item in rung.items.iter().filter_map(|id| document.item(id)) {
                if let Some(need) = item.needs.iter().find(|need| !rung.items.contains(need)) {
                    self.error(
                        "rung-without-need",
                        &rung.id,
                        format!("it carries {} without {need}, which that needs", item.id),
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
                self.error("needs-itself", &item.id, "it needs itself, by way of its needs");
            }
        }
    }

    fn check_actions(&mut self) {
        let document = self.document;
        let measured = |ids: &BTreeSet<&str>| -> BTreeSet<String> {
            ids.iter()
                .filter(|id| document.item(id).is_some_and(|item| item.lands_unmeasured.is_none()))
                .map(|id| (*id).to_owned())
                .collect()
        };
        for rule in &document.rules {
            let landed: BTreeSet<&str> = match &rule.action {
                Action::LandAll => document.items.iter().map(|item| item.id.as_str()).collect(),
                Action::Land(items) => items.iter().map(String::as_str).collect(),
                Action::Park => continue,
                Action::Drop(item) => {
                    let left_over = document.rungs.iter().any(|rung| {
                        rung.on_drop == OnDrop::Recompose
                            && rung.items.contains(item)
                            && rung.items.len() > 1
                    });
                    if !left_over {
                        self.error(
                            "no-rung",
                            &rule.id,
                            format!("without {item} no rung is left to measure again"),
                        );
                    }
                    continue;
                }
            };
            let wanted = measured(&landed);
            let has_rung = document.rungs.iter().any(|rung| {
                let carried: BTreeSet<&str> = rung.items.iter().map(String::as_str).collect();
                rung.on_drop == OnDrop::Recompose && measured(&carried) == wanted
            });
            if !wanted.is_empty() && !has_rung {
                let list: Vec<&str> = wanted.iter().map(String::as_str).collect();
                self.error(
                    "no-rung",
                    &rule.id,
                    format!(
                        "it lands {} together, which no rung measures; add the rung, or say in \
                         `lands_unmeasured` why an item may land without one",
                        list.join(" + ")
                    ),
                );
            }
        }
    }

    fn check_noise(&mut self) {
        let document = self.document;
        let floor = match (document.protocol.noise_floor, self.surroundings.measured_noise) {
            (Some(a), Some(b)) => a.max(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return,
        };
        let primary = document.reads.iter().find(|read| read.role == Role::Primary);
        for rule in &document.rules {
            for clause in rule.when.clauses() {
                let Some((name, threshold)) = outcomes::threshold(clause) else { continue };
                let same_metric = match (document.read(name), primary) {
                    (Some(read), Some(primary)) => read.metric == primary.metric,
                    _ => false,
                };
                if same_metric && threshold.abs() < floor {
                    self.error(
                        "threshold-below-noise",
                        &rule.id,
                        format!(
                            "`{clause}` asks for less than the noise floor of {}: chance would \
                             decide",
                            percent(floor)
                        ),
                    );
                }
            }
        }
        if let Some(measured) = self.surroundings.measured_noise
            && document.protocol.noise_floor.is_some_and(|floor| floor < measured)
        {
            self.warning(
                "noise-floor-too-low",
                "protocol",
                format!("an earlier run measured {}", percent(measured)),
            );
        }
    }

    fn check_cost(&mut self) {
        let protocol = &self.document.protocol;
        let launches = count_launches(self.document);
        match protocol.launch_estimate_min {
            None => self.warning(
                "no-estimate",
                "protocol",
                format!(
                    "{launches} launches and no `launch_estimate_min`: whether they fit the ceiling \
                     of {} min, loading included, is not known",
                    protocol.ceiling_min
                ),
            ),
            Some(each) if each * launches as f64 > protocol.ceiling_min => self.error(
                "over-ceiling",
                "protocol",
                format!(
                    "{launches} launches of {each} min are {:.1} min, over the ceiling of {} min",
                    each * launches as f64,
                    protocol.ceiling_min
                ),
            ),
            Some(_) => {}
        }
        if protocol.repeats < 2 {
            self.warning(
                "one-repeat",
                "protocol",
                "one launch of each rung shows no spread between launches",
            );
        }
        if let NullRung::Refused(why) = &protocol.null_rung {
            let text = format!("without the base again the noise stays unknown ({why})");
            self.warning("no-null-rung", "protocol", text);
        }
    }
}

#[cfg(test)]
mod tests;
