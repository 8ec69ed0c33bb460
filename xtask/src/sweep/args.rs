//! `cargo xtask sweep`.

use std::path::PathBuf;

use crate::cell::quiet::SweepQuiet;

/// Measure models at prompt lengths, one process per cell, and never launch a cell that is known to
/// run out of memory.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(long_about = LONG_ABOUT, after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// The definition to run. By default the hardware decides which, and the log says why.
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Models to measure instead of the definition's: synthetic names, folders under models/, paths or
    /// globs, separated by blanks (quote a name that has one: --models '"a b" c'). Can be repeated.
    #[arg(long, value_name = "\"A B\"")]
    pub(crate) models: Vec<String>,
    /// Prompt lengths to measure instead of the definition's, in tokens; `512:64` generates 64 after 512.
    #[arg(long, value_name = "\"512 2048\"")]
    pub(crate) lengths: Option<String>,
    /// Generate at most this many tokens.
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Generate this many tokens in the warm-up pass, which is discarded.
    #[arg(long, value_name = "N")]
    pub(crate) warmup_tokens: Option<u64>,
    /// Stop a cell after this many seconds.
    #[arg(long, value_name = "S")]
    pub(crate) timeout: Option<f64>,
    /// Pause after each launched cell, in seconds.
    #[arg(long, value_name = "S")]
    pub(crate) cooldown: Option<f64>,
    /// Longer pause after a cell that strained the machine (out of memory, timeout, killed, or more
    /// than half of memory used), in seconds.
    #[arg(long, value_name = "S")]
    pub(crate) big_cooldown: Option<f64>,
    /// Limit the address space of each cell, in MiB, so that a real out-of-memory does no harm.
    #[arg(long, value_name = "N")]
    pub(crate) cell_memory_limit_mb: Option<u64>,
    /// What becomes of a cell that other load, sleep, throttling or a stop disturbed: it is not looked
    /// at, noted, or repeated (at most twice).
    #[arg(long, value_enum, value_name = "RULE")]
    pub(crate) quiet: Option<SweepQuiet>,
    /// The CSV to write, which must not exist. By default it is named for machine and date.
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    pub(crate) output: Option<PathBuf>,
    /// Continue a sweep that was interrupted or killed, with the settings in its journal.
    #[arg(long, value_name = "CSV")]
    pub(crate) resume: Option<PathBuf>,
    /// With --resume: launch the cell again during which the host went down.
    #[arg(long, requires = "resume")]
    pub(crate) retry_lost: bool,
    /// Launch cells that the OOM record blocks; new OOMs are still recorded.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
    /// Pretend that these cells run out of memory, without launching them.
    #[arg(long, value_name = "MODEL:LEN[,MODEL:LEN…]")]
    pub(crate) fake_oom: Option<String>,
    /// Pretend that this cell ends in a class, without launching it.
    #[arg(long, value_name = "MODEL:LEN:CLASS", hide = true)]
    pub(crate) fake_cell: Vec<String>,
    /// The runner that measures: a name in bench-configs/runners/.
    #[arg(long, value_name = "NAME")]
    pub(crate) runner: Option<String>,
    /// Print what would happen to each cell and why, and launch nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// Exit with 1 if a cell was skipped, not only if one failed.
    #[arg(long)]
    pub(crate) strict: bool,
}

const LONG_ABOUT: &str = "\
Measure models at prompt lengths, one process per cell, and never launch a cell that is known to run \
out of memory.

All lengths of a model are measured before the next model. Each cell adds a row to a CSV when it \
ends; everything else that is known about it goes to `<csv>.journal.jsonl` beside the CSV. A cell that \
could not be measured has a row too: its last field says why.

Exit codes: 0 done; 1 a cell failed (a `FAIL:` row; with --strict also a skipped cell); 2 could not \
run, or stopped because the GPU's driver was not healthy (--resume continues); 130 interrupted (--resume continues).";

const AFTER_LONG_HELP: &str = "\
Out of memory:
  A cell that was launched and ran out of memory is `SKIP:oom`. Only this class has consequences:
  every later cell of that model with the same or a greater length is `SKIP:oom_backstop`, and a
  line is added to benchmarks/.oom-record:

    model,prompt_target_len,date,commit,peak_bytes,source_csv

  In later sweeps every cell of that model with the same or a greater length is
  `SKIP:oom_record`: it is not launched, and the log shows the line. Failures, timeouts, missing
  models and the weight-size check (`SKIP:oom_estimate`) have no such consequences.

The driver's health:
  On a machine with a GPU it is looked at before the first launch and after each hard cell (one that
  failed, ended by a signal, a timeout or out of memory, or took over half of the memory): the driver
  answers, free memory is back to within 2 %, no other process computes on the GPU, the kernel has
  logged no new NVRM, Xid or amdgpu complaint, and neither heat nor power lowers clocks. If not, the
  sweep waits up to `big_cooldown_s`, then ends with exit code 2; reset or reboot, and --resume.
  A desktop that was there before is no fault. With `device = \"cpu\"` nothing of this is looked at.
  Programs see the GPUs that CUDA_VISIBLE_DEVICES names; GPUs of two kinds are not mixed in one CSV.

More axes than length:
  In a definition `lengths = [512, [2048, 256]]` says how many tokens are generated after a prompt, and
  each `[[variant]]` changes arguments (`args`) or placeholders of the runner (`set`); their rows are
  called `model+g256`, `model+variant`, or both. After an out-of-memory at a pair no cell is launched
  whose prompt is as long or longer and which generates as many tokens or more; what variants forbid
  each other is what `uses_no_more_memory_than` declares.

When a record is stale:
  A record goes stale when memory use improves. One model was still skipped at 32,768 tokens after
  chunked prefill had fixed its out-of-memory. Test again, then prune:

    MLXCEL_BENCH_IGNORE_OOM_RECORD=1 cargo xtask sweep --models M     (or --ignore-oom-record)
    cargo xtask oom-record explain M 32768
    cargo xtask oom-record confirm M                 launches its shortest recorded cell once
    cargo xtask oom-record prune --model M
    cargo xtask oom-record prune --fixed-by REV      lines from before a fix
    cargo xtask oom-record prune --before 2026-07-06

  The override only turns off the skipping: a new out-of-memory is still recorded.

Variables:
  MLXCEL_BENCH_IGNORE_OOM_RECORD=1    same as --ignore-oom-record
  MLXCEL_BENCH_FAKE_OOM=\"M:512\"       same as --fake-oom
  BENCH_MEM_OVERHEAD_FACTOR=1.2       scales the weight-size check (default 1.0)
  ARC_DRIVER_DEADLINE_S=30            how long the NVIDIA driver may take to answer (default 5)
  ARC_NVML_LIBRARY=PATH               the NVML library to load, if it is in no search path
  ARC_KERNEL_LOG=PATH                 the kernel's log, if /dev/kmsg cannot be read

Examples:
  cargo xtask sweep --list
  cargo xtask sweep
  cargo xtask sweep --models \"tiny models/*\" --lengths \"512 2048\" --max-tokens 16
  cargo xtask sweep --models tiny --lengths \"512 2048:256\"
  cargo xtask sweep --config bench-configs/sweep/variants.toml --list
  cargo xtask sweep --resume benchmarks/cpu_xeon_small_2026-07-06.csv
  cargo xtask sweep --fake-oom tiny:512 --output /tmp/try.csv
  cargo xtask sweep --runner llama-server --models models/smollm2-135m --lengths 128

Other engines, servers among them, have recipes in docs/RUNNERS.md.

The formats are in docs/FORMATS.md.";
