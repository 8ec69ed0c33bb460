//! `cargo xtask cuda-check` from outside, over a scripted cargo: what it asks for, and what it makes of
//! the answers. The suite itself is the engine's.

use testkit::{Ran, Redaction, Workspace, assert_shown};

use crate::XTASK;

/// A workspace with a cargo that notes what it is asked for.
struct Lab {
    workspace: Workspace,
}

impl std::ops::Deref for Lab {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.workspace
    }
}

impl Lab {
    /// `fails` is a pattern of the shell for calls that are to fail.
    fn new(fails: &str) -> Lab {
        let workspace = Workspace::new(XTASK, &["m"]);
        workspace.write("cuda-standin/toolkit/nvcc", "compiler");
        workspace.write("bin/.keep", "");
        let lab = Lab { workspace };
        lab.write_cargo(fails, "engine v0.1.0\ncandle-core v0.11.1");
        lab
    }

    fn write_cargo(&self, fails: &str, tree: &str) {
        let root = self.root().display();
        let script = format!(
            "echo \"$* | $NVCC $CUDARC_CUDA_VERSION $CUDA_COMPUTE_CAP \
             $CUDA_HOME $LD_LIBRARY_PATH $CUDA_PATH\" >> '{root}/calls'\ncase \"$*\" in\nbuild*) \
             /bin/mkdir -p '{root}/target/debug' && : > '{root}/target/debug/libcuda_standin.so' \
             ;;\ntree*) echo '{tree}' ;;\nesac\ncase \"$*\" in {fails}) exit 101 ;; esac"
        );
        self.write_program("bin/cargo", &script);
    }

    fn check(&self, args: &[&str]) -> Ran {
        self.remove("calls");
        self.command(&[&["cuda-check"], args].concat())
            .env("PATH", self.path("bin"))
            .env("CUDA_PATH", "/another/toolkit")
            .env_remove("LD_LIBRARY_PATH")
            .run()
    }

    /// What cargo was asked for, the environment with the last words of each.
    fn calls(&self) -> String {
        let calls = self.read("calls");
        calls.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }

    fn shown(&self) -> Redaction {
        Redaction::new(self)
    }
}

#[test]
fn the_suite_and_clippy_run_over_the_stand_in() {
    let lab = Lab::new("never");
    let output = lab.check(&["--", "capture", "--nocapture"]).exits_with(0);
    assert_shown!(lab.shown(), lab.calls());
    let names = lab.path("target/cuda-standin/lib64");
    for name in ["libcuda.so", "libcuda.so.1", "libcublasLt.so.13", "libnvidia-ml.so.1"] {
        let found = std::fs::read_link(names.join(name)).unwrap();
        assert!(found.ends_with("debug/libcuda_standin.so"), "{name}");
    }
    assert!(output.stderr.contains("over the stand-in driver; no GPU was involved"));
    // Again: nothing of it is in the way.
    lab.check(&["--no-clippy"]).exits_with(0);
    assert!(!lab.calls().contains("clippy"));
}

#[test]
fn a_failure_is_told_and_the_rest_is_checked_all_the_same() {
    let lab = Lab::new("test*");
    let output = lab.check(&[]).exits_with(1);
    assert!(output.stderr.contains("cuda-check: failed: the suite over the stand-in driver: "));
    assert!(lab.calls().contains("clippy --locked --package engine --features cuda"));
}

#[test]
fn a_cuda_crate_in_the_default_build_is_a_failure() {
    let lab = Lab::new("never");
    lab.write_cargo("never", "engine v0.1.0\ncudarc v0.19.10");
    let output = lab.check(&[]).exits_with(1);
    assert!(output.stderr.contains("the engine depends on `cudarc` without the feature `cuda`"));
}

#[test]
fn a_stand_in_that_does_not_build_is_no_verdict() {
    let lab = Lab::new("build*");
    let output = lab.check(&[]).exits_with(2);
    assert!(output.stderr.starts_with("cuda-check: building the stand-in driver …\nerror: cannot"));
}

#[test]
fn kernels_of_another_compiler_are_made_anew() {
    let lab = Lab::new("never");
    lab.write("target/debug/build/candle-kernels-0123/output", "");
    let is_cleaned = |args: &[&str]| {
        lab.check(args).exits_with(0);
        lab.calls().contains("clean --quiet --locked --package candle-kernels")
    };
    assert!(is_cleaned(&[]), "nobody knows who made them");
    assert!(!is_cleaned(&[]));
    lab.write("cuda-standin/toolkit/launchers.c", "new");
    assert!(is_cleaned(&[]), "the stand-in changed");
    assert!(!is_cleaned(&["--no-clippy"]));
}

#[test]
fn the_environment_is_printed_for_a_shell() {
    let lab = Lab::new("never");
    let output = lab.check(&["--env"]).exits_with(0);
    assert_shown!(lab.shown(), output);
    assert_eq!(lab.calls().lines().count(), 1, "only the stand-in was built");
}
