//! Text to a checked document. Every problem is found before any is reported.

use super::raw::{
    RawDocument, RawExpectation, RawGuard, RawMetric, RawOracle, RawProtocol, RawRead, RawRule,
    RawTransfer,
};
use super::signature::check_known;
use super::{
    Action, Document, Expectation, Guard, Landed, Metric, NullRung, Oracle, OracleCheck, Protocol,
    Read, Rule, Statistic, Transfer,
};
use crate::base::count::render_count;
use crate::base::definition::parse_toml;
use crate::base::diagnostic::HintExt as _;
use crate::cell::quiet::QuietRule;
use crate::stats::expr::{Expr, parse_condition, parse_number};

use oracle::{not_negative, oracle_check};

mod check;
mod oracle;

const DEFAULT_TIMEOUT_S: f64 = 3600.0;

const DEFAULT_WARMUP_TOKENS: u64 = 4;

const DEFAULT_MAX_OTHER_LOAD: f64 = 0.10;

/// Parses and checks a document.
///
/// # Errors
/// Names the file, and the line of a key or word that is unknown; else every problem at once: a value
/// that does not parse, a name that nothing has.
pub(crate) fn parse_document(display_path: &str, text: &str) -> anyhow::Result<Document> {
    let raw: RawDocument = parse_toml(display_path, text)?;
    let mut problems = Problems::default();
    let document = problems.document(raw);
    if problems.found.is_empty() {
        return Ok(document);
    }
    let list: Vec<String> = problems.found.iter().map(|problem| format!("\n  {problem}")).collect();
    let count = render_count(list.len(), "problem");
    Err(anyhow::anyhow!("`{display_path}` has {count}:{}", list.concat()))
        .hint("`cargo xtask prereg new NAME` writes a document that explains every key")
}

/// Collects problems while reading goes on, with stand-ins for what could not be read.
#[derive(Debug, Default)]
struct Problems {
    found: Vec<String>,
}

impl Problems {
    fn note(&mut self, place: &str, problem: impl std::fmt::Display) {
        self.found.push(format!("{place}: {problem}"));
    }

    fn or_note<T>(&mut self, place: &str, result: Result<T, String>, stand_in: T) -> T {
        result.unwrap_or_else(|problem| {
            self.note(place, problem);
            stand_in
        })
    }

    fn document(&mut self, raw: RawDocument) -> Document {
        let protocol = self.protocol(raw.protocol);
        let document = Document {
            question: raw.question,
            background: raw.background,
            metrics: raw.metrics.into_iter().map(|raw| metric(raw, &protocol)).collect(),
            protocol,
            oracles: raw.oracles.into_iter().map(|raw| self.oracle(raw)).collect(),
            items: raw.items,
            rungs: raw.rungs,
            reads: raw.reads.into_iter().map(|raw| self.read(raw)).collect(),
            guards: raw.guards.into_iter().map(|raw| self.guard(raw)).collect(),
            rules: raw.rules.into_iter().map(|raw| self.rule(raw)).collect(),
            expectations: raw.expectations.into_iter().map(|raw| self.expectation(raw)).collect(),
            transfer: raw.transfer.map(|raw| self.transfer(raw)),
            waivers: raw.waivers,
        };
        if document.question.trim().is_empty() {
            self.note("question", "must not be empty");
        }
        let discarded = document.protocol.discard_steps;
        let steps = document.transfer.as_ref().and_then(|transfer| transfer.steps);
        if steps.is_some_and(|steps| steps <= discarded) {
            let text = format!("`discard_steps = {discarded}` leaves none of its `steps`");
            self.note("transfer", text);
        }
        for waiver in document.waivers.iter().filter(|waiver| waiver.why.trim().is_empty()) {
            self.note(&format!("waiver `{}`", waiver.finding), "`why` must not be empty");
        }
        self.check_ids(&document);
        self.check_references(&document);
        self.check_expressions(&document);
        document
    }

    fn protocol(&mut self, raw: RawProtocol) -> Protocol {
        let place = "protocol";
        let noise_floor = raw
            .noise_floor
            .map(|text| self.or_note(&format!("{place}.noise_floor"), parse_number(&text), 0.0));
        let max_other_load = match &raw.max_other_load {
            Some(text) => self.or_note(
                &format!("{place}.max_other_load"),
                not_negative(text),
                DEFAULT_MAX_OTHER_LOAD,
            ),
            None => DEFAULT_MAX_OTHER_LOAD,
        };
        // What runs elsewhere is not disturbed by what runs here.
        let default_quiet =
            if raw.cost_field.is_some() { QuietRule::Noted } else { QuietRule::Required };
        if raw.model.is_some() && raw.prompt_tokens.is_none() {
            self.note(place, "`prompt_tokens` is missing: how long the model's prompt is");
        }
        if raw.steps == 0 || raw.repeats == 0 {
            self.note(place, "`steps` and `repeats` must be at least 1");
        }
        if raw.discard_steps >= raw.steps.max(1) {
            self.note(
                place,
                format!(
                    "`discard_steps = {}` leaves none of the {} steps",
                    raw.discard_steps, raw.steps
                ),
            );
        }
        let timeout_s = raw.timeout_s.unwrap_or(DEFAULT_TIMEOUT_S);
        for (name, value) in [
            ("ceiling_min", Some(raw.ceiling_min)),
            ("timeout_s", Some(timeout_s)),
            ("launch_estimate_min", raw.launch_estimate_min),
        ] {
            if value.is_some_and(|value| !(value.is_finite() && value > 0.0)) {
                self.note(place, format!("`{name}` must be a number above 0"));
            }
        }
        Protocol {
            runner: raw.runner,
            model: raw.model,
            prompt_tokens: raw.prompt_tokens.unwrap_or(0),
            steps: raw.steps,
            discard_steps: raw.discard_steps,
            statistic: raw.statistic.unwrap_or(Statistic::Median),
            warmup_tokens: raw.warmup_tokens.unwrap_or(DEFAULT_WARMUP_TOKENS),
            repeats: raw.repeats,
            order: raw.order,
            seed: raw.seed,
            threads: raw.threads,
            ceiling_min: raw.ceiling_min,
            launch_estimate_min: raw.launch_estimate_min,
            timeout_s,
            cost_field: raw.cost_field,
            quiet: raw.quiet.unwrap_or(default_quiet),
            max_other_load,
            null_rung: raw.refuse_null_rung.map_or(NullRung::Added, NullRung::Refused),
            noise_floor,
            env: raw.env,
            args: raw.args,
        }
    }

    fn oracle(&mut self, raw: RawOracle) -> Oracle {
        let place = format!("oracle `{}`", raw.id);
        let check = self.or_note(&place, oracle_check(&raw), OracleCheck::TokensEqual);
        if raw.estimate_min.is_some_and(|value| !(value.is_finite() && value >= 0.0)) {
            self.note(&place, "`estimate_min` must be a number of minutes");
        }
        Oracle {
            id: raw.id,
            check,
            rung: raw.rung,
            steps: raw.steps,
            prompt_tokens: raw.prompt_tokens,
            estimate_min: raw.estimate_min,
            args: raw.args,
        }
    }

    fn read(&mut self, raw: RawRead) -> Read {
        let value = self.expr(&format!("read `{}`: value", raw.id), &raw.value);
        Read { id: raw.id, role: raw.role, metric: raw.metric, value }
    }

    fn guard(&mut self, raw: RawGuard) -> Guard {
        let place = format!("guard `{}`", raw.id);
        Guard {
            value: self.expr(&format!("{place}: value"), &raw.value),
            passes: self.expr(&format!("{place}: passes"), &raw.passes),
            id: raw.id,
            metric: raw.metric,
            fails: raw.fails,
        }
    }

    fn rule(&mut self, raw: RawRule) -> Rule {
        let place = format!("rule `{}`", raw.id);
        let action = match (raw.then.as_str(), raw.items.as_slice()) {
            ("land-all", []) => Ok(Action::LandAll),
            ("park", []) => Ok(Action::Park),
            ("land-all" | "park", _) => Err(format!("`{}` takes no `items`", raw.then)),
            ("land", []) => Err("`land` needs `items`; use `park` to land nothing".to_owned()),
            ("land", items) => {
                Ok(Action::Land(items.iter().map(|text| self.landed(&place, text)).collect()))
            }
            ("drop", [item]) => Ok(Action::Drop(item.clone())),
            ("drop", _) => Err("`drop` needs exactly one item in `items`".to_owned()),
            (other, _) => {
                let known = ["land-all", "land", "park", "drop"].map(str::to_owned);
                check_known("action", other, &known).map(|()| Action::Park)
            }
        };
        let action = self.or_note(&place, action, Action::Park);
        let when = self.expr(&format!("{place}: when"), &raw.when);
        Rule { id: raw.id, when, action, text: raw.text }
    }

    /// `P4`, or `P3b if guard(vram)`.
    fn landed(&mut self, place: &str, text: &str) -> Landed {
        let (item, condition) = match text.split_once(" if ") {
            Some((item, condition)) => (item, Some(condition)),
            None => (text, None),
        };
        let item = item.trim().to_owned();
        let only_if = condition.map(|text| self.expr(&format!("{place}: item {item}"), text));
        Landed { item, only_if }
    }

    fn expectation(&mut self, raw: RawExpectation) -> Expectation {
        let holds = self.expr(&format!("expectation `{}`: holds", raw.number), &raw.holds);
        Expectation { number: raw.number, text: raw.text, confidence: raw.confidence, holds }
    }

    fn transfer(&mut self, raw: RawTransfer) -> Transfer {
        Transfer {
            expect: self.expr("transfer: expect", &raw.expect),
            reads: raw.reads,
            repeats: raw.repeats.unwrap_or(1).max(1),
            steps: raw.steps,
            text: raw.text,
        }
    }

    fn expr(&mut self, place: &str, text: &str) -> Expr {
        self.or_note(place, parse_condition(text), Expr::Constant(false))
    }
}

fn metric(raw: RawMetric, protocol: &Protocol) -> Metric {
    Metric {
        id: raw.id,
        source: raw.from,
        field: raw.field,
        unit: raw.unit,
        statistic: raw.statistic.unwrap_or(protocol.statistic),
        optional: raw.optional,
    }
}

#[cfg(test)]
mod tests;
