//! `cargo xtask cuda-check` from outside, over a scripted cargo: what it asks for, and what it makes of
//! the answers. The suite itself is the engine's.

use std::process::{Command, Output};

use crate::fixture::folder::Folder;

/// A workspace with a cargo that notes what it is asked for.
struct Workspace {
    dir: Folder,
}

impl std::ops::Deref for Workspace {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.dir
    }
}

impl Workspace {
    /// `fails` is a pattern of the shell for calls that are to fail.
    fn new(fails: &str) -> Workspace {
        let workspace = Workspace { dir: Folder::new() };
        workspace.write("Cargo.toml", "");
        workspace.write("bench-configs/models/m.toml", "");
        workspace.write("cuda-standin/toolkit/nvcc", "compiler");
        workspace.write("bin/.keep", "");
        workspace.write_cargo(fails, "engine v0.1.0\ncandle-core v0.11.1");
        workspace
    }

    fn write_cargo(&self, fails: &str, tree: &str) {
        let root = self.dir.root().display();
        let script = format!(
            "echo \"$* | $NVCC $CUDARC_CUDA_VERSION $CUDA_COMPUTE_CAP \
             $CUDA_HOME $LD_LIBRARY_PATH $CUDA_PATH\" >> '{root}/calls'\ncase \"$*\" in\nbuild*) \
             /bin/mkdir -p '{root}/target/debug' && : > '{root}/target/debug/libcuda_standin.so' \
             ;;\ntree*) echo '{tree}' ;;\nesac\ncase \"$*\" in {fails}) exit 101 ;; esac"
        );
        self.dir.write_program("bin/cargo", &script);
    }

    fn check(&self, args: &[&str]) -> Output {
        let _ = std::fs::remove_file(self.path("calls"));
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("cuda-check")
            .args(args)
            .current_dir(self.dir.root())
            .env("PATH", self.path("bin"))
            .env("CUDA_PATH", "/another/toolkit")
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("LD_LIBRARY_PATH")
            .output()
            .unwrap()
    }

    /// What cargo was asked for, the environment with the last words of each.
    fn calls(&self) -> String {
        let calls = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        let lines: Vec<&str> = calls.lines().map(str::trim_end).collect();
        lines.join("\n").replace(&*self.dir.root().to_string_lossy(), "[ROOT]")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_suite_and_clippy_run_over_the_stand_in() {
    let workspace = Workspace::new("never");
    let output = workspace.check(&["--", "capture", "--nocapture"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(workspace.calls(), @r"
    build --quiet --locked --package cuda-standin |      /another/toolkit
    tree --locked --package engine --edges normal,build --prefix none |      /another/toolkit
    test --locked --package engine --features cuda --test cuda --test cuda_plain -- capture --nocapture | [ROOT]/cuda-standin/toolkit/nvcc 13000 90 [ROOT]/target/cuda-standin [ROOT]/target/cuda-standin/lib64
    clippy --locked --package engine --features cuda --all-targets -- --deny warnings | [ROOT]/cuda-standin/toolkit/nvcc 13000 90 [ROOT]/target/cuda-standin [ROOT]/target/cuda-standin/lib64
    ");
    let names = workspace.path("target/cuda-standin/lib64");
    for name in ["libcuda.so", "libcuda.so.1", "libcublasLt.so.13", "libnvidia-ml.so.1"] {
        let found = std::fs::read_link(names.join(name)).unwrap();
        assert!(found.ends_with("debug/libcuda_standin.so"), "{name}");
    }
    assert!(stderr(&output).contains("over the stand-in driver; no GPU was involved"));
    // Again: nothing of it is in the way.
    assert_eq!(workspace.check(&["--no-clippy"]).status.code(), Some(0));
    assert!(!workspace.calls().contains("clippy"));
}

#[test]
fn a_failure_is_told_and_the_rest_is_checked_all_the_same() {
    let workspace = Workspace::new("test*");
    let output = workspace.check(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cuda-check: failed: the suite over the stand-in driver: "));
    assert!(workspace.calls().contains("clippy --locked --package engine --features cuda"));
}

#[test]
fn a_cuda_crate_in_the_default_build_is_a_failure() {
    let workspace = Workspace::new("never");
    workspace.write_cargo("never", "engine v0.1.0\ncudarc v0.19.10");
    let output = workspace.check(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the engine reaches `cudarc` without the feature `cuda`"));
}

#[test]
fn a_stand_in_that_does_not_build_is_no_verdict() {
    let workspace = Workspace::new("build*");
    let output = workspace.check(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).starts_with("cuda-check: building the stand-in driver …\nerror: cannot")
    );
}

#[test]
fn kernels_of_another_compiler_are_made_anew() {
    let workspace = Workspace::new("never");
    workspace.write("target/debug/build/candle-kernels-0123/output", "");
    let is_cleaned = |args: &[&str]| {
        assert_eq!(workspace.check(args).status.code(), Some(0));
        workspace.calls().contains("clean --quiet --locked --package candle-kernels")
    };
    assert!(is_cleaned(&[]), "nobody knows who made them");
    assert!(!is_cleaned(&[]));
    workspace.write("cuda-standin/toolkit/launchers.c", "new");
    assert!(is_cleaned(&[]), "the stand-in changed");
    assert!(!is_cleaned(&["--no-clippy"]));
}

#[test]
fn the_environment_is_printed_for_a_shell() {
    let workspace = Workspace::new("never");
    let output = workspace.check(&["--env"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    insta::assert_snapshot!(text.replace(&*workspace.dir.root().to_string_lossy(), "[ROOT]"), @r"
    export CUDARC_CUDA_VERSION='13000'
    export CUDA_COMPUTE_CAP='90'
    export CUDA_HOME='[ROOT]/target/cuda-standin'
    unset CUDA_PATH
    unset CUDA_ROOT
    unset CUDA_TOOLKIT_ROOT_DIR
    unset CUDNN_LIB
    export NVCC='[ROOT]/cuda-standin/toolkit/nvcc'
    export LD_LIBRARY_PATH='[ROOT]/target/cuda-standin/lib64'
    ");
    assert_eq!(workspace.calls().lines().count(), 1, "only the stand-in was built");
}
