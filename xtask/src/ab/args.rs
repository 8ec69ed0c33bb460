//! `cargo xtask ab`.

use std::path::PathBuf;

/// Compare two settings of one binary, one variable apart.
///
/// Every run is a fresh process. Each block runs every leg once: `base` (without the variables,
/// whatever the shell has set), the legs that set them, and `null`, which is base again and shows how
/// large a difference is when nothing differs. The verdict on each metric is one of `faster`, `slower`
/// (`fewer`, `more`, `less` for counts and bytes), `equivalent`, `unresolved`, `inert` (the variable
/// did nothing, so there is nothing to compare) and `inconclusive`.
///
/// The raw runs, the result and the report go to benchmarks/ab/DATE-SLUG/. docs/METHODOLOGY.md says
/// how the verdict comes about.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask ab --env ARC_CANDLE_ALLOC_CACHE=0
      What does the allocator's cache do for the default model?
  cargo xtask ab --config bench-configs/ab/alloc-cache-mmap.toml --model smollm2-135m
      The same over a driver without a cache of its own, on another model.
  cargo xtask ab --leg small:ARC_ALLOC_CACHE_MAX_MB=1 --gate 'decode_tok_s >= -1%' \\
      --gate 'small.driver_frees_per_step == 0' --pairs 12
      A bound as a leg, and the conditions that it must meet.
  cargo xtask ab --env ARC_CANDLE_ALLOC_CACHE=0 --until-decided
      The same with as few blocks as the difference needs.
  cargo xtask ab --env ARC_CANDLE_ALLOC_CACHE=0 --baseline-bin /tmp/decode-bench-before
      Is the switched leg as fast as the build before the change?
  cargo xtask ab --env ARC_CANDLE_ALLOC_CACHE=0 -- --host-driver mmap
      Arguments after `--` go to the runner of every leg.
  cargo xtask ab --bisect v0.1.0..HEAD --pairs 12
      Which commit made the default model slower?
  cargo xtask ab --report benchmarks/ab/2026-11-30-arc-candle-alloc-cache-0-tiny
      Judge the runs of an earlier comparison again and rewrite its report.

Metrics: decode_tok_s, ms_per_token, prefill_tok_s, load_ms, driver_allocs_per_step,
driver_frees_per_step, alloc_ms_per_step, live_peak_mib, rss_peak_mib, slope_mib_per_token.

Gates: METRIC OP BOUND, where OP is >=, <=, >, <, == or !=. A bound in percent is a change against
base, a plain number bounds the metric itself. LEG.METRIC names a leg; without one, the gate holds for
every leg that sets a variable. A gate passes only if the whole 95 % interval meets it.

Exit codes: 0 compared and every gate passed; 1 inert, inconclusive, or a gate not met; 2 could not
run; 130 interrupted, with a partial report on disk (--resume goes on).")]
pub(crate) struct Args {
    /// A variable of the test leg; may be repeated.
    #[arg(long, value_name = "K=V")]
    pub(crate) env: Vec<String>,
    /// Another leg with its own variables; may be repeated.
    #[arg(long, value_name = "NAME:K=V[,K=V]")]
    pub(crate) leg: Vec<String>,
    /// Another leg that runs another binary, for example the build before a change.
    #[arg(long, value_name = "PATH")]
    pub(crate) baseline_bin: Option<PathBuf>,
    /// Run this binary in all other legs, instead of the one that the runner builds or names.
    #[arg(long, value_name = "PATH")]
    pub(crate) base_bin: Option<PathBuf>,
    /// Find the first commit that is slower than GOOD: builds each in a work tree and compares it with
    /// GOOD's program. What does not build or stays unresolved is passed over.
    #[arg(long, value_name = "GOOD..BAD", conflicts_with_all = [
        "env", "leg", "baseline_bin", "base_bin", "json",
    ])]
    pub(crate) bisect: Option<String>,
    /// The model: a geometry, a folder under models/, or a path [default: tiny].
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// Prompt length in tokens [default: 128].
    #[arg(long, value_name = "N")]
    pub(crate) prompt_tokens: Option<u64>,
    /// Tokens to generate; the engine notes held memory every 64 [default: 321].
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Run exactly this many blocks, at least 5 [default: 6 or more, until the interval is narrower
    /// than the margin, at most 40 or for 2.5 minutes].
    #[arg(long, value_name = "N")]
    pub(crate) pairs: Option<usize>,
    /// Stop as soon as the difference is beyond zero and the noise, or within the margin, by an interval
    /// that holds at every look with 99 % confidence; it takes at least ten blocks.
    #[arg(long, conflicts_with = "pairs")]
    pub(crate) until_decided: bool,
    /// The smallest difference that matters, in percent [default: 1].
    #[arg(long, value_name = "PCT")]
    pub(crate) margin: Option<f64>,
    /// A condition on the result, for example "decode_tok_s >= -1%"; may be repeated.
    #[arg(long, value_name = "EXPR")]
    pub(crate) gate: Vec<String>,
    /// Seed of the order of the runs and of the bootstrap [default: 1].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// A definition in TOML; options on the command line override it.
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// How a run is measured, from bench-configs/runners/ [default: decode-bench].
    #[arg(long, value_name = "NAME")]
    pub(crate) runner: Option<String>,
    /// Note it if legs generate different tokens, instead of refusing to compare them.
    #[arg(long)]
    pub(crate) allow_different_output: bool,
    /// Compare even if the OOM record has this model at this length.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
    /// Say nothing of the progress on stderr.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print result.json to stdout instead of the table and the verdicts.
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on with an interrupted comparison; its samples.jsonl says what it compares. A definition
    /// outside the checkout is given again with --config.
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "env", "leg", "model", "prompt_tokens", "max_tokens", "pairs", "until_decided", "margin", "gate",
        "seed", "bisect", "runner", "allow_different_output", "runner_args",
    ])]
    pub(crate) resume: Option<PathBuf>,
    /// Judge the runs of an earlier comparison again, and rewrite its result.json and report.md.
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "env", "leg", "model", "prompt_tokens", "max_tokens", "pairs", "until_decided", "margin", "gate",
        "seed", "bisect", "base_bin", "config", "runner", "allow_different_output", "runner_args", "baseline_bin",
        "ignore_oom_record", "resume",
    ])]
    pub(crate) report: Option<PathBuf>,
    /// With --report: write nothing, and exit with 1 if the files differ from what the runs say.
    #[arg(long, requires = "report")]
    pub(crate) check: bool,
    /// Arguments for the runner of every leg, after its own.
    #[arg(last = true, value_name = "RUNNER_ARGS")]
    pub(crate) runner_args: Vec<String>,
}
