//! `cargo xtask ci`.

/// Run every check and test: formatting, clippy, tests, docs.
///
/// Every step runs even if an earlier one fails. Each step's time is shown; the exit code is 1 if any
/// failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask ci\n  cargo xtask ci --only test --only doc")]
pub(crate) struct Args {
    /// Run only this step; can be repeated.
    #[arg(long, value_name = "STEP")]
    pub(crate) only: Vec<String>,
    /// List the steps with their commands and run nothing.
    #[arg(long)]
    pub(crate) list: bool,
}
