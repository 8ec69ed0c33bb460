//! `cargo xtask cuda-check`.

/// Build and test the engine's feature `cuda` over the stand-in driver: no GPU, no CUDA toolkit.
///
/// Builds the stand-in driver, links it under every name that the linker and the loader look for, and
/// runs clippy and the engine's CUDA tests over it, through candle and cudarc as they come from the
/// registry. Also checks that the engine without the feature depends on no CUDA crate. Everything
/// here runs in host memory, so it says nothing about a real device; `cargo xtask gpu-check` does.
///
/// It shares the target folder and the profile of `cargo test`, so little more than candle is built
/// again. An installed toolkit is not used. Exit codes: 0 all passed; 1 a check or test failed; 2 it
/// could not run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask cuda-check
  cargo xtask cuda-check --no-clippy -- capture --nocapture
      Only the tests with `capture` in their names, with their output.
  cargo xtask cuda-check --bench
      The cost of an allocation and its free through the hooks, in a release build.
  cargo xtask cuda-check --env
      The variables for running cargo by hand over the stand-in driver.")]
pub(crate) struct Args {
    /// Skip clippy.
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
