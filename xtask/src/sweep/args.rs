//! `cargo xtask sweep`.

use std::path::PathBuf;

/// Measure models at prompt lengths, one process a cell, and never launch a cell that is known to
/// run out of memory.
#[derive(Debug, Clone, clap::Args)]
#[command(long_about = LONG_ABOUT, after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// The definition to run; without it the machine decides, and it is said why.
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Models instead of the definition's: synthetic names, folders of models/, paths, globs. Blanks
    /// separate them, except within quotes: --models '"a b" c'. May be repeated.
    #[arg(long, value_name = "\"A B\"")]
    pub(crate) models: Vec<String>,
    /// Prompt lengths instead of the definition's, in tokens.
    #[arg(long, value_name = "\"512 2048\"")]
    pub(crate) lengths: Option<String>,
    /// Tokens to generate at most.
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Tokens of the pass that is discarded before the measured one.
    #[arg(long, value_name = "N")]
    pub(crate) warmup_tokens: Option<u64>,
    /// When a cell is ended, in seconds.
    #[arg(long, value_name = "S")]
    pub(crate) timeout: Option<f64>,
    /// Pause after each launched cell, in seconds.
    #[arg(long, value_name = "S")]
    pub(crate) cooldown: Option<f64>,
    /// Pause instead of it after a cell that was hard on the machine (out of memory, timeout,
    /// killed, or over half of memory in use), in seconds.
    #[arg(long, value_name = "S")]
    pub(crate) big_cooldown: Option<f64>,
    /// Limit on the address space of each cell, in MiB: makes a real out-of-memory safe to have.
    #[arg(long, value_name = "N")]
    pub(crate) cell_memory_limit_mb: Option<u64>,
    /// The CSV to write; refused if it exists. Without it the name says machine and date.
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    pub(crate) output: Option<PathBuf>,
    /// Go on with a sweep that was interrupted or killed, with what its journal says.
    #[arg(long, value_name = "CSV")]
    pub(crate) resume: Option<PathBuf>,
    /// With --resume: launch the cell again during which the host was lost.
    #[arg(long, requires = "resume")]
    pub(crate) retry_lost: bool,
    /// Launch cells that the OOM record holds; new OOMs are still recorded.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
    /// Do not launch these cells but have them run out of memory.
    #[arg(long, value_name = "MODEL:LEN[,MODEL:LEN…]")]
    pub(crate) fake_oom: Option<String>,
    /// Do not launch this cell but have it yield a class.
    #[arg(long, value_name = "MODEL:LEN:CLASS", hide = true)]
    pub(crate) fake_cell: Vec<String>,
    /// What measures: a name in bench-configs/runners/.
    #[arg(long, value_name = "NAME")]
    pub(crate) runner: Option<String>,
    /// Print what each cell would do and why, and launch nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// Exit with 1 if any cell was skipped, not only if one failed.
    #[arg(long)]
    pub(crate) strict: bool,
}

const LONG_ABOUT: &str = "\
Measure models at prompt lengths, one process a cell, and never launch a cell that is known to run \
out of memory.

All lengths of a model are measured before the next model. Rows go to a CSV as cells end, everything \
else that is known to `<csv>.journal.jsonl` beside it. A cell that was not measured is a row with a \
class at its end, never a missing line.

Exit codes: 0 done; 1 a cell failed (`FAIL:` row; with --strict also a skipped one); 2 it could not \
run; 130 interrupted, and --resume goes on.";

const AFTER_LONG_HELP: &str = "\
Out of memory:
  A cell that was launched and ran out of memory is `SKIP:oom`. Only that class has consequences:
  every later cell of its model that is as long or longer is `SKIP:oom_backstop`, and one line goes
  to benchmarks/.oom-record:

    model,prompt_target_len,date,commit,peak_bytes,source_csv

  In later sweeps every cell of that model that is as long or longer is `SKIP:oom_record`: it is not
  launched, and the line is shown. Failures, timeouts, missing models and the weight-size check
  (`SKIP:oom_estimate`) have no such consequences.

When a record is stale:
  A record goes stale when memory behaviour improves. One model's out-of-memory at 32,768 tokens kept
  being skipped after chunked prefill had removed its cause. Test again, then prune:

    MLXCEL_BENCH_IGNORE_OOM_RECORD=1 cargo xtask sweep --models M     (or --ignore-oom-record)
    cargo xtask oom-record explain M 32768
    cargo xtask oom-record prune --model M
    cargo xtask oom-record prune --fixed-by REV      lines from before a fix
    cargo xtask oom-record prune --before 2026-07-06

  The override turns off the skipping alone: a new out-of-memory is still recorded.

Variables:
  MLXCEL_BENCH_IGNORE_OOM_RECORD=1    as --ignore-oom-record
  MLXCEL_BENCH_FAKE_OOM=\"M:512\"       as --fake-oom
  BENCH_MEM_OVERHEAD_FACTOR=1.2       scales the weight-size check (default 1.0)
  ARC_DRIVER_DEADLINE_S=30            how long the NVIDIA driver may take to answer (default 5)
  ARC_NVML_LIBRARY=PATH               the NVML to ask, where it is in no search path

Examples:
  cargo xtask sweep --list
  cargo xtask sweep
  cargo xtask sweep --models \"tiny models/*\" --lengths \"512 2048\" --max-tokens 16
  cargo xtask sweep --resume benchmarks/cpu_xeon_small_2026-07-06.csv
  cargo xtask sweep --fake-oom tiny:512 --output /tmp/try.csv

The formats are in docs/FORMATS.md.";
