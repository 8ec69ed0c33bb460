//! `cargo xtask scripted-server`, hidden: the stand-in for a server in tests.

use std::path::PathBuf;

/// Serve what a script says on loopback, until told to end.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The script.
    #[arg(long)]
    pub(crate) script: PathBuf,
    /// Name of the model.
    #[arg(long)]
    pub(crate) model: String,
    /// Where to listen.
    #[arg(long)]
    pub(crate) port: u16,
    /// Streams that ask at the same time.
    #[arg(long, default_value_t = 1)]
    pub(crate) concurrency: u64,
    /// Context: nothing is done with it.
    #[arg(long)]
    pub(crate) context: Option<u64>,
}
