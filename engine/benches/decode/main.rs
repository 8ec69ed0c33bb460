//! Decode and prefill speed, next to other implementations on the same files, interleaved in one run, as
//! a table in Markdown.
//!
//! `cargo bench -p engine --bench decode --features peers -- --threads 1 models/smollm2-135m`
//!
//! Every round measures each implementation once, so that a machine that becomes slower becomes
//! slower for all. Also measures, once, how fast as many threads read memory: each token of decode
//! reads every weight once. That is a rate that was reached, not the most that can be.
#![allow(clippy::print_stdout)] // A benchmark's output is its data.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser as _;
use engine::model::source::{ModelSource, find_model};
use llama_bench::{Kind, LlamaBench};

mod bandwidth;
mod llama_bench;
mod ours;
#[cfg(feature = "peers")]
mod transformers;

/// The options behind `--`.
#[derive(Debug, clap::Parser)]
struct Args {
    /// GGUF files, folders with one, or synthetic descriptions.
    #[arg(default_value = "../bench-configs/models/smollm2-135m.toml")]
    models: Vec<PathBuf>,
    /// llama.cpp's `llama-bench`; also taken from the environment variable LLAMA_BENCH.
    #[arg(long)]
    llama_bench: Option<PathBuf>,
    /// ik_llama.cpp's `llama-bench`; also taken from the environment variable IK_LLAMA_BENCH.
    #[arg(long)]
    ik_llama_bench: Option<PathBuf>,
    /// Compute threads of every implementation.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Tokens of the prompt whose prefill is measured.
    #[arg(long, default_value_t = 512)]
    prefill: usize,
    /// Positions in the KV cache at which decode is measured.
    #[arg(long, value_delimiter = ',', default_value = "128,2048")]
    kv: Vec<usize>,
    /// Decode steps in each round.
    #[arg(long, default_value_t = 16)]
    steps: usize,
    /// Rounds.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Something that decodes the model.
trait Contestant {
    fn name(&self) -> &'static str;
    /// Tokens per second of a prefill of `tokens` tokens.
    fn prefill(&mut self, tokens: usize) -> anyhow::Result<f64>;
    /// Brings the KV cache to `kv` positions, if it is kept between rounds.
    fn fill(&mut self, kv: usize) -> anyhow::Result<()>;
    /// Tokens per second of `steps` decode steps from about `kv` positions on.
    fn decode(&mut self, kv: usize, steps: usize) -> anyhow::Result<f64>;
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    engine::runner::init_threads(std::num::NonZeroUsize::new(args.threads));
    let start = Instant::now();
    let rate = bandwidth::measure(args.threads, bandwidth::BEYOND_CACHES);
    println!(
        "{} threads, {} rounds; reading 1 GiB: {:.1} GB/s; load {}",
        args.threads,
        args.rounds,
        rate / 1e9,
        load()
    );
    for (index, model) in args.models.iter().enumerate() {
        let source = find_model(model)?;
        let ours = ours::Ours::load(&source.gguf, capacity(&args))?;
        let (bytes, kernels) = (ours.weight_bytes_per_token(), ours.kernels());
        let mut contestants = contestants(&args, &source, ours)?;
        if index == 0 {
            println!("kernels {kernels}\n");
            print_head(&contestants);
        }
        let row = |test: &str, at_rate: Option<f64>, samples: &[Vec<f64>]| {
            println!("| {}, {test} | {} |", source.name, cells(samples, at_rate).join(" | "));
        };
        let test = format!("prefill {}", args.prefill);
        let samples = compare(&mut contestants, args.rounds, |c| c.prefill(args.prefill))?;
        row(&test, None, &samples);
        for &kv in &args.kv {
            for contestant in &mut contestants {
                contestant.fill(kv).with_context(|| contestant.name())?;
            }
            let samples = compare(&mut contestants, args.rounds, |c| c.decode(kv, args.steps))?;
            row(&format!("decode at {kv}"), Some(rate / bytes as f64), &samples);
        }
    }
    println!("\ntook {:.0} s; load {}", start.elapsed().as_secs_f64(), load());
    Ok(())
}

/// The system's load averages, which say whether others were at work.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Positions that a cache needs.
fn capacity(args: &Args) -> usize {
    let longest = args.kv.iter().copied().max().unwrap_or(0).max(args.prefill);
    longest + args.steps * (args.rounds + 1) + 1
}

/// Who decodes the model, Arc first.
fn contestants(
    args: &Args,
    source: &ModelSource,
    ours: ours::Ours,
) -> anyhow::Result<Vec<Box<dyn Contestant>>> {
    let mut contestants: Vec<Box<dyn Contestant>> = vec![Box::new(ours)];
    #[cfg(feature = "peers")]
    contestants.push(Box::new(
        transformers::Transformers::load(&source.gguf).context("candle-transformers")?,
    ));
    for (kind, given, variable) in [
        (Kind::Llama, &args.llama_bench, "LLAMA_BENCH"),
        (Kind::IkLlama, &args.ik_llama_bench, "IK_LLAMA_BENCH"),
    ] {
        if let Some(program) = given.clone().or_else(|| std::env::var_os(variable).map(Into::into))
        {
            contestants.push(Box::new(LlamaBench {
                kind,
                program,
                model: source.gguf.clone(),
                threads: args.threads,
            }));
        }
    }
    Ok(contestants)
}

fn print_head(contestants: &[Box<dyn Contestant>]) {
    let names: Vec<&str> = contestants.iter().map(|contestant| contestant.name()).collect();
    let ratios: Vec<String> =
        names[1..].iter().map(|name| format!("{} over {name}", names[0])).collect();
    println!("| | {} | {} | at the read rate |", names.join(" | "), ratios.join(" | "));
    println!("|{}", " --- |".repeat(names.len() + ratios.len() + 2));
}

/// Speeds of each, then ratios of the first to each other, then the speed at which every weight would be
/// read at the rate that was measured.
fn cells(samples: &[Vec<f64>], at_rate: Option<f64>) -> Vec<String> {
    let shown = |values: Vec<f64>, digits: usize| {
        let (low, middle, high) = spread(values);
        format!("{middle:.digits$} ({low:.digits$}–{high:.digits$})")
    };
    let digits = if samples[0].iter().all(|speed| *speed < 100.0) { 1 } else { 0 };
    let speeds = samples.iter().map(|samples| shown(samples.clone(), digits));
    // Within a round, because what slows a round slows both of its runs.
    let ratios = samples[1..].iter().map(|theirs| {
        let pairs = samples[0].iter().zip(theirs);
        shown(pairs.map(|(ours, theirs)| ours / theirs).collect(), 2)
    });
    let rate = at_rate.map_or_else(String::new, |speed| format!("{speed:.digits$}"));
    speeds.chain(ratios).chain([rate]).collect()
}

/// One discarded round, then `rounds`, in each of which every contestant runs once: tokens per second
/// of each.
fn compare(
    contestants: &mut [Box<dyn Contestant>],
    rounds: usize,
    mut run: impl FnMut(&mut dyn Contestant) -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut samples = vec![Vec::new(); contestants.len()];
    for round in 0..=rounds {
        for (contestant, samples) in contestants.iter_mut().zip(&mut samples) {
            let rate = run(contestant.as_mut()).with_context(|| contestant.name())?;
            if round > 0 {
                samples.push(rate);
            }
        }
    }
    Ok(samples)
}

/// Least, median and greatest.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    };
    (values[0], median, values[values.len() - 1])
}
