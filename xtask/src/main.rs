//! Arc's workflow, run as `cargo xtask COMMAND`.
//!
//! Parse, find the workspace root, one match, exit code. What a command does is in `cmd`.

use std::process::ExitCode;

use clap::Parser;

mod ab;
mod admission;
mod attribution;
mod capture;
mod cell_result;
mod classify;
mod cli;
mod cmd;
mod config;
mod csv_row;
mod cuda_toolkit;
mod diagnostic;
mod edge;
mod eta;
mod flag;
mod gate;
mod gpu_check;
mod hardware;
mod journal;
mod lock;
mod memory_curve;
mod metric;
mod model_ref;
mod model_source;
mod oom_pattern;
mod outcome;
mod plan;
mod prereg;
mod record;
mod runner;
mod schedule;
mod scripted;
mod scrub;
mod sha256;
mod stats;
mod sweep_config;
mod sweep_table;
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
        cli::Command::Ab(args) => cmd::ab::run(&root, &args),
        cli::Command::Ci(args) => cmd::ci::run(&root, &args),
        cli::Command::CudaCheck(args) => cmd::cuda_check::run(&root, &args),
        cli::Command::CudaSetup(args) => cmd::cuda_setup::run(&root, &args),
        cli::Command::GpuCheck(args) => cmd::gpu_check::run(&root, &args),
        cli::Command::Model(args) => cmd::model::run(&root, &args),
        cli::Command::OomRecord(args) => cmd::oom_record::run(&root, &args),
        cli::Command::Prereg(args) => cmd::prereg::run(&root, &args),
        cli::Command::Scenarios(args) => cmd::scenarios::run(&root, &args),
        cli::Command::Sweep(args) => cmd::sweep::run(&root, &args),
        cli::Command::ScriptedRunner(_) | cli::Command::VerifyLock(_) => {
            unreachable!("handled by main")
        }
    }
}
