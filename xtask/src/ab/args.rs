//! `cargo xtask ab`.

use std::path::PathBuf;

/// Compare two settings of one binary, one variable apart, with a verdict that survives a sceptic.
///
/// Every run is a fresh process. Blocks hold each leg once: `base` (the variables removed from the
/// environment, whatever the shell has), the legs that set them, and `null`, which is base again and
/// shows how large a difference is when nothing differs. The verdict on each metric is one of
/// `faster`, `slower`, `equivalent`, `unresolved`, `inert` (the variable did nothing, so that no
/// comparison was made) and `inconclusive`.
///
/// Raw runs, result and report go to benchmarks/ab/DATE-SLUG/. docs/METHODOLOGY.md says how the
/// verdict comes about.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask ab --env ARC_CANDLE_ALLOC_CACHE=0
      What does the allocator's cache do for the default model?
  cargo xtask ab --config bench-configs/ab/alloc-cache-mmap.toml --model smollm2-135m
      The same over a driver without a cache of its own, on another model.
  cargo xtask ab --leg small:ARC_ALLOC_CACHE_MAX_MB=1 --gate 'decode_tok_s >= -1%' \\
      --gate 'small.driver_frees_per_step == 0' --pairs 12
      A bound as a leg, and what it must hold.
  cargo xtask ab --env ARC_CANDLE_ALLOC_CACHE=0 --baseline-bin /tmp/decode-bench-before
      Does the switched leg land back on the build before the change?
  cargo xtask ab --env ARC_CANDLE_ALLOC_CACHE=0 -- --host-driver mmap
      Arguments after `--` go to the runner of every leg.

Gates: METRIC OP BOUND, where OP is <=, >=, ==, < or >. A bound in percent is a change against base,
a plain number bounds the metric itself. LEG.METRIC names a leg; without, the gate holds for every leg
that sets a variable. A gate passes only where the whole 95 % interval meets it.

Exit codes: 0 compared and every gate passed; 1 inert, inconclusive, or a gate not met; 2 could not
run; 130 interrupted, with a partial report on disk (--resume goes on).")]
pub(crate) struct Args {
    /// A variable of the test leg; may be repeated.
    #[arg(long, value_name = "K=V")]
    pub(crate) env: Vec<String>,
    /// A further leg with variables of its own; may be repeated.
    #[arg(long, value_name = "NAME:K=V[,K=V]")]
    pub(crate) leg: Vec<String>,
    /// A further leg with another binary, for example the build before a change.
    #[arg(long, value_name = "PATH")]
    pub(crate) baseline_bin: Option<PathBuf>,
    /// The model: a geometry, a folder under models/, or a path [default: tiny].
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// Prompt length in tokens [default: 128].
    #[arg(long, value_name = "N")]
    pub(crate) prompt_tokens: Option<u64>,
    /// Tokens to generate; the engine looks at held memory every 64 [default: 321].
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Exactly this many blocks, at least 5 [default: from 6 until the interval is narrower than the
    /// margin, at most 40 or for 2.5 minutes].
    #[arg(long, value_name = "N")]
    pub(crate) pairs: Option<usize>,
    /// The smallest difference that matters, in percent [default: 1].
    #[arg(long, value_name = "PCT")]
    pub(crate) margin: Option<f64>,
    /// A condition on the result, for example "decode_tok_s >= -1%"; may be repeated.
    #[arg(long, value_name = "EXPR")]
    pub(crate) gate: Vec<String>,
    /// Seed of the order of the runs and of the bootstrap [default: 1].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// A definition in TOML; what the command line gives goes over it.
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// How a run is measured, from bench-configs/runners/ [default: decode-bench].
    #[arg(long, value_name = "NAME")]
    pub(crate) runner: Option<String>,
    /// Note different tokens instead of refusing the comparison.
    #[arg(long)]
    pub(crate) allow_different_output: bool,
    /// Compare although the OOM record holds this model at this length.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
    /// Print result.json to stdout instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on with an interrupted comparison; what it compares is in its samples.jsonl.
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "env", "leg", "model", "prompt_tokens", "max_tokens", "pairs", "margin", "gate", "seed",
        "config", "runner", "allow_different_output", "runner_args",
    ])]
    pub(crate) resume: Option<PathBuf>,
    /// Arguments for the runner of every leg, after its own.
    #[arg(last = true, value_name = "RUNNER_ARGS")]
    pub(crate) runner_args: Vec<String>,
}
