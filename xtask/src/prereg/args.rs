//! `cargo xtask prereg`.

use clap::{Args as ClapArgs, Subcommand};

/// Freeze a benchmark ladder with its rules, run it, and let the rules judge it.
///
/// A ladder is a document, `bench-configs/prereg/NAME.toml`: the question, the protocol, the changes
/// under test with the parity oracles that each must pass, the rungs that combine them, the reads
/// and guards over the rungs, the rules that decide, and numbered expectations. `freeze` fixes it
/// before the first run; after that a change is refused, or becomes an `amend` that every report
/// shows. `run` measures: first the oracles (an item that fails one is dropped), then the ladder. It
/// shows no figures before every rung is measured. A base that fails ends the run, undecided, and a
/// rule lands nothing for what is no more than noise. The report is computed from the raw samples
/// alone.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  \
    cargo xtask prereg new fast-attention    # then edit bench-configs/prereg/fast-attention.toml\n  \
    cargo xtask prereg check fast-attention\n  \
    cargo xtask prereg freeze fast-attention # then commit it\n  \
    cargo xtask prereg run fast-attention\n\n\
Exit codes: 0 a rule fired and every oracle and guard passed; 1 an oracle or guard failed, or the\n\
result is not shown, undecided or incomplete; 2 it could not run; 130 interrupted (continue with `run NAME --resume`).\n\n\
docs/METHODOLOGY.md, \"Pre-registered ladders\", teaches how to write a good one.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a commented document to start from.
    New(NameArgs),
    /// Find rules that cannot fire, outcomes that no rule covers, and bars below the noise.
    #[command(after_help = "Example:\n  cargo xtask prereg check alloc-cache")]
    Check(NameArgs),
    /// Freeze the document, its runner, its model, its code and the files that its command names.
    #[command(after_help = "Example:\n  cargo xtask prereg freeze alloc-cache")]
    Freeze(NameArgs),
    /// Freeze a changed document as a new version; reports say whether data existed.
    Amend(AmendArgs),
    /// Measure: oracles, then the ladder, then the rule that fires.
    Run(RunArgs),
    /// Write the report of a run again, from its raw samples.
    Report(ReportArgs),
    /// Measure the transfer check on this machine; it never re-opens the decision.
    Transfer(TransferArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NameArgs {
    /// Name of the ladder: `bench-configs/prereg/NAME.toml`.
    pub(crate) name: String,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  cargo xtask prereg amend alloc-cache --why \"the guard read the \
    wrong metric\""
)]
pub(crate) struct AmendArgs {
    /// Name of the ladder.
    pub(crate) name: String,
    /// Why it has to change; every later report shows it.
    #[arg(long, value_name = "REASON")]
    pub(crate) why: String,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  cargo xtask prereg run alloc-cache\n  cargo xtask prereg run \
    alloc-cache --resume --over-ceiling \"one contingency pass, agreed in review\""
)]
pub(crate) struct RunArgs {
    /// Name of the ladder.
    pub(crate) name: String,
    /// Continue the last run where it stopped.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Continue past the ceiling; the report shows the reason.
    #[arg(long, value_name = "REASON")]
    pub(crate) over_ceiling: Option<String>,
    /// Run a version that has been run before; the report shows the reason.
    #[arg(long, value_name = "REASON", conflicts_with = "resume")]
    pub(crate) again: Option<String>,
    /// Launch although the OOM record holds the ladder's model at one of its lengths.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  cargo xtask prereg report alloc-cache\n  cargo xtask prereg \
    report alloc-cache --run 2026-11-30 --check")]
pub(crate) struct ReportArgs {
    /// Name of the ladder.
    pub(crate) name: String,
    /// Folder name of the run [default: the last one].
    #[arg(long, value_name = "DATE")]
    pub(crate) run: Option<String>,
    /// Write nothing; check that the report on disk matches the samples.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cargo xtask prereg transfer alloc-cache")]
pub(crate) struct TransferArgs {
    /// Name of the ladder.
    pub(crate) name: String,
    /// Folder name of the run that decided [default: the last one].
    #[arg(long, value_name = "DATE")]
    pub(crate) run: Option<String>,
    /// Launch although the OOM record holds the ladder's model at one of its lengths.
    #[arg(long)]
    pub(crate) ignore_oom_record: bool,
}
