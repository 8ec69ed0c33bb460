//! Text to a checked document. Every problem is found before any is reported.

use std::collections::BTreeSet;

use super::super::expr::{Expr, Kind, parse_condition, parse_number};
use super::raw::{
    RawDocument, RawExpectation, RawGuard, RawItem, RawMetric, RawOracle, RawProtocol, RawRead,
    RawRule, RawRung, RawTransfer, RawWaiver,
};
use super::signature::{NUMBERS, Place, Scope, check_known};
use super::{
    Action, Bound, Confidence, Difference, Document, Expectation, Guard, Item, Metric, NullRung,
    OnDrop, Oracle, OracleCheck, Order, Protocol, Read, Role, Rule, Rung, Source, Statistic,
    Transfer, Waiver,
};
use crate::ab::quiet::QuietRule;
use crate::config::parse_toml;
use crate::diagnostic::HintExt as _;

/// How long a launch may take where the document does not say, in seconds.
const DEFAULT_TIMEOUT_S: f64 = 3600.0;

/// Decode tokens of the discarded pass where the document does not say.
const DEFAULT_WARMUP_TOKENS: u64 = 4;

/// How much of all processors others may take where the document does not say.
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

    /// Names are unique within their kind, and expressions can spell them.
    fn check_ids(&mut self, document: &Document) {
        let kinds: [(&str, Vec<&str>); 6] = [
            ("metric", document.metrics.iter().map(|one| one.id.as_str()).collect()),
            ("oracle", document.oracles.iter().map(|one| one.id.as_str()).collect()),
            ("item", document.items.iter().map(|one| one.id.as_str()).collect()),
            ("rung", document.rungs.iter().map(|one| one.id.as_str()).collect()),
            ("rule", document.rules.iter().map(|one| one.id.as_str()).collect()),
            (
                "read or guard",
                (document.reads.iter().map(|one| one.id.as_str()))
                    .chain(document.guards.iter().map(|one| one.id.as_str()))
                    .collect(),
            ),
        ];
        for (kind, ids) in kinds {
            let mut seen = BTreeSet::new();
            for id in ids {
                let plain = id.starts_with(|c: char| c.is_ascii_alphabetic())
                    && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                let reserved = ["and", "or", "not", "always", "never", "value", "null"];
                if !plain || reserved.contains(&id) || NUMBERS.contains(&id) {
                    self.note(
                        &format!("{kind} `{id}`"),
                        "a name is letters, digits and `_`, begins with a letter, and is no word of \
                         the rules' language",
                    );
                }
                if !seen.insert(id) {
                    self.note(&format!("{kind} `{id}`"), "the name is taken");
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
                    "a number is like `3` or `3b`, and each is used once",
                );
            }
        }
    }

    /// What refers to another part by name finds it.
    fn check_references(&mut self, document: &Document) {
        let ids = |kind: &str| -> Vec<String> {
            match kind {
                "metric" => document.metrics.iter().map(|one| one.id.clone()).collect(),
                "oracle" => document.oracles.iter().map(|one| one.id.clone()).collect(),
                "item" => document.items.iter().map(|one| one.id.clone()).collect(),
                "rung" => document.rungs.iter().map(|one| one.id.clone()).collect(),
                _ => document.reads.iter().map(|one| one.id.clone()).collect(),
            }
        };
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
            let items = match &rule.action {
                Action::Land(items) => items.as_slice(),
                Action::Drop(item) => std::slice::from_ref(item),
                Action::LandAll | Action::Park => &[],
            };
            let place = format!("rule `{}`", rule.id);
            uses.extend(items.iter().map(|id| (place.clone(), "item", id.as_str())));
        }
        if let Some(transfer) = &document.transfer {
            let place = "transfer".to_owned();
            uses.extend(transfer.reads.iter().map(|id| (place.clone(), "read", id.as_str())));
        }
        for (place, kind, id) in uses {
            self.or_note(&place, check_known(kind, id, &ids(kind)), ());
        }
        match document.rungs.first() {
            None => self.note("rungs", "there are none; the first is the base"),
            Some(base) if !base.items.is_empty() => self.note(
                &format!("rung `{}`", base.id),
                "the first rung is the base and carries no items",
            ),
            Some(_) => {}
        }
        let primaries = document.reads.iter().filter(|read| read.role == Role::Primary).count();
        if primaries != 1 {
            self.note("reads", format!("exactly one is `primary`, not {primaries}"));
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
    fn check_expressions(&mut self, document: &Document) {
        let mut found = Vec::new();
        let mut check = |place: String, expr: &Expr, at: Place, kind: Kind| {
            // What did not parse has been noted, and stands as `never`.
            if *expr == Expr::Constant(false) {
                return;
            }
            match expr.check(&Scope { document, place: at }) {
                Ok(yields) if yields == kind => {}
                Ok(yields) => {
                    found.push((place, format!("it is {yields}, where {kind} is needed")))
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

fn oracle_check(raw: &RawOracle) -> Result<OracleCheck, String> {
    let metric = || raw.metric.clone().ok_or_else(|| "`metric` is missing".to_owned());
    let allowed: &[&str] = match raw.kind.as_str() {
        "tokens-equal" => &[],
        "file-equal" => &["file"],
        "metric" | "overlay" => &["metric", "bound"],
        "peaks" => &["lifetime", "window"],
        "command" => &["command", "exit"],
        other => {
            let known = ["tokens-equal", "file-equal", "metric", "overlay", "peaks", "command"];
            check_known("kind of oracle", other, &known.map(str::to_owned))?;
            &[]
        }
    };
    let given = [
        ("metric", raw.metric.is_some()),
        ("bound", raw.bound.is_some()),
        ("file", raw.file.is_some()),
        ("lifetime", raw.lifetime.is_some()),
        ("window", raw.window.is_some()),
        ("command", raw.command.is_some()),
        ("exit", raw.exit.is_some()),
    ];
    if let Some((key, _)) = given.iter().find(|(key, given)| *given && !allowed.contains(key)) {
        return Err(format!("`{key}` means nothing to a `{}` oracle", raw.kind));
    }
    match raw.kind.as_str() {
        "tokens-equal" => Ok(OracleCheck::TokensEqual),
        "file-equal" => {
            let file = raw.file.clone().ok_or("`file` is missing")?;
            let inner = std::path::Path::new(&file)
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)));
            if inner && !file.is_empty() {
                Ok(OracleCheck::FileEqual { file })
            } else {
                Err(format!("`{file}` is not within the launch's output folder"))
            }
        }
        "metric" => Ok(OracleCheck::Metric {
            metric: metric()?,
            bound: raw.bound.as_deref().map(parse_bound).transpose()?,
        }),
        "overlay" => Ok(OracleCheck::Overlay {
            metric: metric()?,
            band: raw.bound.as_deref().map(parse_band).transpose()?,
        }),
        "peaks" => Ok(OracleCheck::Peaks {
            lifetime: raw.lifetime.clone().ok_or("`lifetime` is missing")?,
            window: raw.window.clone().ok_or("`window` is missing")?,
        }),
        _ => {
            let command = raw.command.clone().unwrap_or_default();
            if command.is_empty() {
                return Err("`command` is missing".to_owned());
            }
            Ok(OracleCheck::Command { command, exit: raw.exit })
        }
    }
}

/// `abs <= 1e-3` or `rel <= 1 %`.
fn parse_bound(text: &str) -> Result<Bound, String> {
    let (of, at_most) = text
        .split_once("<=")
        .ok_or_else(|| format!("`{text}` is no bound like `abs <= 1e-3` or `rel <= 1 %`"))?;
    let of = match of.trim() {
        "abs" => Difference::Absolute,
        "rel" => Difference::Relative,
        other => return Err(format!("a bound is on `abs` or `rel`, not `{other}`")),
    };
    Ok(Bound { of, at_most: not_negative(at_most)? })
}

/// `band <= 1`, in largest step-to-step changes of the base.
fn parse_band(text: &str) -> Result<f64, String> {
    match text.split_once("<=") {
        Some((of, at_most)) if of.trim() == "band" => not_negative(at_most),
        _ => Err(format!("`{text}` is no bound like `band <= 1`")),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match parse_number(text)? {
        value if value >= 0.0 => Ok(value),
        _ => Err(format!("the bound `{}` is negative", text.trim())),
    }
}
