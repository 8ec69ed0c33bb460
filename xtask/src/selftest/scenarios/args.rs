//! `cargo xtask scenarios`.

/// Prove on this machine that a sweep never launches what is known to run out of memory.
///
/// Each scenario makes a temporary checkout, runs real sweeps in it with a scripted runner (or, for
/// `real-oom`, the real engine under a memory limit), and prints in one line what it proved. Run it
/// once on a new machine before trusting a sweep there. This checkout is not touched, and no cell
/// takes more memory than its limit.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask scenarios\n  cargo xtask scenarios fake-oom kill\n  \
                        cargo xtask scenarios --list"
)]
pub(crate) struct Args {
    /// The scenarios to run [default: all].
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// List the scenarios and run nothing.
    #[arg(long)]
    pub(crate) list: bool,
}
