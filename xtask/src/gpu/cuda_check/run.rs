//! `cargo xtask cuda-check`: the feature `cuda` over the stand-in driver.
//!
//! Build the stand-in, name it, then let cargo check and test. Nothing here asks for a GPU.

use std::path::Path;

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::gpu::cuda_check::args::Args;
use crate::gpu::toolkit::{
    BuildEnv, STANDIN_NAMES, STANDIN_VERSION, file as cuda_files, plan_build_env, prepend_path,
};
use crate::sys::command::cargo;
use crate::sys::{clock, env, files, terminal};

/// Where the stand-in lies under its many names, below the target folder.
const FOLDER: &str = "cuda-standin";
/// The stand-in for the compiler, below the workspace root.
const TOOLKIT: &str = "cuda-standin/toolkit";
/// The chip that builds over the stand-in are for; any would do, for no compiled kernel runs there.
const COMPUTE_CAP: &str = "90";
/// Crates that a build without the feature must not depend on.
const CUDA_CRATES: &[&str] = &["candle-kernels", "cudaforge", "cudarc"];

/// Variables for a child; `None` removes one.
type Changes = Vec<(String, Option<String>)>;

/// Runs the checks, each even if one before it failed.
pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    let target = files::absolute(&root.join(env::read_target_dir()))?;
    terminal::log("cuda-check: building the stand-in driver …");
    cargo(root, "build --quiet --locked --package cuda-standin")
        .show()
        .context("cannot build the stand-in driver")?;
    let changes = prepare(root, &target)?;
    if args.env {
        terminal::data(&render_env(&changes));
        return Ok(Outcome::Done);
    }
    let profile = target.join(if args.bench { "release" } else { "debug" });
    let sources = files::list_files(&root.join(TOOLKIT));
    let identity = cuda_files::read_compiler_identity("stand-in", &sources)?;
    cuda_files::claim_kernels(root, &profile, &identity, &changes)?;
    if args.bench {
        let bench = "bench --locked --package engine --features cuda --bench cuda_hooks";
        cargo(root, bench).env(&changes).show()?;
        return Ok(Outcome::Done);
    }
    let suite = "test --locked --package engine --features cuda --test cuda --test cuda_plain --";
    let mut steps = vec![(
        "the suite over the stand-in driver",
        cargo(root, suite).args(&args.test_args).env(&changes),
    )];
    if !args.no_clippy {
        let clippy = "clippy --locked --package engine --features cuda --all-targets -- \
                      --deny warnings";
        steps.push(("clippy", cargo(root, clippy).env(&changes)));
    }
    let mut failed = check_default_build(root)?;
    for (name, step) in &steps {
        terminal::log(&format!("cuda-check: {name} …"));
        let (ran, took) = clock::time(|| step.show());
        match ran {
            Ok(()) => {
                terminal::log(&format!("cuda-check: {name}: ok, {:.1} s", took.as_secs_f64()))
            }
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    for line in &failed {
        terminal::log(&format!("cuda-check: failed: {line}"));
    }
    if failed.is_empty() {
        terminal::log("cuda-check: all passed over the stand-in driver; no GPU was involved");
        return Ok(Outcome::Done);
    }
    Ok(Outcome::Violation)
}

/// Puts the stand-in under its names. Returns the environment of a build and of its tests.
fn prepare(root: &Path, target: &Path) -> anyhow::Result<Changes> {
    let library = target.join("debug/libcuda_standin.so");
    if !files::exists(&library) {
        return Err(anyhow::anyhow!("there is no `{}`", library.display()))
            .hint("the stand-in driver builds on Linux only");
    }
    let home = target.join(FOLDER);
    let names = home.join("lib64");
    files::create_folder(&names)?;
    for name in STANDIN_NAMES {
        cuda_files::place_link(&names, name, &library)?;
    }
    let names = names.to_string_lossy();
    let mut changes = plan_build_env(&BuildEnv {
        nvcc: root.join(TOOLKIT).join("nvcc").to_string_lossy().into_owned(),
        home: home.to_string_lossy().into_owned(),
        version: STANDIN_VERSION,
        compute_cap: COMPUTE_CAP.to_owned(),
        kernel_jobs: None,
    });
    let before = env::read_var("LD_LIBRARY_PATH");
    changes.push(("LD_LIBRARY_PATH".to_owned(), Some(prepend_path(&names, before.as_deref()))));
    Ok(changes)
}

fn render_env(changes: &Changes) -> String {
    let line = |(name, value): &(String, Option<String>)| match value {
        Some(value) => format!("export {name}='{}'", value.replace('\'', "'\\''")),
        None => format!("unset {name}"),
    };
    changes.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Checks that the engine without the feature reaches no CUDA crate. Returns what is wrong.
fn check_default_build(root: &Path) -> anyhow::Result<Vec<String>> {
    let tree = cargo(root, "tree --locked --package engine --edges normal,build --prefix none")
        .read()
        .context("cannot list what the engine is built from")?;
    Ok(find_cuda_crates(&tree)
        .into_iter()
        .map(|name| format!("the engine depends on `{name}` without the feature `cuda`"))
        .collect())
}

fn find_cuda_crates(tree: &str) -> Vec<&'static str> {
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    CUDA_CRATES.iter().copied().filter(|name| names.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cuda_crate_in_the_default_build_is_found() {
        let tree = "engine v0.1.0 (/w/engine)\ncandle-core v0.11.1\nlibc v0.2.0 (*)\n";
        assert_eq!(find_cuda_crates(tree), Vec::<&str>::new());
        let tree = format!("{tree}cudarc v0.19.10\ncandle-kernels v0.11.1\n");
        assert_eq!(find_cuda_crates(&tree), ["candle-kernels", "cudarc"]);
    }

    #[test]
    fn the_environment_survives_a_shell() {
        let changes = vec![("A".to_owned(), Some("it's".to_owned())), ("B".to_owned(), None)];
        assert_eq!(render_env(&changes), "export A='it'\\''s'\nunset B");
    }
}
