//! The definition of a comparison: a TOML file and the command line over it, checked into one plan.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use crate::ab::args::Args;
use crate::ab::gate::{Bound, Gate, parse_gate};
use crate::ab::metric::{Metric, describe_unknown};
use crate::base::definition::parse_toml;
use crate::cell::quiet::QuietRule;

pub(crate) use legs::{BASE, Leg, LegRole, NULL};

mod legs;

/// More blocks than anybody may ask for.
pub(crate) const MAX_BLOCKS: usize = 10_000;
/// Fewer blocks than this show nothing.
const FEWEST_BLOCKS: usize = 5;

/// Everything that decides what is run and how it is judged. A resumed comparison has the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AbPlan {
    /// The definition's path, or none where there was no file.
    pub(crate) config: Option<String>,
    pub(crate) question: Option<String>,
    /// The model, as it was named.
    pub(crate) model: String,
    pub(crate) runner: String,
    /// Arguments that every leg's runner gets after its own.
    pub(crate) runner_args: Vec<String>,
    pub(crate) prompt_tokens: u64,
    pub(crate) max_tokens: u64,
    /// Tokens of the discarded pass.
    pub(crate) warmup_tokens: u64,
    pub(crate) threads: Option<u64>,
    /// The legs; base first, null second.
    pub(crate) legs: Vec<Leg>,
    pub(crate) min_blocks: usize,
    pub(crate) max_blocks: usize,
    /// No pair of blocks is started that would end more than a tenth after this many minutes; none for a
    /// fixed number of blocks.
    pub(crate) max_minutes: Option<f64>,
    /// Whether it stops as soon as the verdict is there, by an interval that holds at every look.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) until_decided: bool,
    /// The smallest difference that matters, in percent.
    pub(crate) margin_pct: f64,
    /// The metric whose verdict is the headline.
    pub(crate) primary: Metric,
    /// The gates, as they were written.
    pub(crate) gates: Vec<String>,
    /// Seed of the order and of the bootstrap.
    pub(crate) seed: u64,
    pub(crate) timeout_s: f64,
    /// Pause before each run, in milliseconds; load within it counts as load before the run.
    pub(crate) cooldown_ms: u64,
    /// Growth that still counts as flat, in MiB a token.
    pub(crate) flat_mib_per_token: f64,
    /// What follows from a disturbed run.
    pub(crate) quiet: QuietRule,
    /// Load of other processes that still counts as quiet, in percent of all processors.
    pub(crate) max_other_load_pct: f64,
    /// Whether different tokens are noted instead of refused.
    pub(crate) allow_different_output: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl AbPlan {
    /// The gates, parsed. They were checked when the plan was made.
    pub(crate) fn parse_gates(&self) -> anyhow::Result<Vec<Gate>> {
        Ok(self.gates.iter().map(|text| parse_gate(text)).collect::<Result<_, _>>()?)
    }

    /// Every variable that some leg sets, once each: what base has removed.
    pub(crate) fn variables(&self) -> BTreeSet<&str> {
        self.legs.iter().flat_map(|leg| &leg.env).map(|(name, _)| name.as_str()).collect()
    }

    /// What folder names call it: the variables, or the leg that is compared.
    pub(crate) fn slug(&self) -> String {
        let compared = self.legs.iter().filter(|leg| !leg.role.is_reference());
        let mut words: Vec<String> = compared
            .map(|leg| match leg.env.first() {
                Some((name, value)) => format!("{name} {value}"),
                None => leg.name.clone(),
            })
            .collect();
        words.push(self.model.clone());
        words.extend(self.runner_args.iter().cloned());
        let slug: String = words
            .join("-")
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let words: Vec<&str> = slug.split('-').filter(|word| !word.is_empty()).collect();
        words.join("-").chars().take(80).collect::<String>().trim_end_matches('-').to_owned()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawAb {
    question: Option<String>,
    model: String,
    runner: String,
    runner_args: Vec<String>,
    prompt_tokens: u64,
    max_tokens: u64,
    warmup_tokens: u64,
    threads: Option<u64>,
    env: BTreeMap<String, String>,
    #[serde(rename = "leg")]
    legs: Vec<RawLeg>,
    min_blocks: usize,
    max_blocks: usize,
    max_minutes: f64,
    until_decided: bool,
    margin_pct: f64,
    primary: String,
    gates: Vec<String>,
    seed: u64,
    timeout_s: f64,
    cooldown_ms: u64,
    flat_mib_per_token: f64,
    quiet: QuietRule,
    max_other_load_pct: f64,
    allow_different_output: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLeg {
    name: String,
    env: BTreeMap<String, String>,
}

impl Default for RawAb {
    fn default() -> RawAb {
        RawAb {
            question: None,
            model: "tiny".to_owned(),
            runner: "decode-bench".to_owned(),
            runner_args: Vec::new(),
            prompt_tokens: 128,
            max_tokens: 321,
            warmup_tokens: 4,
            threads: None,
            env: BTreeMap::new(),
            legs: Vec::new(),
            min_blocks: 6,
            max_blocks: 40,
            max_minutes: 2.5,
            until_decided: false,
            margin_pct: 1.0,
            primary: Metric::DecodeTokS.name().to_owned(),
            gates: Vec::new(),
            seed: 1,
            timeout_s: 300.0,
            cooldown_ms: 100,
            flat_mib_per_token: 0.05,
            quiet: QuietRule::Required,
            max_other_load_pct: 10.0,
            allow_different_output: false,
        }
    }
}

/// Makes the plan of a definition, given as its path to show and its text, and a command line.
///
/// # Errors
/// The file's syntax or an unknown key; a variable, leg, gate, metric or number that makes no sense;
/// nothing to compare.
pub(crate) fn parse_ab(definition: Option<(&str, &str)>, args: &Args) -> anyhow::Result<AbPlan> {
    let raw = match definition {
        Some((path, text)) => parse_toml::<RawAb>(path, text)?,
        None => RawAb::default(),
    };
    let given = |over: &[String], file: Vec<String>| {
        if over.is_empty() { file } else { over.to_vec() }
    };
    let primary = Metric::parse(&raw.primary)
        .ok_or_else(|| anyhow::anyhow!("primary: {}", describe_unknown(&raw.primary)))?;
    let plan = AbPlan {
        legs: legs::plan_legs(raw.env, raw.legs, args)?,
        config: definition.map(|(path, _)| path.to_owned()),
        question: raw.question,
        model: args.model.clone().unwrap_or(raw.model),
        runner: args.runner.clone().unwrap_or(raw.runner),
        runner_args: given(&args.runner_args, raw.runner_args),
        prompt_tokens: args.prompt_tokens.unwrap_or(raw.prompt_tokens),
        max_tokens: args.max_tokens.unwrap_or(raw.max_tokens),
        warmup_tokens: raw.warmup_tokens,
        threads: raw.threads,
        min_blocks: args.pairs.unwrap_or(raw.min_blocks),
        max_blocks: args.pairs.unwrap_or(raw.max_blocks),
        max_minutes: args.pairs.is_none().then_some(raw.max_minutes),
        until_decided: args.until_decided || (raw.until_decided && args.pairs.is_none()),
        margin_pct: args.margin.unwrap_or(raw.margin_pct),
        primary,
        gates: given(&args.gate, raw.gates),
        seed: args.seed.unwrap_or(raw.seed),
        timeout_s: raw.timeout_s,
        cooldown_ms: raw.cooldown_ms,
        flat_mib_per_token: raw.flat_mib_per_token,
        quiet: raw.quiet,
        max_other_load_pct: raw.max_other_load_pct,
        allow_different_output: args.allow_different_output || raw.allow_different_output,
    };
    check_numbers(&plan)?;
    check_gates(&plan)?;
    Ok(plan)
}

fn check_numbers(plan: &AbPlan) -> anyhow::Result<()> {
    let AbPlan { min_blocks, max_blocks, margin_pct, flat_mib_per_token, .. } = plan;
    ensure!(
        *min_blocks >= FEWEST_BLOCKS,
        "{min_blocks} blocks are too few: at least {FEWEST_BLOCKS} are needed"
    );
    ensure!(
        min_blocks <= max_blocks,
        "min_blocks {min_blocks} is more than max_blocks {max_blocks}"
    );
    ensure!(*max_blocks <= MAX_BLOCKS, "{max_blocks} blocks are too many");
    ensure!(plan.prompt_tokens > 0, "prompt_tokens must be at least 1");
    ensure!(plan.max_tokens >= 2, "max_tokens must be at least 2, or no decode step is run");
    for (name, value) in [
        ("margin_pct", *margin_pct),
        ("timeout_s", plan.timeout_s),
        ("max_minutes", plan.max_minutes.unwrap_or(1.0)),
    ] {
        ensure!(value.is_finite() && value > 0.0, "{name} must be above 0, not {value}");
    }
    ensure!(*margin_pct < 100.0, "margin_pct must be below 100, not {margin_pct}");
    ensure!(
        flat_mib_per_token.is_finite() && *flat_mib_per_token >= 0.0,
        "flat_mib_per_token must be 0 or more, not {flat_mib_per_token}"
    );
    ensure!(
        plan.max_other_load_pct.is_finite(),
        "max_other_load_pct must be a number, not {}; quiet = \"noted\" rejects no run",
        plan.max_other_load_pct
    );
    Ok(())
}

fn check_gates(plan: &AbPlan) -> anyhow::Result<()> {
    for Gate { text, leg, bound, .. } in plan.parse_gates()? {
        let Some(name) = leg else { continue };
        let names: Vec<&str> = plan.legs.iter().map(|leg| leg.name.as_str()).collect();
        ensure!(
            names.contains(&name.as_str()),
            "gate `{text}`: no leg `{name}`; the legs are {}",
            names.join(", ")
        );
        let is_against_itself = name == BASE && matches!(bound, Bound::Change(_));
        ensure!(!is_against_itself, "gate `{text}`: base does not change against itself");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
