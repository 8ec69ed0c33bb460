//! `cargo xtask prereg`.

use clap::{Args as ClapArgs, Subcommand};

/// Freeze a benchmark ladder with its rules, run it, and have the rules judge it.
///
/// A ladder is a document in `bench-configs/prereg/NAME.toml`: the question, the protocol, the
/// changes under test with the parity oracles that each must pass, the rungs that combine them,
/// the reads and guards over the rungs, the rules that decide, and numbered expectations.
/// `freeze` fixes it before the first run; from then on any change is refused, or is an `amend`
/// that every report names. `run` measures: oracles first, an item that fails one is dropped, then
/// the ladder. It shows no figure before every rung is in. The report follows from the raw samples
/// alone.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  \
    cargo xtask prereg new fast-attention    # then edit bench-configs/prereg/fast-attention.toml\n  \
    cargo xtask prereg check fast-attention\n  \
    cargo xtask prereg freeze fast-attention # then commit it\n  \
    cargo xtask prereg run fast-attention\n\n\
Exit codes: 0 a rule fired and every oracle and guard passed; 1 an oracle or guard failed, or the\n\
result is incomplete; 2 it could not run; 130 interrupted, go on with `run NAME --resume`.\n\n\
docs/METHODOLOGY.md, \"Pre-registered ladders\", teaches how to write a good one.")]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do with a ladder.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a commented document to start from.
    New(NameArgs),
    /// Look for rules that cannot fire, outcomes that none covers, bars below the noise.
    Check(NameArgs),
    /// Fix the document, its runner, its model and its code.
    Freeze(NameArgs),
    /// Freeze a new version; reports name it, with whether data existed.
    Amend(AmendArgs),
    /// Measure: oracles, then the ladder, then the rule that fires.
    Run(RunArgs),
    /// Write the report of a run anew, from its raw samples.
    Report(ReportArgs),
    /// Measure the transfer check on this machine; it never re-opens the decision.
    Transfer(TransferArgs),
}

/// A ladder.
#[derive(Debug, ClapArgs)]
pub(crate) struct NameArgs {
    /// Name of the ladder: `bench-configs/prereg/NAME.toml`.
    pub(crate) name: String,
}

/// What `amend` takes.
#[derive(Debug, ClapArgs)]
pub(crate) struct AmendArgs {
    /// Name of the ladder.
    pub(crate) name: String,
    /// Why it has to change; every later report carries it.
    #[arg(long, value_name = "REASON")]
    pub(crate) why: String,
}

/// What `run` takes.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cargo xtask prereg run alloc-cache\n  cargo xtask prereg run \
    alloc-cache --resume --over-ceiling \"one contingency pass, agreed in review\"")]
pub(crate) struct RunArgs {
    /// Name of the ladder.
    pub(crate) name: String,
    /// Go on with the last run, exactly where it stopped.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Go on past the ceiling, for this reason, which the report carries.
    #[arg(long, value_name = "REASON")]
    pub(crate) over_ceiling: Option<String>,
    /// Run a version that was run before, for this reason, which the report carries.
    #[arg(long, value_name = "REASON", conflicts_with = "resume")]
    pub(crate) again: Option<String>,
    /// Launch although the OOM record holds the ladder's model at one of its lengths.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
}

/// What `report` takes.
#[derive(Debug, ClapArgs)]
pub(crate) struct ReportArgs {
    /// Name of the ladder.
    pub(crate) name: String,
    /// The run, by its folder's name; the last one where it is not given.
    #[arg(long, value_name = "DATE")]
    pub(crate) run: Option<String>,
    /// Write nothing: hold the report that is there to what the samples say.
    #[arg(long)]
    pub(crate) check: bool,
}

/// What `transfer` takes.
#[derive(Debug, ClapArgs)]
pub(crate) struct TransferArgs {
    /// Name of the ladder.
    pub(crate) name: String,
    /// The run that decided, by its folder's name; the last one that did where it is not given.
    #[arg(long, value_name = "DATE")]
    pub(crate) run: Option<String>,
    /// Launch although the OOM record holds the ladder's model at one of its lengths.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
}
