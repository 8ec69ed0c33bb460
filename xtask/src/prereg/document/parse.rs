//! Text to a checked document. Every problem is found before any is reported.

use super::raw::{
    RawDocument, RawExpectation, RawGuard, RawItem, RawMetric, RawOracle, RawProtocol, RawRead,
    RawRule, RawRung, RawTransfer, RawWaiver,
};
use super::signature::check_known;
use super::{
    Action, Confidence, Document, Expectation, Guard, Item, Metric, NullRung, OnDrop, Oracle,
    OracleCheck, Order, Protocol, Read, Role, Rule, Rung, Source, Statistic, Transfer, Waiver,
};
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
///
/// Names the file and every problem in it: a key that is unknown, a value that does not parse, a
/// name that nothing has.
pub(crate) fn parse_document(display_path: &str, text: &str) -> anyhow::Result<Document> {
    let raw: RawDocument = parse_toml(display_path, text)?;
    let mut problems = Problems::default();
    let document = problems.document(raw);
    if problems.found.is_empty() {
        return Ok(document);
    }
    let list: Vec<String> = problems.found.iter().map(|problem| format!("\n  {problem}")).collect();
    Err(anyhow::anyhow!("`{display_path}` has {} problem(s):{}", list.len(), list.concat()))
        .hint("`cargo xtask prereg new NAME` writes a commented example of every part")
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
            metrics: raw.metrics.into_iter().map(|raw| self.metric(raw, &protocol)).collect(),
            protocol,
            oracles: raw.oracles.into_iter().map(|raw| self.oracle(raw)).collect(),
            items: raw.items.into_iter().map(item).collect(),
            rungs: raw.rungs.into_iter().map(|raw| self.rung(raw)).collect(),
            reads: raw.reads.into_iter().map(|raw| self.read(raw)).collect(),
            guards: raw.guards.into_iter().map(|raw| self.guard(raw)).collect(),
            rules: raw.rules.into_iter().map(|raw| self.rule(raw)).collect(),
            expectations: raw.expectations.into_iter().map(|raw| self.expectation(raw)).collect(),
            transfer: raw.transfer.map(|raw| self.transfer(raw)),
            waivers: raw.waivers.into_iter().map(|raw| self.waiver(raw)).collect(),
        };
        if document.question.trim().is_empty() {
            self.note("question", "it is empty");
        }
        self.check_ids(&document);
        self.check_references(&document);
        self.check_expressions(&document);
        document
    }

    fn protocol(&mut self, raw: RawProtocol) -> Protocol {
        let place = "protocol";
        let statistic = raw.statistic.as_deref().unwrap_or("median");
        let statistic = self.or_note(
            &format!("{place}.statistic"),
            parse_statistic(statistic),
            Statistic::Median,
        );
        let order = match raw.order.as_str() {
            "sequential" => Order::Sequential,
            "interleaved" => Order::Interleaved,
            other => {
                let known = ["sequential", "interleaved"].map(str::to_owned);
                self.or_note(&format!("{place}.order"), check_known("order", other, &known), ());
                Order::Interleaved
            }
        };
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
        let quiet = match raw.quiet.as_deref() {
            // What runs elsewhere is not disturbed by what runs here.
            None if raw.cost_field.is_some() => QuietRule::Noted,
            None | Some("required") => QuietRule::Required,
            Some("noted") => QuietRule::Noted,
            Some(other) => {
                self.note(place, format!("`quiet` is `required` or `noted`, not `{other}`"));
                QuietRule::Required
            }
        };
        if raw.steps == 0 || raw.repeats == 0 {
            self.note(place, "`steps` and `repeats` are at least 1");
        }
        if raw.discard_steps >= raw.steps.max(1) {
            self.note(
                place,
                format!(
                    "`discard_steps = {}` leaves nothing of {} steps",
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
                self.note(place, format!("`{name}` is a number above 0"));
            }
        }
        Protocol {
            runner: raw.runner,
            model: raw.model,
            prompt_tokens: raw.prompt_tokens,
            steps: raw.steps,
            discard_steps: raw.discard_steps,
            statistic,
            warmup_tokens: raw.warmup_tokens.unwrap_or(DEFAULT_WARMUP_TOKENS),
            repeats: raw.repeats,
            order,
            seed: raw.seed,
            threads: raw.threads,
            ceiling_min: raw.ceiling_min,
            launch_estimate_min: raw.launch_estimate_min,
            timeout_s,
            cost_field: raw.cost_field,
            quiet,
            max_other_load,
            null_rung: raw.refuse_null_rung.map_or(NullRung::Added, NullRung::Refused),
            noise_floor,
            env: raw.env,
            args: raw.args,
        }
    }

    fn metric(&mut self, raw: RawMetric, protocol: &Protocol) -> Metric {
        let place = format!("metric `{}`", raw.id);
        let source = match raw.from.as_str() {
            "report" => Source::Report,
            "log" => Source::Log,
            other => {
                self.note(&place, format!("`from` is `report` or `log`, not `{other}`"));
                Source::Report
            }
        };
        let statistic = match raw.statistic {
            Some(text) => self.or_note(&place, parse_statistic(&text), protocol.statistic),
            None => protocol.statistic,
        };
        Metric { id: raw.id, source, field: raw.field, unit: raw.unit, statistic }
    }

    fn oracle(&mut self, raw: RawOracle) -> Oracle {
        let place = format!("oracle `{}`", raw.id);
        let check = self.or_note(&place, oracle_check(&raw), OracleCheck::TokensEqual);
        Oracle {
            id: raw.id,
            check,
            rung: raw.rung,
            steps: raw.steps,
            prompt_tokens: raw.prompt_tokens,
            args: raw.args,
        }
    }

    fn rung(&mut self, raw: RawRung) -> Rung {
        let on_drop = match raw.on_drop.as_deref() {
            None | Some("recompose") => OnDrop::Recompose,
            Some("measure") => OnDrop::Measure,
            Some(other) => {
                self.note(
                    &format!("rung `{}`", raw.id),
                    format!("`on_drop` is `recompose` or `measure`, not `{other}`"),
                );
                OnDrop::Recompose
            }
        };
        Rung { id: raw.id, items: raw.items, on_drop }
    }

    fn read(&mut self, raw: RawRead) -> Read {
        let place = format!("read `{}`", raw.id);
        let role = match raw.role.as_str() {
            "primary" => Role::Primary,
            "secondary" => Role::Secondary,
            other => {
                self.note(&place, format!("`role` is `primary` or `secondary`, not `{other}`"));
                Role::Secondary
            }
        };
        let value = self.expr(&format!("{place}: value"), &raw.value);
        Read { id: raw.id, role, metric: raw.metric, value }
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
            ("land", []) => Err("`land` names its `items`; to land nothing, `park`".to_owned()),
            ("land", items) => Ok(Action::Land(items.to_vec())),
            ("drop", [item]) => Ok(Action::Drop(item.clone())),
            ("drop", _) => Err("`drop` names one item in `items`".to_owned()),
            (other, _) => {
                let known = ["land-all", "land", "park", "drop"].map(str::to_owned);
                check_known("action", other, &known).map(|()| Action::Park)
            }
        };
        let action = self.or_note(&place, action, Action::Park);
        let when = self.expr(&format!("{place}: when"), &raw.when);
        Rule { id: raw.id, when, action, text: raw.text }
    }

    fn expectation(&mut self, raw: RawExpectation) -> Expectation {
        let place = format!("expectation `{}`", raw.number);
        let confidence = Confidence::ALL
            .into_iter()
            .find(|confidence| confidence.to_string() == raw.confidence)
            .ok_or_else(|| {
                let known: Vec<String> = Confidence::ALL.iter().map(ToString::to_string).collect();
                format!("`confidence` is one of {}, not `{}`", known.join(", "), raw.confidence)
            });
        let confidence = self.or_note(&place, confidence, Confidence::Low);
        let holds = self.expr(&format!("{place}: holds"), &raw.holds);
        Expectation { number: raw.number, text: raw.text, confidence, holds }
    }

    fn transfer(&mut self, raw: RawTransfer) -> Transfer {
        Transfer {
            expect: self.expr("transfer: expect", &raw.expect),
            reads: raw.reads,
            repeats: raw.repeats.unwrap_or(1).max(1),
            text: raw.text,
        }
    }

    fn waiver(&mut self, raw: RawWaiver) -> Waiver {
        if raw.why.trim().is_empty() {
            self.note(&format!("waiver `{}`", raw.finding), "`why` is empty");
        }
        Waiver { finding: raw.finding, why: raw.why }
    }

    fn expr(&mut self, place: &str, text: &str) -> Expr {
        self.or_note(place, parse_condition(text), Expr::Constant(false))
    }
}

fn item(raw: RawItem) -> Item {
    Item {
        id: raw.id,
        title: raw.title,
        env: raw.env,
        args: raw.args,
        features: raw.features,
        rev: raw.rev,
        needs: raw.needs,
        oracles: raw.oracles,
        lands_unmeasured: raw.lands_unmeasured,
    }
}

fn parse_statistic(text: &str) -> Result<Statistic, String> {
    let all = [Statistic::Median, Statistic::Mean, Statistic::Min, Statistic::Max, Statistic::Last];
    let known: Vec<String> = all.iter().map(ToString::to_string).collect();
    check_known("statistic", text, &known)?;
    Ok(all.into_iter().find(|one| one.to_string() == text).unwrap_or(Statistic::Median))
}
