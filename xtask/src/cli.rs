//! The command line: clap types only. What they mean is in `cmd`.

use clap::{Parser, Subcommand};

pub(crate) mod ab;
pub(crate) mod ci;
pub(crate) mod cuda_check;
pub(crate) mod cuda_setup;
pub(crate) mod gpu_check;
pub(crate) mod model;
pub(crate) mod oom_record;
pub(crate) mod prereg;
pub(crate) mod scenarios;
pub(crate) mod scripted_runner;
pub(crate) mod sweep;

/// Arc's workflow: safe sweeps, honest comparisons, pre-registered ladders, lock checks.
///
/// Every command exits with 0 when done, 1 when it ran and found a violation, 2 when it could not
/// run, and 130 when it was interrupted. Data goes to stdout, progress and logs to stderr.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Ab(Box<ab::Args>),
    /// Run every check and test of the project.
    Ci(ci::Args),
    CudaCheck(cuda_check::Args),
    CudaSetup(cuda_setup::Args),
    GpuCheck(gpu_check::Args),
    Model(model::Args),
    OomRecord(oom_record::Args),
    Prereg(prereg::Args),
    Scenarios(scenarios::Args),
    #[command(hide = true)]
    ScriptedRunner(scripted_runner::Args),
    Sweep(Box<sweep::Args>),
    #[command(after_help = lockcheck::cli::examples("cargo xtask verify-lock"))]
    VerifyLock(lockcheck::cli::Args),
}
