//! Arc's workflow, run as `cargo xtask COMMAND`.
//!
//! Parse, find the workspace root, one match, exit code. What a command does is in `cmd`.

use std::process::ExitCode;

use clap::Parser;

mod cli;
mod cmd;
// What a first slice of commands does not use yet.
#[allow(dead_code)]
mod config;
mod diagnostic;
mod edge;
#[allow(dead_code)]
mod model_ref;
mod outcome;
#[allow(dead_code)]
mod record;
#[allow(dead_code, unused_imports)]
mod runner;

use outcome::Outcome;

fn main() -> ExitCode {
    let args = cli::Cli::parse();
    match run(args.command) {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            edge::term::log(&diagnostic::render_error(&error));
            ExitCode::from(outcome::COULD_NOT_RUN)
        }
    }
}

fn run(command: cli::Command) -> anyhow::Result<Outcome> {
    let root = edge::workspace::find_root()?;
    match command {
        cli::Command::Ci(args) => cmd::ci::run(&root, &args),
    }
}
