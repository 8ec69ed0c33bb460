//! `lockcheck`: checks offline that `Cargo.lock` holds what the manifests pin. Everything is in the
//! library.

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(
    name = "lockcheck",
    version,
    max_term_width = 100,
    after_help = lockcheck::cli::examples("lockcheck")
)]
struct Cli {
    #[command(flatten)]
    args: lockcheck::cli::Args,
}

fn main() -> ExitCode {
    lockcheck::cli::run(&Cli::parse().args, "lockcheck")
}
