//! Decode and prefill speed, next to other implementations on the same file, interleaved in one run.
//!
//! `cargo bench -p engine --bench decode --features peers -- --model models/smollm2-135m`
//!
//! Every round measures each implementation once, so that a machine that becomes slower becomes
//! slower for all. Also measures how fast the machine reads memory, which bounds decode from below:
//! each token reads every weight once.
#![allow(clippy::print_stdout)] // A benchmark's output is its data.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser as _;
use engine::model::source::find_model;
use llama_bench::{Kind, LlamaBench};

mod bandwidth;
mod llama_bench;
mod ours;
#[cfg(feature = "peers")]
mod transformers;

/// The options behind `--`.
#[derive(Debug, clap::Parser)]
struct Args {
    /// GGUF file, folder with one, or synthetic description.
    #[arg(long, default_value = "../bench-configs/models/smollm2-135m.toml")]
    model: PathBuf,
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
    let source = find_model(&args.model)?;
    let capacity = args.kv.iter().copied().max().unwrap_or(0).max(args.prefill)
        + args.steps * (args.rounds + 1)
        + 1;
    let ours = ours::Ours::load(&source.gguf, capacity)?;
    let bytes = ours.weight_bytes_per_token();
    let memory = bandwidth::measure(args.threads, bandwidth::BEYOND_CACHES);
    let resident = bandwidth::measure(args.threads, bytes as usize);
    println!(
        "model {}, {} threads, kernels {}, {} rounds",
        source.name,
        args.threads,
        ours.kernels(),
        args.rounds
    );
    println!("weights read per token: {:.1} MB", bytes as f64 / 1e6);
    for (what, rate) in [("1 GiB, beyond caches", memory), ("as much as the weights", resident)] {
        println!(
            "reading {what}: {:.1} GB/s, which bounds decode at {:.0} tok/s",
            rate / 1e9,
            rate / bytes as f64
        );
    }
    let mut contestants: Vec<Box<dyn Contestant>> = vec![Box::new(ours)];
    #[cfg(feature = "peers")]
    contestants.push(Box::new(
        transformers::Transformers::load(&source.gguf).context("candle-transformers")?,
    ));
    #[cfg(not(feature = "peers"))]
    println!("candle-transformers: skipped, build with --features peers");
    for (kind, given, variable) in [
        (Kind::Llama, &args.llama_bench, "LLAMA_BENCH"),
        (Kind::IkLlama, &args.ik_llama_bench, "IK_LLAMA_BENCH"),
    ] {
        match given.clone().or_else(|| std::env::var_os(variable).map(Into::into)) {
            Some(program) => contestants.push(Box::new(LlamaBench {
                kind,
                program,
                model: source.gguf.clone(),
                threads: args.threads,
            })),
            None => println!("{kind:?}: skipped, give its llama-bench or set {variable}"),
        }
    }

    let start = Instant::now();
    let title = format!("prefill {}", args.prefill);
    compare(&title, &mut contestants, args.rounds, |c| c.prefill(args.prefill))?;
    for &kv in &args.kv {
        for contestant in &mut contestants {
            contestant.fill(kv).with_context(|| contestant.name())?;
        }
        let title = format!("decode at {kv}");
        compare(&title, &mut contestants, args.rounds, |c| c.decode(kv, args.steps))?;
    }
    println!("took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// One discarded round, then `rounds`, in each of which every contestant runs once.
fn compare(
    title: &str,
    contestants: &mut [Box<dyn Contestant>],
    rounds: usize,
    mut run: impl FnMut(&mut dyn Contestant) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let mut samples = vec![Vec::new(); contestants.len()];
    for round in 0..=rounds {
        for (contestant, samples) in contestants.iter_mut().zip(&mut samples) {
            let rate = run(contestant.as_mut()).with_context(|| contestant.name())?;
            if round > 0 {
                samples.push(rate);
            }
        }
    }
    let ours = samples[0].clone();
    for (contestant, samples) in contestants.iter().zip(samples) {
        // Ratios within a round, because what slows a round slows both of its runs.
        let ratios = ours.iter().zip(&samples).map(|(ours, theirs)| ours / theirs).collect();
        let (low, middle, high) = spread(samples);
        let (ratio_low, ratio, ratio_high) = spread(ratios);
        println!(
            "{title:<16} {:<20} {middle:8.1} tok/s ({low:.1} to {high:.1}); arc is {ratio:.2}× \
             ({ratio_low:.2} to {ratio_high:.2})",
            contestant.name(),
        );
    }
    Ok(())
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
