//! What quantisation does to the distribution of the next token, beside what it does in llama.cpp.
//!
//! `cargo bench -p engine --bench divergence -- --base F16.gguf --llama-perplexity PATH MODEL.gguf…`
//!
//! For each model the Kullback-Leibler divergence of its distributions from those of the base, over
//! the second half of each chunk of 512 tokens of `text.txt`, in nats: both from this engine. Then
//! the same from llama.cpp's `llama-perplexity --kl-divergence`, which cuts the text alike.
#![allow(clippy::print_stdout)] // A benchmark's output is its data.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use candle_core::Device;
use clap::Parser as _;
use engine::model::gguf::Gguf;
use engine::model::tokenizer::TextCodec;
use engine::model::{Logits, Transformer};

const TEXT: &str = include_str!("text.txt");
/// Tokens of a chunk; the first half of each is context alone.
const CHUNK: usize = 512;

/// The options behind `--`.
#[derive(Debug, clap::Parser)]
struct Args {
    /// The model in half precision, GGUF.
    #[arg(long)]
    base: PathBuf,
    /// llama.cpp's `llama-perplexity`; also taken from the environment variable LLAMA_PERPLEXITY.
    #[arg(long)]
    llama_perplexity: Option<PathBuf>,
    /// Compute threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The same model, quantised.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How far distributions are from those of the base.
struct Divergence {
    mean: f64,
    largest: f64,
    /// Share of positions where the likeliest token is the same.
    same_top: f64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    engine::runner::init_threads(std::num::NonZeroUsize::new(args.threads));
    let base = log_probabilities(&args.base)?;
    println!("{} distributions of `{}`", base.len(), args.base.display());
    let peer =
        args.llama_perplexity.or_else(|| std::env::var_os("LLAMA_PERPLEXITY").map(Into::into));
    let peer = peer
        .map(|program| Peer::new(program, &args.base, args.threads))
        .transpose()
        .context("llama.cpp")?;
    println!(
        "| | Arc: mean | largest | same token | llama.cpp: mean | largest | same token | Arc over llama.cpp |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for model in &args.models {
        let name = model.file_stem().unwrap_or_default().to_string_lossy();
        let ours = compare(&base, &log_probabilities(model)?);
        let theirs = peer.as_ref().map(|peer| peer.compare(model)).transpose()?;
        let columns = |found: &Divergence| {
            format!("{:.6} | {:.4} | {:.1} %", found.mean, found.largest, 100.0 * found.same_top)
        };
        let (theirs, ratio) = match theirs {
            Some(theirs) => (columns(&theirs), format!("{:.2}", ours.mean / theirs.mean)),
            None => ("not run | | ".to_owned(), String::new()),
        };
        println!("| {name} | {} | {theirs} | {ratio} |", columns(&ours));
    }
    Ok(())
}

/// The logarithms of the probabilities of all tokens, at each position of the second half of each chunk
/// but its last.
fn log_probabilities(path: &Path) -> anyhow::Result<Vec<Vec<f64>>> {
    let (gguf, _) = Gguf::read(path)?;
    let codec = TextCodec::read(&gguf, path)?.context("the model has no tokenizer")?;
    let tokens = codec.encode(TEXT)?;
    let mut model = Transformer::load(&gguf, path, &Device::Cpu)?;
    let mut found = Vec::new();
    for chunk in tokens.chunks_exact(CHUNK) {
        let mut cache = model.new_cache(CHUNK)?;
        let (before, rest) = chunk.split_at(CHUNK / 2);
        model.forward(before, &mut cache, Logits::Skip)?;
        let mut logits = Vec::new();
        for &token in &rest[..rest.len() - 1] {
            model.forward_batch(&[&[token]], &mut [&mut cache], Logits::Last, &mut logits)?;
            found.push(log_softmax(&logits));
        }
    }
    Ok(found)
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted = logits.iter().map(|&logit| f64::from(logit) - f64::from(greatest));
    let sum = shifted.clone().map(f64::exp).sum::<f64>().ln();
    shifted.map(|logit| logit - sum).collect()
}

fn compare(base: &[Vec<f64>], other: &[Vec<f64>]) -> Divergence {
    let top = |values: &[f64]| {
        values.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(index, _)| index)
    };
    let (mut sum, mut largest, mut same) = (0.0, 0f64, 0);
    for (p, q) in base.iter().zip(other) {
        let divergence: f64 = p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum();
        sum += divergence;
        largest = largest.max(divergence);
        same += usize::from(top(p) == top(q));
    }
    let count = base.len() as f64;
    Divergence { mean: sum / count, largest, same_top: same as f64 / count }
}

/// llama.cpp's `llama-perplexity`.
struct Peer {
    program: PathBuf,
    threads: usize,
    folder: PathBuf,
}

impl Peer {
    /// Lets it note the distributions of the base.
    fn new(program: PathBuf, base: &Path, threads: usize) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("arc-divergence-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let peer = Self { program, threads, folder };
        std::fs::write(peer.folder.join("text.txt"), TEXT)?;
        peer.run(base, &[])?;
        Ok(peer)
    }

    fn run(&self, model: &Path, more: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(&self.program)
            .arg("-m")
            .arg(model)
            .arg("-f")
            .arg(self.folder.join("text.txt"))
            .args(["-t", &self.threads.to_string(), "-c", &CHUNK.to_string()])
            .arg("--kl-divergence-base")
            .arg(self.folder.join("base"))
            .args(more)
            .output()
            .with_context(|| format!("cannot run `{}`", self.program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "`{}`: {errors}", self.program.display());
        Ok(text + &errors)
    }

    fn compare(&self, model: &Path) -> anyhow::Result<Divergence> {
        let text = self.run(model, &["--kl-divergence"])?;
        let number = |label: &str| -> anyhow::Result<f64> {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label));
            let line = line.with_context(|| format!("llama-perplexity prints no `{label}`"))?;
            let word = line.trim_start_matches([':', ' ']).split_whitespace().next();
            Ok(word.context("a line without a number")?.parse()?)
        };
        Ok(Divergence {
            mean: number("Mean    KLD")?,
            largest: number("Maximum KLD")?,
            same_top: number("Same top p")? / 100.0,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
