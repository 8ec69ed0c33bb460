//! `cargo xtask cuda-check`.

/// Build and test the engine's feature `cuda` over the stand-in driver: no GPU, no CUDA toolkit.
///
/// Builds the stand-in driver, puts it under every name that the linker and the loader ask for, and
/// runs clippy and the CUDA suite of the engine over it, through candle and cudarc as they come from
/// the registry. Also checks that the engine without the feature reaches no CUDA crate. What passes
/// here has run on host memory: it says nothing about a real device, which `cargo xtask gpu-check`
/// does.
///
/// It shares the target folder and the profile of `cargo test`, so that little more than candle is
/// built again. A machine's own toolkit is not used. Exit codes: 0 all passed; 1 a check or test
/// failed; 2 it could not run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask cuda-check
  cargo xtask cuda-check --no-clippy -- capture --nocapture
      Only the tests with `capture` in their names, with what they print.
  cargo xtask cuda-check --bench
      What a pair of allocation and free costs through the hooks, in a release build.
  cargo xtask cuda-check --env
      What to set to run cargo by hand over the stand-in driver.")]
pub(crate) struct Args {
    /// Leave out clippy.
    #[arg(long)]
    pub(crate) no_clippy: bool,
    /// Run the benchmark of the hooks instead of the tests.
    #[arg(long, conflicts_with_all = ["no_clippy", "env", "test_args"])]
    pub(crate) bench: bool,
    /// Build the stand-in driver, print the environment for a shell, and run nothing.
    #[arg(long, conflicts_with_all = ["no_clippy", "test_args"])]
    pub(crate) env: bool,
    /// Arguments for the tests: a filter, or flags of the test harness.
    #[arg(last = true, value_name = "TEST_ARGS")]
    pub(crate) test_args: Vec<String>,
}
