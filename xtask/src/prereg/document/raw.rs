//! The document as TOML spells it. Unknown keys are refused; values are checked in `parse`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Confidence, Item, Order, ReadRole, Rung, Source, Statistic, Waiver};
use crate::cell::quiet::QuietRule;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDocument {
    pub(super) question: String,
    #[serde(default)]
    pub(super) background: String,
    pub(super) protocol: RawProtocol,
    #[serde(default)]
    pub(super) metrics: Vec<RawMetric>,
    #[serde(default)]
    pub(super) oracles: Vec<RawOracle>,
    #[serde(default)]
    pub(super) items: Vec<Item>,
    #[serde(default)]
    pub(super) rungs: Vec<Rung>,
    #[serde(default)]
    pub(super) reads: Vec<RawRead>,
    #[serde(default)]
    pub(super) guards: Vec<RawGuard>,
    #[serde(default)]
    pub(super) rules: Vec<RawRule>,
    #[serde(default)]
    pub(super) expectations: Vec<RawExpectation>,
    pub(super) transfer: Option<RawTransfer>,
    #[serde(default)]
    pub(super) waivers: Vec<Waiver>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProtocol {
    pub(super) runner: String,
    pub(super) model: Option<String>,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) steps: u64,
    #[serde(default)]
    pub(super) discard_steps: u64,
    pub(super) statistic: Option<Statistic>,
    pub(super) warmup_tokens: Option<u64>,
    pub(super) repeats: u64,
    pub(super) order: Order,
    pub(super) seed: u64,
    pub(super) threads: Option<u64>,
    pub(super) ceiling_min: f64,
    pub(super) launch_estimate_min: Option<f64>,
    pub(super) timeout_s: Option<f64>,
    pub(super) cost_field: Option<String>,
    pub(super) quiet: Option<QuietRule>,
    pub(super) max_other_load: Option<String>,
    pub(super) refuse_null_rung: Option<String>,
    pub(super) noise_floor: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) args: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetric {
    pub(super) id: String,
    pub(super) from: Source,
    pub(super) field: String,
    #[serde(default)]
    pub(super) unit: String,
    pub(super) statistic: Option<Statistic>,
    #[serde(default)]
    pub(super) optional: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOracle {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) metric: Option<String>,
    pub(super) bound: Option<String>,
    pub(super) file: Option<String>,
    pub(super) lifetime: Option<String>,
    pub(super) window: Option<String>,
    pub(super) command: Option<Vec<String>>,
    pub(super) exit: Option<i32>,
    pub(super) rung: Option<String>,
    pub(super) steps: Option<u64>,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) estimate_min: Option<f64>,
    #[serde(default)]
    pub(super) args: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRead {
    pub(super) id: String,
    pub(super) role: ReadRole,
    pub(super) metric: String,
    pub(super) value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGuard {
    pub(super) id: String,
    pub(super) metric: String,
    pub(super) value: String,
    pub(super) passes: String,
    #[serde(default)]
    pub(super) fails: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    pub(super) id: String,
    pub(super) when: String,
    pub(super) then: String,
    #[serde(default)]
    pub(super) items: Vec<String>,
    #[serde(default)]
    pub(super) text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExpectation {
    pub(super) number: String,
    pub(super) text: String,
    pub(super) confidence: Confidence,
    pub(super) holds: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTransfer {
    pub(super) reads: Vec<String>,
    pub(super) repeats: Option<u64>,
    pub(super) steps: Option<u64>,
    pub(super) expect: String,
    #[serde(default)]
    pub(super) text: String,
}
