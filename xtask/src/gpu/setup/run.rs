//! `cargo xtask cuda-setup`: a toolchain, and a `decode-bench` for a GPU machine.
//!
//! Finds or installs the toolkit, names its libraries for the linker, builds, lays out what is carried,
//! and checks that it starts without CUDA. Every step can be repeated.

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
        terminal::log("cuda-setup: the toolchain is ready; nothing was built");
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
        return Err(anyhow::anyhow!("there is no `g++`, which nvcc needs for the host code")).hint(
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
    cuda_files::claim_kernels(root, &profile, &identity, &changes)?;
    terminal::log(&format!(
        "cuda-setup: building `{BINARY}` for compute capability {}; the first time the kernels \
         take about ten minutes on two processors …",
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
                "warning: the toolkit has no `{name}`; the GPU machine has to have it"
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
            let of_cuda: Vec<&str> =
                needed.iter().map(String::as_str).filter(|name| is_cuda_library(name)).collect();
            if !of_cuda.is_empty() {
                terminal::log(&format!(
                    "cuda-setup: failed: the binary needs {} to start, so it does not start on a \
                     machine without CUDA",
                    of_cuda.join(", ")
                ));
                outcome = Outcome::Violation;
            }
            terminal::log(&format!("cuda-setup: to start, it needs {}", needed.join(", ")));
        }
        None => {
            terminal::log("cuda-setup: without `readelf`, what it needs to start was not checked")
        }
    }
    match cuda_files::check_starts(&binary) {
        Ok(()) => terminal::log("cuda-setup: it starts without any CUDA library"),
        Err(error) => {
            let error = error.context("the binary does not start without CUDA");
            terminal::log(&format!("cuda-setup: failed: {error:#}"));
            outcome = Outcome::Violation;
        }
    }
    terminal::log(&format!(
        "cuda-setup: on a GPU it loads libcuda.so.1 of the machine's driver, and {}",
        plan_carried(toolkit.version).join(", ")
    ));
    terminal::log(&format!(
        "cuda-setup: copy `{}` to the GPU machine; there, in a checkout, run:\n  cargo xtask gpu-check \
         --binary {}/{BINARY}\nor start the program by hand with LD_LIBRARY_PATH={}",
        carried.display(),
        carried.file_name().unwrap_or_default().to_string_lossy(),
        carried.join("lib").display()
    ));
    terminal::data(&binary.display().to_string());
    Ok(outcome)
}
