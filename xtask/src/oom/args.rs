//! `cargo xtask oom-record`.

use chrono::NaiveDate;

/// List, explain, prune and confirm the record of cells that ran out of memory.
///
/// `benchmarks/.oom-record` holds one event per line:
/// `model,prompt_target_len,date,commit,peak_bytes,source_csv`. A sweep skips every cell of a recorded
/// model at the recorded length or longer (`SKIP:oom_record`), because a run that is certain to run
/// out of memory can leave the machine's driver in a bad state.
///
/// A record goes stale when memory use improves: an OOM at 32,768 tokens still blocks the cell after a
/// change to chunked prefill has fixed it. So prune what a fix made obsolete, or run once with
/// MLXCEL_BENCH_IGNORE_OOM_RECORD=1 (`sweep --ignore-oom-record`), which launches the cells and still
/// records new OOMs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask oom-record explain llama-3.1-8b 32768")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the recorded events.
    #[command(after_help = "Example:\n  cargo xtask oom-record list --model llama-3.1-8b")]
    List(ListArgs),
    /// Say whether a sweep would skip a cell, which line is the reason, and what to do about it.
    #[command(after_help = "Example:\n  cargo xtask oom-record explain llama-3.1-8b 32768")]
    Explain(ExplainArgs),
    /// Remove stale events, and show which.
    ///
    /// Malformed lines stay. The file is replaced in one step, and sweeps that want to append wait.
    #[command(
        after_help = "Examples:\n  cargo xtask oom-record prune --fixed-by v0.4.0 --dry-run\n  \
                            cargo xtask oom-record prune --model llama-3.1-8b\n  cargo xtask \
                            oom-record prune --before 2026-07-01"
    )]
    Prune(PruneArgs),
    /// Launch a model's shortest recorded cell once, and prune or confirm its events.
    ///
    /// It runs as the sweep that recorded it ran it, as far as that sweep's journal is there. With a limit on its
    /// address space it cannot hurt the machine. Without one, the machine is looked at before and after: the driver
    /// must answer, and free memory must be back.
    ///
    /// If the cell is measured, its events go, and longer ones stay until they are tried as well. If it
    /// runs out of memory again, they stay. Anything else decides nothing, and exits with 1.
    #[command(
        after_help = "Examples:\n  cargo xtask oom-record confirm llama-3.1-8b\n  cargo xtask \
                            oom-record confirm tiny --cell-memory-limit-mb 4096"
    )]
    Confirm(ConfirmArgs),
}

/// What is not given is as in the sweep that recorded the event.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfirmArgs {
    /// The model's name, as in the CSV.
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    /// What measures: a name in bench-configs/runners/.
    #[arg(long, value_name = "NAME")]
    pub(crate) runner: Option<String>,
    /// Limit on the address space of the cell, in MiB.
    #[arg(long, value_name = "N")]
    pub(crate) cell_memory_limit_mb: Option<u64>,
    /// When the cell is ended, in seconds.
    #[arg(long, value_name = "S")]
    pub(crate) timeout: Option<f64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only the events of this model.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Print a JSON array instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The model's name, as in the CSV.
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    /// The prompt length, in tokens.
    #[arg(value_name = "LEN")]
    pub(crate) len: u64,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("rule").required(true))]
pub(crate) struct PruneArgs {
    /// Remove the events of exactly this model.
    #[arg(long, value_name = "MODEL", group = "rule")]
    pub(crate) model: Option<String>,
    /// Remove the events from before this day, YYYY-MM-DD.
    #[arg(long, value_name = "DATE", group = "rule")]
    pub(crate) before: Option<NaiveDate>,
    /// Remove the events whose commit is an ancestor of this fix; events recorded at the fix itself
    /// stay.
    #[arg(long, value_name = "REV", group = "rule")]
    pub(crate) fixed_by: Option<String>,
    /// Show what would be removed and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
