//! Arc's workflow, run as `cargo xtask COMMAND`.
//!
//! Parse, find the workspace root, one match, exit code. What a command does is in `cmd`.

use std::process::ExitCode;

use clap::Parser;

// What a first slice of commands does not use yet.
#[allow(dead_code)]
mod ab;
#[allow(dead_code)]
mod attribution;
#[allow(dead_code)]
mod capture;
#[allow(dead_code)]
mod classify;
mod cli;
mod cmd;
#[allow(dead_code)]
mod config;
#[allow(dead_code)]
mod csv_row;
mod diagnostic;
mod edge;
#[allow(dead_code)]
mod gate;
mod geometry;
#[allow(dead_code)]
mod hardware;
mod lock;
#[allow(dead_code)]
mod memory_curve;
#[allow(dead_code)]
mod metric;
#[allow(dead_code)]
mod model_ref;
mod model_source;
#[allow(dead_code)]
mod oom_pattern;
mod outcome;
#[allow(dead_code)]
mod record;
#[allow(dead_code, unused_imports)]
mod runner;
#[allow(dead_code)]
mod schedule;
mod scripted;
#[allow(dead_code)]
mod scrub;
#[allow(dead_code)]
mod stats;
#[allow(dead_code)]
mod verdict;

use outcome::Outcome;

fn main() -> ExitCode {
    let ended = match cli::Cli::parse().command {
        // It ends with the exit code of its script, whatever that is.
        cli::Command::ScriptedRunner(args) => edge::scripted_runner::run(&args),
        // It serves any workspace, so Arc's own is not looked for.
        cli::Command::VerifyLock(args) => cmd::verify_lock::run(&args).map(ExitCode::from),
        command => run(command).map(ExitCode::from),
    };
    ended.unwrap_or_else(|error| {
        edge::term::log(&diagnostic::render_error(&error));
        ExitCode::from(outcome::COULD_NOT_RUN)
    })
}

fn run(command: cli::Command) -> anyhow::Result<Outcome> {
    let root = edge::workspace::find_root()?;
    match command {
        cli::Command::Ci(args) => cmd::ci::run(&root, &args),
        cli::Command::Model(args) => cmd::model::run(&root, &args),
        cli::Command::OomRecord(args) => cmd::oom_record::run(&root, &args),
        cli::Command::ScriptedRunner(_) | cli::Command::VerifyLock(_) => {
            unreachable!("handled by main")
        }
    }
}
