//! `cargo xtask gpu-check`.

use std::path::PathBuf;

/// Check a built `decode-bench` on a GPU within five minutes, with synthetic models only.
///
/// Runs the program on the device, one process a run, and judges its reports: whether it starts; what
/// the cache does to a decode step (on and killed in turns: driver allocations, frees and host time a
/// step, tok/s, the same tokens); memory over 2500 tokens (on, killed, without a cap); a cap of 1 MiB;
/// a full device, from which the cache must rescue the run; and a short run under compute-sanitizer,
/// where it is installed. Counts, bytes and tokens decide; times are only reported.
///
/// The program generates the weights on first use. A run that no longer fits into the time is
/// skipped, and the table says so. Each run's report is on disk before the next run starts, in a new
/// folder named after the card; nothing there is ever overwritten.
///
/// Nothing is built. If the machine has no cargo, copy the built `xtask` there and call it as `xtask
/// gpu-check` in a checkout. A folder `lib` beside the program goes in front of LD_LIBRARY_PATH.
///
/// Exit codes: 0 some checks passed and none failed (those that were not possible are listed); 1 a
/// check failed; 2 it could not run, or no check was possible; 130 interrupted, with everything
/// finished so far on disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask gpu-check --binary target/cuda/sm_90/decode-bench
  cargo xtask gpu-check --binary target/cuda/sm_90/decode-bench --quick --model tiny
      A first look, in seconds.
  cargo xtask gpu-check --binary decode-bench --device cuda:1 --budget-s 600 --json")]
pub(crate) struct Args {
    /// The program, built with the feature `cuda`.
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: PathBuf,
    /// The device, as the program takes it.
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0")]
    pub(crate) device: String,
    /// A model; may be repeated. The first gets every check, the others start and decode.
    #[arg(long = "model", value_name = "M", default_values = ["llama-3.2-1b", "llama-3.1-8b"])]
    pub(crate) models: Vec<String>,
    /// The folder to write; it must not exist [default: benchmarks/ab/DATE-gpu-check-CARD].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Fewer and shorter runs, of the first model only.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Time for everything together, in seconds.
    #[arg(long, value_name = "S", default_value_t = 280.0, value_parser = parse_budget)]
    pub(crate) budget_s: f64,
    /// Launch although the OOM record holds a model at one of the lengths.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
    /// Print result.json instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_budget(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("give a number of seconds above 0, at most 86400".to_owned()),
    }
}
