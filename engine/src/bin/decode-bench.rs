//! `decode-bench`: measures one cell. The work is in [`engine::runner`].

use std::process::ExitCode;

use clap::Parser as _;
use engine::runner::{Args, init_threads, run_plain, term};

fn main() -> ExitCode {
    let args = Args::parse();
    let threads = init_threads(args.threads);
    match run_plain(&args, &threads) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            term::log(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
