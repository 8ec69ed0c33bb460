//! The definition of a comparison: a TOML file and the command line over it, checked into one plan.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use crate::ab::gate::{Bound, Gate, parse_gate};
use crate::ab::metric::Metric;
use crate::base::definition::{nearest, parse_toml};
use crate::base::diagnostic::HintExt as _;
use crate::cell::quiet::QuietRule;

/// Fewer blocks than this show nothing.
pub(crate) const FEWEST_BLOCKS: usize = 5;
/// The leg that has every variable removed.
pub(crate) const BASE: &str = "base";
/// The base leg again: what it shows is noise.
pub(crate) const NULL: &str = "null";
/// The leg of `--baseline-bin`.
pub(crate) const BASELINE: &str = "baseline";
/// The leg of `--env`.
pub(crate) const TEST: &str = "test";

/// What a leg is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// The reference.
    Base,
    /// The reference again.
    Null,
    /// Some variables apart from base.
    Test,
    /// Another binary, otherwise as base.
    Baseline,
}

/// One leg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leg {
    /// Its name.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) role: Role,
    /// The variables that it sets, in order.
    pub(crate) env: Vec<(String, String)>,
}

/// Everything that decides what is run and how it is judged. A resumed comparison has the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AbPlan {
    /// The definition's path, or none where there was no file.
    pub(crate) config: Option<String>,
    /// What is asked, in words.
    pub(crate) question: Option<String>,
    /// The model, as it was named.
    pub(crate) model: String,
    /// The runner's name.
    pub(crate) runner: String,
    /// Arguments that every leg's runner gets after its own.
    pub(crate) runner_args: Vec<String>,
    /// Prompt length.
    pub(crate) prompt_tokens: u64,
    /// Tokens to generate.
    pub(crate) max_tokens: u64,
    /// Tokens of the discarded pass.
    pub(crate) warmup_tokens: u64,
    /// Compute threads, where a number was asked for.
    pub(crate) threads: Option<u64>,
    /// The legs; base first, null second.
    pub(crate) legs: Vec<Leg>,
    /// Blocks to run at least.
    pub(crate) min_blocks: usize,
    /// Blocks to run at most.
    pub(crate) max_blocks: usize,
    /// No pair of blocks is started after this many minutes; none for a fixed number of blocks.
    pub(crate) max_minutes: Option<f64>,
    /// The smallest difference that matters, in percent.
    pub(crate) margin_pct: f64,
    /// The metric whose verdict is the headline.
    pub(crate) primary: Metric,
    /// The gates, as they were written.
    pub(crate) gates: Vec<String>,
    /// Seed of the order and of the bootstrap.
    pub(crate) seed: u64,
    /// When a run is ended, in seconds.
    pub(crate) timeout_s: f64,
    /// Pause before each run, in milliseconds; load within it counts as load before the run.
    pub(crate) cooldown_ms: u64,
    /// Growth that still counts as flat, in MiB a token.
    pub(crate) flat_mib_per_token: f64,
    /// What follows from a disturbed run.
    pub(crate) quiet: QuietRule,
    /// Load of other processes that still counts as quiet, in percent of all processors.
    pub(crate) max_other_load_pct: f64,
    /// Whether other tokens are noted instead of refused.
    pub(crate) allow_different_output: bool,
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
        let names: Vec<String> = self
            .legs
            .iter()
            .filter(|leg| matches!(leg.role, Role::Test | Role::Baseline))
            .map(|leg| match leg.env.first() {
                Some((name, value)) => format!("{name} {value}"),
                None => leg.name.clone(),
            })
            .collect();
        let mut text = format!("{} {}", names.join(" "), self.model);
        for arg in &self.runner_args {
            text.push_str(&format!(" {}", arg.trim_start_matches('-')));
        }
        let slug: String = text
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let words: Vec<&str> = slug.split('-').filter(|word| !word.is_empty()).collect();
        words.join("-").chars().take(80).collect::<String>().trim_end_matches('-').to_owned()
    }
}

/// What the command line asks for; what is none is the file's to say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Request {
    /// `--env K=V`, in order.
    pub(crate) env: Vec<String>,
    /// `--leg NAME:K=V,K=V`, in order.
    pub(crate) legs: Vec<String>,
    /// Whether there is a `--baseline-bin`.
    pub(crate) has_baseline: bool,
    /// `--model`.
    pub(crate) model: Option<String>,
    /// `--prompt-tokens`.
    pub(crate) prompt_tokens: Option<u64>,
    /// `--max-tokens`.
    pub(crate) max_tokens: Option<u64>,
    /// `--pairs`.
    pub(crate) pairs: Option<usize>,
    /// `--margin`.
    pub(crate) margin_pct: Option<f64>,
    /// `--gate`.
    pub(crate) gates: Vec<String>,
    /// `--seed`.
    pub(crate) seed: Option<u64>,
    /// `--runner`.
    pub(crate) runner: Option<String>,
    /// Arguments after `--`.
    pub(crate) runner_args: Vec<String>,
    /// `--allow-different-output`.
    pub(crate) allow_different_output: bool,
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
pub(crate) fn parse_ab(
    definition: Option<(&str, &str)>,
    request: &Request,
) -> anyhow::Result<AbPlan> {
    let raw = match definition {
        Some((path, text)) => parse_toml::<RawAb>(path, text)?,
        None => RawAb::default(),
    };
    let legs = plan_legs(&raw, request)?;
    let fixed = request.pairs;
    let gates = if request.gates.is_empty() { raw.gates } else { request.gates.clone() };
    let primary = Metric::parse(&raw.primary).ok_or_else(|| unknown_metric(&raw.primary))?;
    let plan = AbPlan {
        config: definition.map(|(path, _)| path.to_owned()),
        question: raw.question,
        model: request.model.clone().unwrap_or(raw.model),
        runner: request.runner.clone().unwrap_or(raw.runner),
        runner_args: if request.runner_args.is_empty() {
            raw.runner_args
        } else {
            request.runner_args.clone()
        },
        prompt_tokens: request.prompt_tokens.unwrap_or(raw.prompt_tokens),
        max_tokens: request.max_tokens.unwrap_or(raw.max_tokens),
        warmup_tokens: raw.warmup_tokens,
        threads: raw.threads,
        legs,
        min_blocks: fixed.unwrap_or(raw.min_blocks),
        max_blocks: fixed.unwrap_or(raw.max_blocks),
        max_minutes: fixed.is_none().then_some(raw.max_minutes),
        margin_pct: request.margin_pct.unwrap_or(raw.margin_pct),
        primary,
        gates,
        seed: request.seed.unwrap_or(raw.seed),
        timeout_s: raw.timeout_s,
        cooldown_ms: raw.cooldown_ms,
        flat_mib_per_token: raw.flat_mib_per_token,
        quiet: raw.quiet,
        max_other_load_pct: raw.max_other_load_pct,
        allow_different_output: request.allow_different_output || raw.allow_different_output,
    };
    check_numbers(&plan)?;
    check_gates(&plan)?;
    Ok(plan)
}

fn unknown_metric(name: &str) -> anyhow::Error {
    let known: Vec<&str> = Metric::ALL.into_iter().map(Metric::name).collect();
    let error = anyhow::anyhow!("no metric `{name}`; the metrics are {}", known.join(", "));
    match nearest(name, known.into_iter()) {
        Some(near) => Err::<(), _>(error).hint(format!("did you mean `{near}`?")).unwrap_err(),
        None => error,
    }
}

fn plan_legs(raw: &RawAb, request: &Request) -> anyhow::Result<Vec<Leg>> {
    let leg = |name: &str, role, env| Leg { name: name.to_owned(), role, env };
    let mut legs = vec![leg(BASE, Role::Base, Vec::new()), leg(NULL, Role::Null, Vec::new())];

    let test: Vec<(String, String)> = if request.env.is_empty() {
        raw.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    } else {
        request.env.iter().map(|text| parse_assignment(text)).collect::<anyhow::Result<_>>()?
    };
    if !test.is_empty() {
        legs.push(leg(TEST, Role::Test, test));
    }
    for RawLeg { name, env } in raw.legs.iter().filter(|_| request.legs.is_empty()) {
        legs.push(leg(name, Role::Test, env.clone().into_iter().collect()));
    }
    for text in &request.legs {
        let Some((name, assignments)) = text.split_once(':') else {
            bail!("leg `{text}` has no name; write NAME:K=V or NAME:K=V,K=V");
        };
        let env =
            assignments.split(',').map(parse_assignment).collect::<anyhow::Result<Vec<_>>>()?;
        legs.push(leg(name.trim(), Role::Test, env));
    }
    if request.has_baseline {
        legs.push(leg(BASELINE, Role::Baseline, Vec::new()));
    }
    check_legs(&legs)?;
    Ok(legs)
}

fn check_legs(legs: &[Leg]) -> anyhow::Result<()> {
    if legs.len() == 2 {
        return Err(anyhow::anyhow!("there is nothing to compare: no leg differs from base"))
            .hint("give --env K=V, --leg NAME:K=V or --baseline-bin PATH");
    }
    let mut names = BTreeSet::new();
    for leg in legs {
        let is_plain = leg.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        ensure!(
            !leg.name.is_empty() && is_plain,
            "leg `{}`: a name has letters, digits, `-` and `_` alone",
            leg.name
        );
        ensure!(names.insert(&leg.name), "two legs are called `{}`", leg.name);
        let mut variables = BTreeSet::new();
        for (name, _) in &leg.env {
            ensure!(variables.insert(name), "leg `{}` sets {name} twice", leg.name);
        }
        ensure!(
            leg.role != Role::Test || !leg.env.is_empty(),
            "leg `{}` sets no variable: it would be base again",
            leg.name
        );
    }
    let tests: Vec<&Leg> = legs.iter().filter(|leg| leg.role == Role::Test).collect();
    for (index, leg) in tests.iter().enumerate() {
        if let Some(twin) = tests[..index].iter().find(|other| other.env == leg.env) {
            bail!("legs `{}` and `{}` set the same variables", twin.name, leg.name);
        }
    }
    Ok(())
}

/// Parses `K=V`; the value may be empty and may hold `=`.
fn parse_assignment(text: &str) -> anyhow::Result<(String, String)> {
    let Some((name, value)) = text.trim().split_once('=') else {
        return Err(anyhow::anyhow!("`{text}` assigns nothing"))
            .hint(format!("write NAME=VALUE, for example {}=0", text.trim()));
    };
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    ensure!(is_name, "`{name}` is no name of a variable");
    ensure!(!value.contains('\0'), "the value of {name} holds a zero byte");
    Ok((name.to_owned(), value.to_owned()))
}

fn check_numbers(plan: &AbPlan) -> anyhow::Result<()> {
    ensure!(
        plan.min_blocks >= FEWEST_BLOCKS,
        "{} blocks are too few: the least is {FEWEST_BLOCKS}",
        plan.min_blocks
    );
    ensure!(
        plan.min_blocks <= plan.max_blocks,
        "min_blocks {} is more than max_blocks {}",
        plan.min_blocks,
        plan.max_blocks
    );
    ensure!(plan.max_blocks <= 10_000, "{} blocks are too many", plan.max_blocks);
    ensure!(plan.prompt_tokens > 0, "a prompt has at least one token");
    ensure!(plan.max_tokens >= 2, "max_tokens {}: no decode step would be run", plan.max_tokens);
    let above_zero = |name: &str, value: f64| {
        ensure!(value.is_finite() && value > 0.0, "{name} must be above 0, and is {value}");
        Ok(())
    };
    above_zero("margin_pct", plan.margin_pct)?;
    ensure!(plan.margin_pct < 100.0, "a margin of {} % says nothing", plan.margin_pct);
    above_zero("timeout_s", plan.timeout_s)?;
    above_zero("max_minutes", plan.max_minutes.unwrap_or(1.0))?;
    ensure!(
        plan.flat_mib_per_token.is_finite() && plan.flat_mib_per_token >= 0.0,
        "flat_mib_per_token must be 0 or more, and is {}",
        plan.flat_mib_per_token
    );
    ensure!(!plan.max_other_load_pct.is_nan(), "max_other_load_pct is no number");
    Ok(())
}

fn check_gates(plan: &AbPlan) -> anyhow::Result<()> {
    for gate in plan.parse_gates()? {
        let Some(name) = &gate.leg else { continue };
        let names: Vec<&str> = plan.legs.iter().map(|leg| leg.name.as_str()).collect();
        ensure!(
            names.contains(&name.as_str()),
            "gate `{}`: no leg `{name}`; the legs are {}",
            gate.text,
            names.join(", ")
        );
        let is_against_itself = name == BASE && matches!(gate.bound, Bound::Change(_));
        ensure!(!is_against_itself, "gate `{}`: base does not change against itself", gate.text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::diagnostic::render_error;

    fn request(env: &[&str], legs: &[&str]) -> Request {
        Request {
            env: env.iter().map(|text| (*text).to_owned()).collect(),
            legs: legs.iter().map(|text| (*text).to_owned()).collect(),
            ..Request::default()
        }
    }

    fn message(request: &Request) -> String {
        render_error(&parse_ab(None, request).unwrap_err())
    }

    #[test]
    fn base_and_null_are_always_there_and_the_test_leg_comes_third() {
        let plan = parse_ab(None, &request(&["A=0", "B=x=y"], &["small:C=1,D="])).unwrap();
        let legs: Vec<(&str, Role, usize)> =
            plan.legs.iter().map(|leg| (leg.name.as_str(), leg.role, leg.env.len())).collect();
        assert_eq!(
            legs,
            [
                ("base", Role::Base, 0),
                ("null", Role::Null, 0),
                ("test", Role::Test, 2),
                ("small", Role::Test, 2),
            ]
        );
        assert_eq!(plan.legs[2].env[1], ("B".to_owned(), "x=y".to_owned()));
        assert_eq!(plan.legs[3].env[1], ("D".to_owned(), String::new()));
        assert_eq!(plan.variables().into_iter().collect::<Vec<_>>(), ["A", "B", "C", "D"]);
        assert_eq!((plan.min_blocks, plan.max_blocks, plan.max_minutes), (6, 40, Some(2.5)));
    }

    #[test]
    fn the_command_line_goes_over_the_file() {
        let text = "model = \"m\"\nseed = 4\nenv = { A = \"0\" }\ngates = [\"load_ms <= 9\"]\n\
                    runner_args = [\"--x\"]\nmargin_pct = 2.0\n[[leg]]\nname = \"l\"\n\
                    env = { B = \"1\" }\n";
        let plan = parse_ab(Some(("a.toml", text)), &Request::default()).unwrap();
        assert_eq!((plan.model.as_str(), plan.seed, plan.margin_pct), ("m", 4, 2.0));
        assert_eq!(plan.legs.len(), 4);
        let over = Request {
            model: Some("n".to_owned()),
            pairs: Some(8),
            gates: vec!["decode_tok_s >= -1%".to_owned()],
            has_baseline: true,
            runner_args: vec!["--y".to_owned()],
            ..request(&["C=1"], &[])
        };
        let plan = parse_ab(Some(("a.toml", text)), &over).unwrap();
        assert_eq!((plan.model.as_str(), plan.min_blocks, plan.max_blocks), ("n", 8, 8));
        assert_eq!((plan.max_minutes, plan.gates.len()), (None, 1));
        assert_eq!(plan.runner_args, ["--y"]);
        let names: Vec<&str> = plan.legs.iter().map(|leg| leg.name.as_str()).collect();
        assert_eq!(names, ["base", "null", "test", "l", "baseline"]);
        assert_eq!(plan.legs[2].env[0].0, "C");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_way_out() {
        assert!(message(&Request::default()).contains("hint: give --env K=V"));
        assert!(message(&request(&["A"], &[])).contains("hint: write NAME=VALUE, for example A=0"));
        assert!(message(&request(&["1A=0"], &[])).contains("`1A` is no name"));
        assert!(message(&request(&["A=0", "A=1"], &[])).contains("sets A twice"));
        assert!(message(&request(&[], &["A=0"])).contains("has no name"));
        assert!(message(&request(&[], &["base:A=0"])).contains("two legs are called `base`"));
        assert!(message(&request(&["A=0"], &["b:A=0"])).contains("set the same variables"));
        assert!(message(&request(&[], &["a.b:A=0"])).contains("letters, digits"));
        let with = |change: fn(&mut Request)| {
            let mut request = request(&["A=0"], &[]);
            change(&mut request);
            message(&request)
        };
        assert!(with(|r| r.pairs = Some(4)).contains("the least is 5"));
        assert!(with(|r| r.margin_pct = Some(0.0)).contains("margin_pct must be above 0"));
        assert!(with(|r| r.max_tokens = Some(1)).contains("no decode step"));
        assert!(with(|r| r.gates = vec!["tok_s >= 1".into()]).contains("no metric `tok_s`"));
        assert!(
            with(|r| r.gates = vec!["x.load_ms >= 1".into()]).contains("no leg `x`; the legs are")
        );
        assert!(with(|r| r.gates = vec!["base.load_ms >= 1%".into()]).contains("against itself"));
    }

    #[test]
    fn an_unknown_key_or_metric_names_the_nearest() {
        let error = |text| {
            render_error(&parse_ab(Some(("ab/x.toml", text)), &request(&["A=0"], &[])).unwrap_err())
        };
        let unknown = error("model = \"m\"\nmargin = 2.0\n");
        assert!(unknown.contains("ab/x.toml:2"), "{unknown}");
        assert!(unknown.contains("did you mean `margin_pct`?"), "{unknown}");
        assert!(error("primary = \"decode\"\n").contains("did you mean `decode_tok_s`?"));
    }

    #[test]
    fn slugs_are_plain() {
        let mut plan = parse_ab(None, &request(&["ARC_CANDLE_ALLOC_CACHE=0"], &[])).unwrap();
        assert_eq!(plan.slug(), "arc-candle-alloc-cache-0-tiny");
        plan.runner_args = vec!["--host-driver".to_owned(), "mmap".to_owned()];
        assert_eq!(plan.slug(), "arc-candle-alloc-cache-0-tiny-host-driver-mmap");
    }

    proptest! {
        #[test]
        fn no_text_panics(env in ".{0,20}", leg in ".{0,30}", file in ".{0,60}") {
            let _ = parse_ab(Some(("a", &file)), &request(&[&env], &[&leg]));
        }

        #[test]
        fn a_slug_is_a_plain_name_whatever_the_model(model in ".{1,200}") {
            let mut plan = parse_ab(None, &request(&["A=0"], &[])).unwrap();
            plan.model = model;
            let slug = plan.slug();
            prop_assert!(slug.starts_with("a-0") && slug.len() <= 80);
            prop_assert!(slug.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        }
    }
}
