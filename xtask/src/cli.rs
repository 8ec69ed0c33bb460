//! The command line: one subcommand for each command, whose arguments are in its folder.

use clap::{Parser, Subcommand};

use crate::{ab, ci, gpu, model, oom, prereg, report, selftest, sweep};

/// Arc's workflow: safe sweeps, honest comparisons, pre-registered ladders, lock checks.
///
/// Every command exits with 0 when done, 1 when it ran and found a violation, 2 when it could not
/// run, and 130 when it was interrupted. Data goes to stdout, progress and logs to stderr.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Ab(Box<ab::args::Args>),
    Ci(ci::args::Args),
    CudaCheck(gpu::cuda_check::args::Args),
    CudaSetup(gpu::setup::args::Args),
    /// Print what the NVIDIA driver says, as JSON. The other commands start it, with a deadline.
    #[command(hide = true)]
    DriverFacts,
    GpuCheck(gpu::check::args::Args),
    Model(model::args::Args),
    OomRecord(oom::args::Args),
    Prereg(prereg::args::Args),
    Report(report::args::Args),
    Scenarios(selftest::scenarios::args::Args),
    #[command(hide = true)]
    ScriptedRunner(selftest::scripted::args::Args),
    #[command(hide = true)]
    ScriptedServer(selftest::server::args::Args),
    Sweep(Box<sweep::args::Args>),
    /// Check offline that Cargo.lock holds what the manifests pin.
    #[command(after_help = lockcheck::cli::examples("cargo xtask verify-lock"))]
    VerifyLock(lockcheck::cli::Args),
}
