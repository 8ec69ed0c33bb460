//! What is wrong with a document that reads well: rules that cannot fire, outcomes that none covers,
//! guards without a metric, actions without a rung.
//!
//! It owns the findings; `outcomes` plays the logic of the rules through.

use std::collections::BTreeSet;
use std::fmt;

use super::document::{Action, Document};
use super::judge::reads_of;
use crate::stats::expr::Expr;

mod decision;
mod outcomes;
mod parts;

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
    linter.check_bars();
    linter.check_intervals();
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
            linter.warning("idle-waiver", &waiver.finding, "there is no such finding to waive");
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
        let items = self.document.rules.iter().flat_map(|rule| match &rule.action {
            Action::Land(items) => items.as_slice(),
            _ => &[],
        });
        let rules = rules.chain(items.filter_map(|landed| landed.only_if.as_ref()));
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
        self.document.rules.iter().any(|rule| reads_of(&rule.when).contains(&name))
    }
}

#[cfg(test)]
mod tests;
