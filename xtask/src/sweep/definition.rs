//! The definition of a sweep, `bench-configs/sweep/NAME.toml`: what is measured and under which
//! limits. It parses and checks; it reads nothing.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::base::definition::parse_toml;
use crate::base::repeated::find_repeated;
use crate::cell::grid::Order;
use crate::cell::journal::request::{Device, Request};
use crate::cell::length::{Length, render_lengths};
use crate::cell::quiet::SweepQuiet;
use crate::cell::variants::{Variant, check_variants};
use crate::sys::hardware::{Backend, HostFacts};

/// The ladder that is shipped for GPU machines.
const GPU_CONFIG: &str = "bench-configs/sweep/longprompt.toml";
/// The grid that a processor finishes in about three minutes.
const CPU_CONFIG: &str = "bench-configs/sweep/small.toml";

/// A checked definition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SweepConfig {
    /// Words that stand for models, in order.
    pub(crate) models: Vec<String>,
    /// Prompt lengths, in order, some with the tokens to generate; none twice.
    pub(crate) lengths: Vec<Length>,
    /// Streams that ask a server at the same time, each number an axis of its own; none twice.
    pub(crate) concurrency: Vec<u64>,
    pub(crate) max_tokens: u64,
    pub(crate) warmup_tokens: u64,
    pub(crate) timeout: Duration,
    pub(crate) cooldown: Duration,
    /// Pause after a cell that was hard on the machine.
    pub(crate) big_cooldown: Duration,
    pub(crate) runner: String,
    pub(crate) threads: Option<u64>,
    pub(crate) cell_memory_limit_mb: Option<u64>,
    pub(crate) quiet: SweepQuiet,
    /// Changes of the runner's arguments.
    pub(crate) variants: Vec<Variant>,
    /// Whether the model as it is is measured beside them.
    pub(crate) plain: bool,
    /// How often each cell is measured.
    pub(crate) repeats: u64,
    pub(crate) order: Order,
    /// What computes, as the output is named.
    pub(crate) device: Device,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSweepConfig {
    models: Vec<String>,
    lengths: Vec<Length>,
    #[serde(default = "default_concurrency")]
    concurrency: Vec<u64>,
    #[serde(default = "default_max_tokens")]
    max_tokens: u64,
    #[serde(default = "default_warmup_tokens")]
    warmup_tokens: u64,
    #[serde(default = "default_timeout_s")]
    timeout_s: f64,
    #[serde(default)]
    cooldown_s: f64,
    #[serde(default)]
    big_cooldown_s: f64,
    #[serde(default = "default_runner")]
    runner: String,
    threads: Option<u64>,
    cell_memory_limit_mb: Option<u64>,
    #[serde(default)]
    quiet: SweepQuiet,
    #[serde(default, rename = "variant")]
    variants: Vec<Variant>,
    #[serde(default = "yes")]
    plain: bool,
    #[serde(default = "default_repeats")]
    repeats: u64,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    device: Device,
}

fn default_concurrency() -> Vec<u64> {
    vec![1]
}

fn default_max_tokens() -> u64 {
    32
}

fn default_warmup_tokens() -> u64 {
    4
}

fn default_timeout_s() -> f64 {
    300.0
}

fn default_repeats() -> u64 {
    1
}

fn yes() -> bool {
    true
}

fn default_runner() -> String {
    "decode-bench".to_owned()
}

/// The definition that is used where none is named, and why.
pub(crate) fn choose_default_config(host: &HostFacts) -> (&'static str, String) {
    match host.backend() {
        Backend::Cuda | Backend::Metal => {
            let name = host.gpu.as_ref().map_or("an Apple GPU", |gpu| gpu.name.as_str());
            (GPU_CONFIG, format!("this machine has a GPU ({name})"))
        }
        Backend::Cpu => {
            (CPU_CONFIG, "no GPU was found: neither an NVIDIA driver nor Metal".to_owned())
        }
    }
}

/// Reads a definition and lays a request over it.
///
/// # Errors
/// Syntax, unknown keys, and values that no sweep can have, all with the path.
pub(crate) fn parse_sweep_config(
    display_path: &str,
    text: &str,
    request: &Request,
) -> anyhow::Result<SweepConfig> {
    let raw: RawSweepConfig = parse_toml(display_path, text)?;
    let config = SweepConfig {
        models: request.models.clone().unwrap_or(raw.models),
        lengths: request.lengths.clone().unwrap_or(raw.lengths),
        concurrency: raw.concurrency,
        max_tokens: request.max_tokens.unwrap_or(raw.max_tokens),
        warmup_tokens: request.warmup_tokens.unwrap_or(raw.warmup_tokens),
        timeout: parse_seconds("timeout", request.timeout_s.unwrap_or(raw.timeout_s))?,
        cooldown: parse_seconds("cooldown", request.cooldown_s.unwrap_or(raw.cooldown_s))?,
        big_cooldown: parse_seconds(
            "big cooldown",
            request.big_cooldown_s.unwrap_or(raw.big_cooldown_s),
        )?,
        runner: request.runner.clone().unwrap_or(raw.runner),
        threads: raw.threads,
        cell_memory_limit_mb: request.cell_memory_limit_mb.or(raw.cell_memory_limit_mb),
        quiet: request.quiet.unwrap_or(raw.quiet),
        variants: raw.variants,
        plain: raw.plain,
        repeats: raw.repeats,
        order: raw.order,
        device: raw.device,
    };
    check_config(&config)?;
    Ok(config)
}

fn check_config(config: &SweepConfig) -> anyhow::Result<()> {
    if config.models.is_empty() {
        bail!("the sweep has no models");
    }
    if config.lengths.is_empty() {
        bail!("the sweep has no prompt lengths");
    }
    if config.lengths.iter().any(|length| length.prompt() == 0) {
        bail!("a prompt length of 0 cannot be measured");
    }
    if config.max_tokens == 0 || config.lengths.iter().any(|length| length.generate() == Some(0)) {
        bail!("generating 0 tokens leaves nothing to measure");
    }
    check_variants(&config.variants)?;
    if !config.plain && config.variants.is_empty() {
        bail!("`plain = false` without a `[[variant]]` leaves nothing to measure");
    }
    if config.repeats == 0 {
        bail!("`repeats` is 0: every cell is measured at least once");
    }
    if config.timeout.is_zero() {
        bail!("a timeout of 0 would end every cell at once");
    }
    if config.concurrency.is_empty() || config.concurrency.contains(&0) {
        bail!("`concurrency` needs one number of streams at least, and none of 0");
    }
    let repeated = find_repeated(&config.concurrency);
    if !repeated.is_empty() {
        let list: Vec<String> = repeated.iter().map(u64::to_string).collect();
        bail!("these numbers of streams are listed more than once: {}", list.join(", "));
    }
    // A pair that says what the whole sweep generates is the length alone.
    let alone = |length: &Length| match length.generate() {
        Some(generate) if generate == config.max_tokens => Length::Prompt(length.prompt()),
        _ => *length,
    };
    let repeated = find_repeated(&config.lengths.iter().map(alone).collect::<Vec<_>>());
    if !repeated.is_empty() {
        let list = render_lengths(&repeated);
        bail!("these prompt lengths are listed more than once: {list}");
    }
    Ok(())
}

fn parse_seconds(name: &str, seconds: f64) -> anyhow::Result<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        // More than a year is a slip, and times are added to clocks.
        Ok(duration) if duration.as_secs() < 366 * 86_400 => Ok(duration),
        _ => bail!("a {name} of {seconds} s is out of range"),
    }
}

/// Reads a list of lengths as the command line has it: separated by blanks or commas, `512` or
/// `512:64`.
pub(crate) fn parse_lengths(text: &str) -> anyhow::Result<Vec<Length>> {
    text.split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .map(|word| match word.parse() {
            Ok(length) => Ok(length),
            Err(_) => bail!("`{word}` is not a prompt length, nor PROMPT:GENERATE"),
        })
        .collect()
}

/// The words of all values of `--models`; `None` where there is no value. Blanks separate words,
/// except within `'…'` or `"…"`.
pub(crate) fn split_models(values: &[String]) -> anyhow::Result<Option<Vec<String>>> {
    let mut words = Vec::new();
    for value in values {
        let mut rest = value.trim_start();
        while let Some(first) = rest.chars().next() {
            let (word, after) = match rest.strip_prefix(['"', '\'']) {
                Some(quoted) => quoted
                    .split_once(first)
                    .with_context(|| format!("--models: a quote in `{value}` is not closed"))?,
                None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
            };
            if after.starts_with(|next: char| !next.is_whitespace()) {
                bail!("--models: there must be a blank after the quoted `{word}` in `{value}`");
            }
            words.push(word.to_owned());
            rest = after.trim_start();
        }
    }
    Ok((!values.is_empty()).then_some(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "models = [\"a\"]\nlengths = [512, 128]\ntimeout_s = 1.5\n";

    fn parse(text: &str, request: &Request) -> Result<SweepConfig, String> {
        parse_sweep_config("s.toml", text, request).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let config = parse(TEXT, &Request::default()).unwrap();
        assert_eq!(config.lengths, [512, 128].map(Length::Prompt));
        assert_eq!((config.max_tokens, config.warmup_tokens), (32, 4));
        assert_eq!(config.timeout, Duration::from_millis(1500));
        assert_eq!(config.runner, "decode-bench");
        assert_eq!(config.device, Device::Auto);
    }

    #[test]
    fn the_request_replaces_single_values() {
        let request = Request {
            lengths: Some(vec![Length::Prompt(7)]),
            timeout_s: Some(9.0),
            models: Some(vec!["b".to_owned()]),
            ..Request::default()
        };
        let config = parse(TEXT, &request).unwrap();
        assert_eq!(
            (config.lengths, config.models),
            (vec![Length::Prompt(7)], vec!["b".to_owned()])
        );
        assert_eq!(config.timeout, Duration::from_secs(9));
        let pair = vec![Length::Pair([8, 1])];
        let later = Request { lengths: Some(pair.clone()), ..Request::default() };
        let merged = later.or(request);
        assert_eq!((merged.lengths, merged.timeout_s), (Some(pair), Some(9.0)));
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let refused = |lengths: &str| {
            parse(&format!("models = [\"a\"]\nlengths = {lengths}\n"), &Request::default())
                .unwrap_err()
        };
        assert_eq!(
            refused("[512, 8, 512, 8, 512]"),
            "these prompt lengths are listed more than once: 512, 8"
        );
        assert_eq!(
            refused("[512, [512, 64], [8, 1], [512, 32], [8, 1]]"),
            "these prompt lengths are listed more than once: 512, 8:1"
        );
        assert!(refused("[[8, 0]]").contains("generating 0 tokens"));
        assert!(refused("[[8]]").contains("[prompt length, tokens to generate]"));
        assert!(refused("[8]\nplain = false").contains("without a `[[variant]]`"));
        assert_eq!(refused("[]"), "the sweep has no prompt lengths");
        assert_eq!(refused("[0]"), "a prompt length of 0 cannot be measured");
        assert_eq!(
            refused("[1]\nconcurrency = [4, 4]"),
            "these numbers of streams are listed more than once: 4"
        );
        assert!(refused("[1]\nconcurrency = [0]").contains("none of 0"));
        assert!(refused("[1]\nconcurrency = []").contains("one number of streams at least"));
        let key = refused("[1]\ncool_down_s = 2");
        assert!(key.contains("s.toml:3: unknown key `cool_down_s`"), "{key}");
        for bad in ["-1.0", "nan", "1e300"] {
            let text = format!("{TEXT}cooldown_s = {bad}\n");
            assert!(parse(&text, &Request::default()).unwrap_err().contains("out of range"));
        }
    }

    #[test]
    fn lengths_are_split_at_blanks_and_commas() {
        assert_eq!(
            render_lengths(&parse_lengths("512 2048:64,8192").unwrap()),
            "512, 2048:64, 8192"
        );
        let error = parse_lengths("512 2k").unwrap_err().to_string();
        assert_eq!(error, "`2k` is not a prompt length, nor PROMPT:GENERATE");
    }

    #[test]
    fn the_default_follows_the_machine() {
        let cpu = choose_default_config(&HostFacts::default());
        assert_eq!(cpu.0, CPU_CONFIG);
        let gpu = HostFacts {
            gpu: Some(crate::sys::hardware::GpuFacts {
                name: "NVIDIA H200".to_owned(),
                ..Default::default()
            }),
            ..HostFacts::default()
        };
        assert_eq!(
            choose_default_config(&gpu),
            (GPU_CONFIG, "this machine has a GPU (NVIDIA H200)".to_owned())
        );
    }

    #[test]
    fn models_are_split_at_blanks_and_quotes_keep_them() {
        let split = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            split_models(&values).map_err(|error| error.to_string())
        };
        let words = |values: &[&str]| split(values).unwrap().unwrap();
        assert_eq!(split(&[]).unwrap(), None);
        assert_eq!(words(&[""]), [""; 0]);
        assert_eq!(words(&[" a,b  models/* ", "c"]), ["a,b", "models/*", "c"]);
        assert_eq!(words(&[r#""a b" c 'd "e"'"#]), ["a b", "c", "d \"e\""]);
        assert_eq!(words(&[r"it's a\b"]), ["it's", r"a\b"]);
        assert_eq!(
            split(&[r#"c "a b"#]).unwrap_err(),
            r#"--models: a quote in `c "a b` is not closed"#
        );
        assert_eq!(
            split(&[r#""a b"c"#]).unwrap_err(),
            r#"--models: there must be a blank after the quoted `a b` in `"a b"c`"#
        );
    }
}
