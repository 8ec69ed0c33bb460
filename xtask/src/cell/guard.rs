//! Whether a cell may be launched: the backstop, the OOM record, fakes, and the weight-size check.
//!
//! Pure. The two layers that keep a machine from being wedged are empirical: they react to what ran
//! out of memory before, they never predict. The weight-size check is the only estimate; it does
//! not depend on the length and feeds nothing.

use std::collections::{BTreeSet, HashMap};

use crate::base::diagnostic::HintExt as _;
use crate::cell::classify::Classification;
use crate::cell::grid::{Cell, FakeCell};
use crate::cell::length::{generate_name, parse_generate, split_generate};
use crate::cell::variants::{PLAIN, Variant, forbidding, split_streams};
use crate::model::reference::ModelKind;
use crate::oom_record::{OomEntry, OomRecord, render_prune_command};

pub(crate) mod file;

/// The share of memory that weights may take.
const WEIGHT_SHARE: f64 = 0.85;
const GIB: f64 = (1u64 << 30) as f64;

/// What becomes of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    Launch,
    /// It is not launched but yields this class as if it had been.
    Fake(Classification),
    Refuse {
        class: Classification,
        reason: String,
    },
}

/// Whether the OOM record keeps cells from being launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordRule {
    InForce,
    /// As the user asked: new events are still appended.
    Ignored,
}

impl RecordRule {
    pub(crate) fn from_flag(ignore_oom_record: bool) -> RecordRule {
        if ignore_oom_record { RecordRule::Ignored } else { RecordRule::InForce }
    }
}

/// What is known before a cell comes up.
#[derive(Debug)]
pub(crate) struct Guard {
    record: OomRecord,
    record_rule: RecordRule,
    fakes: Vec<FakeCell>,
    /// Memory that weights must fit into.
    memory_bytes: Option<u64>,
    /// What weight bytes are multiplied with.
    overhead_factor: f64,
    /// The variants of the definition, where it has some.
    variants: Vec<Variant>,
    /// How many tokens a cell generates whose name does not say so; `None` where that is not known.
    max_tokens: Option<u64>,
    /// Whether the names of this run's cells say it where it is another number.
    names_say_tokens: bool,
    /// The least length at which each model ran out of memory in this run, by [`Cell::name`].
    oom_lengths: HashMap<String, u64>,
}

impl Guard {
    pub(crate) fn new(
        record: OomRecord,
        record_rule: RecordRule,
        memory_bytes: Option<u64>,
        overhead_factor: f64,
    ) -> Guard {
        Guard {
            record,
            record_rule,
            fakes: Vec::new(),
            memory_bytes,
            overhead_factor,
            variants: Vec::new(),
            max_tokens: None,
            names_say_tokens: false,
            oom_lengths: HashMap::new(),
        }
    }

    pub(crate) fn with_fakes(self, fakes: Vec<FakeCell>) -> Guard {
        Guard { fakes, ..self }
    }

    /// Knows which variants need no less memory than others.
    pub(crate) fn with_variants(self, variants: Vec<Variant>) -> Guard {
        Guard { variants, ..self }
    }

    /// Knows that names may say how many tokens a cell generates, and how many it does where they do not.
    pub(crate) fn with_max_tokens(self, max_tokens: u64) -> Guard {
        Guard { max_tokens: Some(max_tokens), names_say_tokens: true, ..self }
    }

    /// Knows the most tokens that a cell of this run generates: what a sweep recorded with no more of them
    /// forbids it.
    pub(crate) fn with_most_tokens(self, most: u64) -> Guard {
        Guard { max_tokens: Some(most), names_say_tokens: false, ..self }
    }

    /// The names whose true OOM forbids this cell. A model as it is forbids its variants, because
    /// nothing says that they need less; where a definition has variants, what it declares is all that
    /// is known of those. More streams need no less than one, and more generated tokens no less than fewer.
    fn forbidding(&self, cell: Cell<'_>) -> Vec<String> {
        let model = cell.model.name.as_str();
        let (change, streams) = cell.variant.map_or((None, None), split_streams);
        let (change, generate) = match change {
            Some(change) if self.names_say_tokens => split_generate(change),
            change => (change, None),
        };
        if !self.variants.iter().any(|variant| Some(variant.name.as_str()) == change)
            && change.is_some()
        {
            let mut names = self.generating_no_more(model, generate);
            names.push(cell.name());
            return names;
        }
        let mut names = Vec::new();
        for name in forbidding(&self.variants, change.unwrap_or(PLAIN)) {
            let one = if name == PLAIN { model.to_owned() } else { format!("{model}+{name}") };
            for one in self.generating_no_more(&one, generate) {
                names.extend(streams.map(|streams| format!("{one}+{streams}")));
                names.push(one);
            }
        }
        names
    }

    /// The names under which an OOM of this run or of the record may stand that generated no more tokens
    /// than `generate`, or than the whole run does.
    fn generating_no_more(&self, name: &str, generate: Option<u64>) -> Vec<String> {
        let Some(max_tokens) = self.max_tokens else { return vec![name.to_owned()] };
        let most = generate.unwrap_or(max_tokens);
        let mut counts: BTreeSet<u64> = generate.into_iter().collect();
        let recorded = self.record.entries().map(|(entry, _)| entry);
        let recorded = recorded.filter(|entry| entry.is_of_sweep_cell());
        let recorded = recorded.map(|entry| entry.model.as_str());
        for other in recorded.chain(self.oom_lengths.keys().map(String::as_str)) {
            let rest = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('+'));
            let count = rest.and_then(|rest| parse_generate(rest.split('+').next()?));
            counts.extend(count.filter(|count| *count <= most));
        }
        let named = counts.into_iter().map(|count| format!("{name}+{}", generate_name(count)));
        (max_tokens <= most).then(|| name.to_owned()).into_iter().chain(named).collect()
    }

    /// The event of the record that forbids this cell, with its line, even where it is ignored.
    pub(crate) fn held(&self, cell: Cell<'_>) -> Option<(&OomEntry, &str)> {
        let names = self.forbidding(cell);
        names.iter().find_map(|name| self.record.blocking(name, cell.len))
    }

    /// The record as it is, even where it does not keep cells from being launched.
    pub(crate) fn record(&self) -> &OomRecord {
        &self.record
    }

    pub(crate) fn record_rule(&self) -> RecordRule {
        self.record_rule
    }

    /// Notes a true OOM of this run. Only true ones may be noted.
    pub(crate) fn note_true_oom(&mut self, model: &str, len: u64) {
        let least = self.oom_lengths.entry(model.to_owned()).or_insert(len);
        *least = len.min(*least);
    }

    /// What becomes of this cell, by what is known now.
    pub(crate) fn admit(&self, cell: Cell<'_>) -> Admission {
        let Cell { model, len, .. } = cell;
        let refuse = |class, reason| Admission::Refuse { class, reason };
        if model.kind == ModelKind::Missing {
            let reason = model.note.clone().unwrap_or_else(|| "there is no such model".to_owned());
            return refuse(Classification::FailMissingModel, reason);
        }
        let own_name = cell.name();
        for name in &self.forbidding(cell) {
            if let Some(&least) = self.oom_lengths.get(name)
                && len >= least
            {
                let reason = format!("`{name}` ran out of memory at {least} tokens in this run");
                return refuse(Classification::OomBackstop, reason);
            }
        }
        if self.record_rule == RecordRule::InForce
            && let Some((_, line)) = self.held(cell)
        {
            let reason = format!("the OOM record holds `{line}`");
            return refuse(Classification::OomRecord, reason);
        }
        let fake = self.fakes.iter().find(|fake| fake.model == own_name && fake.len == len);
        if let Some(fake) = fake {
            return Admission::Fake(fake.class);
        }
        match check_weights(model.weight_bytes, self.overhead_factor, self.memory_bytes) {
            Some(reason) => refuse(Classification::OomEstimate, reason),
            None => Admission::Launch,
        }
    }

    /// Refuses to begin a run of `command` that has nothing to show without this cell.
    ///
    /// # Errors
    /// When the cell would be refused; the hint names what overrides that.
    pub(crate) fn require(&self, cell: Cell<'_>, command: &str) -> anyhow::Result<()> {
        let Admission::Refuse { class, reason } = self.admit(cell) else { return Ok(()) };
        let name = cell.name();
        let error =
            anyhow::anyhow!("`{name}` at {} prompt tokens is not launched: {reason}", cell.len);
        Err(error).hint(match class {
            Classification::OomRecord => format!(
                "`cargo xtask {command} --ignore-oom-record` launches it anyway; `{}` removes its \
                 lines from the record",
                render_prune_command(self.held(cell).map_or(&name, |(entry, _)| &entry.model))
            ),
            Classification::OomEstimate => {
                "BENCH_MEM_OVERHEAD_FACTOR scales the estimate; 0 switches it off".to_owned()
            }
            _ => "`cargo xtask model list` shows the models".to_owned(),
        })
    }
}

/// Why the weights alone are too large; `None` where they fit or where sizes are not known.
fn check_weights(
    weight_bytes: Option<u64>,
    overhead_factor: f64,
    memory_bytes: Option<u64>,
) -> Option<String> {
    let (weights, memory) = (weight_bytes? as f64, memory_bytes? as f64);
    let needed = weights * overhead_factor;
    let limit = memory * WEIGHT_SHARE;
    (needed > limit).then(|| {
        format!(
            "weights of {:.2} GiB × {overhead_factor} exceed {:.2} GiB, 85 % of memory",
            weights / GIB,
            limit / GIB
        )
    })
}

/// Reads `BENCH_MEM_OVERHEAD_FACTOR`: the factor, and a warning where the value is not one.
pub(crate) fn parse_overhead_factor(raw: Option<&str>) -> (f64, Option<String>) {
    let Some(text) = raw.map(str::trim).filter(|text| !text.is_empty()) else {
        return (1.0, None);
    };
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor >= 0.0 => (factor, None),
        _ => (
            1.0,
            Some(format!(
                "BENCH_MEM_OVERHEAD_FACTOR: `{text}` is not a number of at least 0; using 1.0"
            )),
        ),
    }
}

#[cfg(test)]
mod tests;
