//! `cargo xtask cuda-setup` from outside, over a scripted Python, cargo and compiler: no network, and
//! nothing is compiled.

use testkit::{Command, Ran, Redaction, Workspace, assert_shown};

use crate::XTASK;

/// What an nvcc of 13.0 says.
const NVCC_13_0: &str = "echo 'Cuda compilation tools, release 13.0, V13.0.88'";
/// The libraries of a toolkit.
const LIBRARIES: &[&str] = &[
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcurand.so.10",
    "libnvrtc.so.13",
    "libnvrtc-builtins.so.13.0",
    "libcudart_static.a",
    "libcudart.so.13",
];

/// A workspace whose PATH holds scripts alone.
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
    /// With a C compiler, and a cargo that builds a binary which starts.
    fn new() -> Lab {
        let workspace = Workspace::new(XTASK, &["m"]);
        let root = workspace.root().display().to_string();
        workspace.write_program("bin/cc", "while [ $# -gt 1 ]; do shift; done; echo stub > \"$1\"");
        workspace.write_program("bin/g++", "exit 0");
        workspace
            .write_program("built", "[ -z \"$LD_LIBRARY_PATH\" ] && echo 'decode-bench 0.1.0'");
        workspace.write_program(
            "bin/cargo",
            &format!(
                "echo \"$* | $CUDA_COMPUTE_CAP $CUDARC_CUDA_VERSION $CUDAFORGE_THREADS $NVCC \
                 $CUDA_HOME\" >> '{root}/calls'\n/bin/mkdir -p '{root}/target/release'\n/bin/cp -p \
                 '{root}/built' '{root}/target/release/decode-bench'"
            ),
        );
        let lab = Lab { workspace };
        lab.needs(&["libc.so.6"]);
        lab
    }

    /// What the binary asks for at its start.
    fn needs(&self, names: &[&str]) {
        let lines: Vec<String> = names
            .iter()
            .map(|name| format!("echo ' 0x1 (NEEDED) Shared library: [{name}]'"))
            .collect();
        self.write_program("bin/readelf", &lines.join("\n"));
    }

    /// A Python whose environments have a pip that does `pip`.
    fn python(&self, pip: &str) {
        let root = self.root().display();
        self.write_program("pip", &format!("echo \"$*\" >> '{root}/pip-calls'\n{pip}"));
        self.write_program(
            "bin/python3",
            &format!(
                "[ \"$1\" = -c ] && exit 0\n/bin/mkdir -p \"$3/bin\"\n/bin/cp -p '{root}/pip' \
                 \"$3/bin/python\""
            ),
        );
    }

    /// What a pip does that installs the wheels.
    fn good_pip(&self) -> String {
        self.toolkit("wheels", NVCC_13_0);
        let root = self.root().display();
        format!(
            "to='{root}/target/cuda/wheels-13.0/lib/python3.9/site-packages/nvidia'\n/bin/mkdir -p \
             \"$to\"\n/bin/cp -Rp '{root}/wheels' \"$to/cu13\""
        )
    }

    /// An installed toolkit.
    fn toolkit(&self, folder: &str, nvcc: &str) {
        self.write_program(&format!("{folder}/bin/nvcc"), nvcc);
        for name in LIBRARIES {
            self.write(format!("{folder}/lib64/{name}"), name);
        }
    }

    fn setup(&self, args: &[&str]) -> Ran {
        self.setup_command(args).run()
    }

    /// With the toolkit in `toolkit` as the machine's.
    fn setup_with_toolkit(&self, args: &[&str]) -> Ran {
        self.setup_command(args).env("CUDA_HOME", self.path("toolkit")).run()
    }

    fn setup_command(&self, args: &[&str]) -> Command {
        self.command(&[&["cuda-setup"], args].concat()).env("PATH", self.path("bin"))
    }

    fn shown(&self) -> Redaction {
        Redaction::new(self)
    }
}

#[test]
fn wheels_are_installed_once_and_the_binary_is_laid_out() {
    let lab = Lab::new();
    lab.python(&lab.good_pip());
    let output = lab.setup(&["--compute-cap", "121", "--jobs", "1"]);
    assert_shown!(lab.shown().pattern(r"built in \d+ s", "built in [DURATION]"), output);
    let calls = lab.read("calls");
    assert!(
        calls.contains("--features cuda --bin decode-bench --jobs=1 | 121 13000 1 "),
        "{calls}"
    );
    let pip = lab.read("pip-calls");
    assert!(pip.contains("--no-deps --only-binary :all: --require-hashes"), "{pip}");
    // The runtime is there as an archive alone, so that it is linked statically.
    assert_eq!(
        lab.names("target/cuda/link-13.0/lib64"),
        [
            "libcublas.so",
            "libcublasLt.so",
            "libcuda.so",
            "libcudart.a",
            "libcurand.so",
            "libnvrtc.so"
        ]
    );
    assert_eq!(lab.names("target/cuda/sm_121"), ["decode-bench", "lib"]);
    assert_eq!(
        lab.names("target/cuda/sm_121/lib"),
        [
            "libcublas.so.13",
            "libcublasLt.so.13",
            "libcurand.so.10",
            "libnvrtc-builtins.so.13.0",
            "libnvrtc.so.13",
        ]
    );
    let output = lab.setup(&["--compute-cap", "121"]).exits_with(0);
    assert!(output.stderr.contains("wheels installed before"));
    assert_eq!(lab.read("pip-calls").lines().count(), 1);
}

#[test]
fn an_installed_toolkit_is_used_and_said_so() {
    let lab = Lab::new();
    lab.toolkit("toolkit", NVCC_13_0);
    let output = lab.setup_with_toolkit(&["--no-build"]);
    assert_shown!(lab.shown(), output);
    assert_eq!(lab.read("calls"), "", "nothing was built");
    // One that is not complete is no half of a build.
    lab.remove("toolkit/lib64/libcurand.so.10");
    let output = lab.setup_with_toolkit(&["--no-build"]).exits_with(2);
    assert!(output.stderr.contains("the toolkit has no `libcurand.so`"), "{}", output.stderr);
    assert!(output.stderr.contains("hint: complete the toolkit, or use the wheels"));
}

#[test]
fn a_toolkit_that_cudarc_does_not_know_is_refused() {
    let lab = Lab::new();
    lab.toolkit("toolkit", "echo 'Cuda compilation tools, release 19.2, V19.2.1'");
    let output = lab.setup_with_toolkit(&[]).exits_with(2);
    assert!(output.stderr.contains("the pinned cudarc does not know CUDA 19.2"));
}

#[test]
fn a_machine_without_python_or_venv_is_told_what_to_install() {
    let lab = Lab::new();
    let output = lab.setup(&[]);
    assert_shown!(lab.shown(), output);
    lab.write_program(
        "bin/python3",
        "[ \"$1\" = -c ] && exit 0; echo 'No module named venv' >&2; exit 1",
    );
    let output = lab.setup(&[]).exits_with(2);
    assert!(output.stderr.contains("caused by: No module named venv"), "{}", output.stderr);
    assert!(output.stderr.contains("hint: on Debian and Ubuntu: apt install python3-venv"));
}

#[test]
fn each_failure_of_pip_is_told_with_its_way_out_and_taken_up_again() {
    let lab = Lab::new();
    for (says, hint) in [
        ("Connection refused", "hint: check the network"),
        ("[Errno 28] No space left on device", "hint: free some space"),
        (
            "THESE PACKAGES DO NOT MATCH THE HASHES",
            "hint: the index that pip uses has a different file",
        ),
        ("No matching distribution found", "hint: the index that pip uses has no such wheel"),
    ] {
        lab.python(&format!("echo 'ERROR: {says}' >&2; exit 1"));
        let output = lab.setup(&[]).exits_with(2);
        assert!(output.stderr.contains(&format!("caused by: ERROR: {says}")));
        assert!(output.stderr.contains(hint), "{}", output.stderr);
    }
    lab.python(&lab.good_pip());
    lab.setup(&[]).exits_with(0);
}

#[test]
fn a_binary_that_needs_cuda_to_start_is_a_failure() {
    let lab = Lab::new();
    lab.toolkit("toolkit", NVCC_13_0);
    lab.needs(&["libc.so.6", "libcudart.so.13"]);
    let output = lab.setup_with_toolkit(&[]).exits_with(1);
    assert!(output.stderr.contains("needs libcudart.so.13 to start"));
    lab.needs(&["libc.so.6"]);
    lab.write_program("built", "echo 'cannot open libcuda.so.1' >&2; exit 127");
    let output = lab.setup_with_toolkit(&[]).exits_with(1);
    assert!(output.stderr.contains("cannot open libcuda.so.1"), "{}", output.stderr);
}

#[test]
fn kernels_of_another_compiler_are_made_anew() {
    let lab = Lab::new();
    lab.toolkit("toolkit", NVCC_13_0);
    lab.write("target/release/build/candle-kernels-0123/output", "");
    let is_cleaned = || {
        lab.remove("calls");
        lab.setup_with_toolkit(&[]).exits_with(0);
        lab.read("calls").contains("clean --quiet --locked --package candle-kernels --release")
    };
    assert!(is_cleaned());
    assert!(!is_cleaned());
    lab.toolkit("toolkit", &format!("{NVCC_13_0} # patched"));
    assert!(is_cleaned());
}

#[test]
fn a_compute_capability_is_checked_before_anything_is_done() {
    let lab = Lab::new();
    let output = lab.setup(&["--compute-cap", "9.0"]).exits_with(2);
    assert!(output.stderr.contains("write 90 for 9.0"), "{}", output.stderr);
}
