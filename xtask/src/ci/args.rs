//! `cargo xtask ci`.

/// Run every check and test: formatting, clippy, tests, docs.
///
/// Every step runs even if one before it fails; each step's time is shown, and the exit code is 1
/// if any failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask ci --only test --only doc")]
pub(crate) struct Args {
    /// Run this step only; may be repeated.
    #[arg(long, value_name = "STEP")]
    pub(crate) only: Vec<String>,
    /// List the steps with their commands and run nothing.
    #[arg(long)]
    pub(crate) list: bool,
}
