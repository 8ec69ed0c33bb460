//! `cargo xtask report`.

use std::path::PathBuf;

/// Draw the picture of a sweep: speed over prompt length, and where it ended.
///
/// A line for each model shows decode tok/s, and prefill tok/s beside it, over the prompt length.
/// Below them each model has a row with a mark for each cell: measured, or not and why. The journal
/// beside the CSV adds the machine, the commit and the evidence of each cell. The picture is one SVG
/// file, light or dark as its reader prefers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask report --out docs/sweep.svg
      The newest sweep in benchmarks/.
  cargo xtask report benchmarks/cuda_gb10_longprompt_2026-07-03.csv --out /tmp/gb10.svg

Exit codes: 0 written; 2 the CSV cannot be read or holds no row, or the output has an unknown ending.")]
pub(crate) struct Args {
    /// The CSV of a sweep [default: the newest in benchmarks/].
    #[arg(value_name = "CSV")]
    pub(crate) csv: Option<PathBuf>,
    /// The file to write; its ending says what it will be. An older one is replaced.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) out: PathBuf,
}
