//! `cargo xtask cuda-setup`: a toolchain, and a `decode-bench` for a GPU machine.
//!
//! Find or install the toolkit, name its libraries for the linker, build, lay out what is carried,
//! and check that it starts where there is no CUDA. Every step can be done again.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::gpu::setup::args::Args;
use crate::gpu::toolkit::{
    BuildEnv, file as cuda_files, is_cuda_library, plan_build_env, plan_carried,
};
use crate::sys::command::cargo;
use crate::sys::{clock, env, files, host, terminal};

use toolkit::Toolkit;

mod toolkit;

/// Everything of this command, below the target folder.
const FOLDER: &str = "cuda";
const BINARY: &str = "decode-bench";

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    let target = files::absolute(&root.join(env::read_target_dir()))?;
    let folder = target.join(FOLDER);
    files::create_folder(&folder)?;
    let toolkit = toolkit::find_or_install(&folder, args)?;
    let home = toolkit::link_libraries(&folder, &toolkit)?;
    if args.no_build {
        terminal::log("cuda-setup: the toolchain is complete; nothing was built");
        terminal::data(&toolkit.nvcc.display().to_string());
        return Ok(Outcome::Done);
    }
    let built = build(root, &target, &toolkit, &home, args)?;
    let carried = folder.join(format!("sm_{}", args.compute_cap));
    lay_out(&carried, &built, &toolkit)?;
    report(&carried, &toolkit)
}

fn build(
    root: &Path,
    target: &Path,
    toolkit: &Toolkit,
    home: &Path,
    args: &Args,
) -> anyhow::Result<PathBuf> {
    if host::which("g++").is_none() && env::read_var("NVCC_CCBIN").is_none() {
        return Err(anyhow::anyhow!("no `g++`, which nvcc compiles the host's part with")).hint(
            "install it (on Debian and Ubuntu: apt install g++), or name another with NVCC_CCBIN",
        );
    }
    let changes = plan_build_env(&BuildEnv {
        nvcc: toolkit.nvcc.to_string_lossy().into_owned(),
        home: home.to_string_lossy().into_owned(),
        version: toolkit.version,
        compute_cap: args.compute_cap.clone(),
        kernel_jobs: args.jobs.map(std::num::NonZeroUsize::get),
    });
    let identity = cuda_files::read_compiler_identity(
        &format!("nvcc {}", toolkit.version),
        std::slice::from_ref(&toolkit.nvcc),
    )?;
    let profile = target.join("release");
    if cuda_files::has_other_kernels(&profile, &identity)? {
        terminal::log(
            "cuda-setup: the kernels there may be of another compiler; they are made anew",
        );
        cargo(root, "clean --quiet --locked --release --package candle-kernels")
            .env(&changes)
            .show()
            .context("cannot remove the kernels of another compiler")?;
    }
    cuda_files::write_compiler_identity(&profile, &identity)?;
    terminal::log(&format!(
        "cuda-setup: building `{BINARY}` for compute capability {}; the kernels take about ten \
         minutes on two processors the first time …",
        args.compute_cap
    ));
    let jobs = args.jobs.map(|jobs| format!("--jobs={jobs}"));
    let command = cargo(root, "build --locked --release --package engine --features cuda --bin")
        .arg(BINARY)
        .args(jobs)
        .env(&changes);
    let (built, took) = clock::time(|| command.show());
    built.context("cannot build the engine for CUDA")?;
    terminal::log(&format!("cuda-setup: built in {:.0} s", took.as_secs_f64()));
    Ok(profile.join(BINARY))
}

/// Puts the binary and what it loads into one folder. The target folder's own binary is replaced by
/// the next build without the feature; this one stays.
fn lay_out(carried: &Path, built: &Path, toolkit: &Toolkit) -> anyhow::Result<()> {
    let libraries = carried.join("lib");
    files::create_folder(&libraries)?;
    cuda_files::place_copy(carried, BINARY, built)?;
    for name in plan_carried(toolkit.version) {
        match cuda_files::find_in(&toolkit.library_folders, &name) {
            Some(source) => cuda_files::place_file(&libraries, &name, &source)?,
            None => terminal::log(&format!(
                "warning: the toolkit has no `{name}`; the GPU machine must have it"
            )),
        }
    }
    Ok(())
}

fn report(carried: &Path, toolkit: &Toolkit) -> anyhow::Result<Outcome> {
    let binary = carried.join(BINARY);
    let mut outcome = Outcome::Done;
    match cuda_files::read_needed(&binary) {
        Some(needed) => {
            let of_cuda: Vec<&String> =
                needed.iter().filter(|name| is_cuda_library(name)).collect();
            if !of_cuda.is_empty() {
                terminal::log(&format!(
                    "cuda-setup: failed: the binary asks for {of_cuda:?} at its start, so that it \
                     does not start on a machine without them"
                ));
                outcome = Outcome::Violation;
            }
            terminal::log(&format!("cuda-setup: at its start it needs {}", needed.join(", ")));
        }
        None => {
            terminal::log("cuda-setup: what it needs at its start was not looked at: no `readelf`")
        }
    }
    match cuda_files::check_starts(&binary) {
        Ok(()) => terminal::log("cuda-setup: it starts without a library of CUDA in sight"),
        Err(error) => {
            let error = error.context("the binary does not start without CUDA");
            terminal::log(&format!("cuda-setup: failed: {error:#}"));
            outcome = Outcome::Violation;
        }
    }
    terminal::log(&format!(
        "cuda-setup: on a device it loads libcuda.so.1 of the machine's driver, and {}",
        plan_carried(toolkit.version).join(", ")
    ));
    terminal::log(&format!(
        "cuda-setup: carry `{}` to the GPU machine; there, in a checkout:\n  cargo xtask gpu-check \
         --binary {}/{BINARY}\nor, by hand, with LD_LIBRARY_PATH={} before the program",
        carried.display(),
        carried.file_name().unwrap_or_default().to_string_lossy(),
        carried.join("lib").display()
    ));
    terminal::data(&binary.display().to_string());
    Ok(outcome)
}
