//! `cargo xtask scripted-runner`, hidden: the stand-in for a decode engine in scenarios and tests.

use std::path::PathBuf;

/// Play one launch of a script: print, write, hang or fail as it says.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The script.
    #[arg(long)]
    pub(crate) script: PathBuf,
    /// Name of the model.
    #[arg(long)]
    pub(crate) model: String,
    /// Prompt length.
    #[arg(long)]
    pub(crate) prompt_tokens: u64,
    /// Tokens to generate.
    #[arg(long, default_value_t = 32)]
    pub(crate) max_tokens: u64,
    /// Tokens of the discarded pass: nothing is done with them.
    #[arg(long)]
    pub(crate) warmup_tokens: Option<u64>,
    /// The device: nothing is done with it.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Device memory to leave free: nothing is done with it.
    #[arg(long)]
    pub(crate) leave_free_mb: Option<u64>,
    /// Where the cell report goes.
    #[arg(long)]
    pub(crate) report: Option<PathBuf>,
}
