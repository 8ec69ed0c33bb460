//! `cargo xtask cuda-setup`.

use std::num::NonZeroUsize;

use crate::gpu::toolkit::{RELEASES, check_compute_cap};

/// Set up a CUDA toolchain, from Python wheels if none is installed, and build `decode-bench`.
///
/// An installed toolkit (CUDA_HOME, or nvcc in PATH) is used. Otherwise pip installs the compiler and
/// the libraries, pinned by version and hash (xtask/cuda/requirements-VERSION.txt), into a Python
/// environment under the target folder: 0.7 GB to download, 1.2 GiB on disk. It needs no GPU and no
/// driver.
///
/// The binary ends up in the target folder under cuda/sm_CAP/, with a folder `lib` of the libraries
/// that it loads: that one folder is what a GPU machine needs. After an interruption run it again;
/// finished steps are not repeated.
///
/// Exit codes: 0 built; 1 built, but the binary would not start on a machine without CUDA; 2 it could
/// not be built.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask cuda-setup
      For H100 and H200.
  cargo xtask cuda-setup --compute-cap 121 --jobs 2
      For GB10, with two compilers at a time.
  cargo xtask cuda-setup --no-build
      The toolchain only.

The compute capability is a chip's number without the point: 80 A100, 86 and 89 RTX 30 and 40, 90 H100
and H200, 100 B200, 120 RTX 50, 121 GB10. Kernels run on that chip only.")]
pub(crate) struct Args {
    /// The chip to compile kernels for.
    #[arg(long, value_name = "CAP", default_value = "90", value_parser = check_compute_cap)]
    pub(crate) compute_cap: String,
    /// The release of the wheels.
    #[arg(long, value_name = "VERSION", default_value = RELEASES[0].name,
        value_parser = RELEASES.iter().map(|release| release.name).collect::<Vec<_>>())]
    pub(crate) cuda_version: String,
    /// Use the wheels even if a toolkit is installed.
    #[arg(long)]
    pub(crate) wheels: bool,
    /// Set up the toolchain and build nothing.
    #[arg(long)]
    pub(crate) no_build: bool,
    /// How many jobs compile at a time, in cargo and in the kernels' build [default: all processors,
    /// half of them for the kernels].
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
}
