//! Arc's workflow, run as `cargo xtask COMMAND`.
//!
//! Parse, find the workspace root, one match, exit code. What a command does is in the
//! folder of its name.

use std::process::ExitCode;

use clap::Parser;

use crate::base::outcome::{self, Outcome};
use crate::sys::terminal;

mod ab;
mod base;
mod cell;
mod ci;
mod cli;
mod gpu;
mod model;
mod oom;
mod oom_record;
mod prereg;
mod report;
mod selftest;
mod stats;
mod sweep;
mod sys;

fn main() -> ExitCode {
    let ended = match cli::Cli::parse().command {
        // It ends with the exit code of its script, whatever that is.
        cli::Command::ScriptedRunner(args) => selftest::scripted::run(&args),
        cli::Command::ScriptedServer(args) => selftest::server::run(&args),
        cli::Command::DriverFacts => Ok(sys::driver::nvml::answer()),
        // It serves any workspace, so Arc's own is not looked for.
        cli::Command::VerifyLock(args) => Ok(lockcheck::cli::run(&args, "verify-lock")),
        command => run(command).map(ExitCode::from),
    };
    ended.unwrap_or_else(|error| {
        terminal::log(&base::diagnostic::render_error(&error));
        ExitCode::from(outcome::COULD_NOT_RUN)
    })
}

fn run(command: cli::Command) -> anyhow::Result<Outcome> {
    let root = sys::workspace::find_root()?;
    match command {
        cli::Command::Ab(args) => ab::run(&root, &args),
        cli::Command::Ci(args) => ci::run(&root, &args),
        cli::Command::CudaCheck(args) => gpu::cuda_check::run(&root, &args),
        cli::Command::CudaSetup(args) => gpu::setup::run(&root, &args),
        cli::Command::GpuCheck(args) => gpu::check::run(&root, &args),
        cli::Command::Model(args) => model::run(&root, &args),
        cli::Command::OomRecord(args) => oom::run(&root, &args),
        cli::Command::Prereg(args) => prereg::run(&root, &args),
        cli::Command::Report(args) => report::run(&root, &args),
        cli::Command::Scenarios(args) => selftest::scenarios::run(&root, &args),
        cli::Command::Sweep(args) => sweep::run(&root, &args),
        cli::Command::DriverFacts
        | cli::Command::ScriptedRunner(_)
        | cli::Command::ScriptedServer(_)
        | cli::Command::VerifyLock(_) => {
            unreachable!("handled by main")
        }
    }
}
