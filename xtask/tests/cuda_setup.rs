//! `cargo xtask cuda-setup` from outside, over a scripted Python, cargo and compiler: no network, and
//! nothing is compiled.

#[path = "fixture/folder.rs"]
mod folder;

use std::process::{Command, Output};

use folder::Folder;

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
    /// With a C compiler, and a cargo that builds a binary which starts.
    fn new() -> Workspace {
        let workspace = Workspace { dir: Folder::new() };
        workspace.write("Cargo.toml", "");
        workspace.write("bench-configs/models/m.toml", "");
        let root = workspace.dir.root().display().to_string();
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
        workspace.needs(&["libc.so.6"]);
        workspace
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
        let root = self.dir.root().display();
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
        let root = self.dir.root().display();
        format!(
            "to='{root}/target/cuda/wheels-13.0/lib/python3.9/site-packages/nvidia'\n/bin/mkdir -p \
             \"$to\"\n/bin/cp -Rp '{root}/wheels' \"$to/cu13\""
        )
    }

    /// An installed toolkit.
    fn toolkit(&self, folder: &str, nvcc: &str) {
        self.write_program(&format!("{folder}/bin/nvcc"), nvcc);
        for name in LIBRARIES {
            self.write(&format!("{folder}/lib64/{name}"), name);
        }
    }

    fn setup(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("cuda-setup")
            .args(args)
            .current_dir(self.dir.root())
            .env("PATH", self.path("bin"))
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CUDA_HOME")
            .env_remove("CUDA_PATH")
            .env_remove("NVCC_CCBIN")
            .envs(env.iter().copied())
            .output()
            .unwrap()
    }

    fn redacted(&self, output: &Output) -> String {
        let text = format!(
            "exit: {:?}\n--- stdout\n{}--- stderr\n{}",
            output.status.code(),
            String::from_utf8_lossy(&output.stdout),
            stderr(output)
        );
        text.replace(&*self.dir.root().canonicalize().unwrap().to_string_lossy(), "[ROOT]")
            .replace(&*self.dir.root().to_string_lossy(), "[ROOT]")
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn wheels_are_installed_once_and_the_binary_is_laid_out() {
    let workspace = Workspace::new();
    workspace.python(&workspace.good_pip());
    let output = workspace.setup(&["--compute-cap", "121", "--jobs", "1"], &[]);
    insta::assert_snapshot!(workspace.redacted(&output), @r"
    exit: Some(0)
    --- stdout
    [ROOT]/target/cuda/sm_121/decode-bench
    --- stderr
    cuda-setup: installing nvidia-cuda-nvcc 13.0.88, nvidia-cuda-crt 13.0.88, nvidia-nvvm 13.0.88, nvidia-cuda-runtime 13.0.96, nvidia-cuda-cccl 13.0.85, nvidia-cuda-nvrtc 13.0.88, nvidia-curand 10.4.0.35, nvidia-cublas 13.1.0.3 …
    cuda-setup: CUDA 13.0, installed from wheels: [ROOT]/target/cuda/wheels-13.0/lib/python3.9/site-packages/nvidia/cu13/bin/nvcc
    cuda-setup: building `decode-bench` for compute capability 121; the first time the kernels take about ten minutes on two processors …
    cuda-setup: built in 0 s
    cuda-setup: to start, it needs libc.so.6
    cuda-setup: it starts where there is no CUDA library
    cuda-setup: on a GPU it loads libcuda.so.1 of the machine's driver, and libcublas.so.13, libcublasLt.so.13, libcurand.so.10, libnvrtc.so.13, libnvrtc-builtins.so.13.0
    cuda-setup: copy `[ROOT]/target/cuda/sm_121` to the GPU machine; there, in a checkout, run:
      cargo xtask gpu-check --binary sm_121/decode-bench
    or start the program by hand with LD_LIBRARY_PATH=[ROOT]/target/cuda/sm_121/lib
    ");
    let calls = workspace.read("calls");
    assert!(
        calls.contains("--features cuda --bin decode-bench --jobs=1 | 121 13000 1 "),
        "{calls}"
    );
    let pip = workspace.read("pip-calls");
    assert!(pip.contains("--no-deps --only-binary :all: --require-hashes"), "{pip}");
    // The runtime is there as an archive alone, so that it is linked statically.
    assert_eq!(
        workspace.names("target/cuda/link-13.0/lib64"),
        [
            "libcublas.so",
            "libcublasLt.so",
            "libcuda.so",
            "libcudart.a",
            "libcurand.so",
            "libnvrtc.so"
        ]
    );
    assert_eq!(workspace.names("target/cuda/sm_121"), ["decode-bench", "lib"]);
    assert_eq!(
        workspace.names("target/cuda/sm_121/lib"),
        [
            "libcublas.so.13",
            "libcublasLt.so.13",
            "libcurand.so.10",
            "libnvrtc-builtins.so.13.0",
            "libnvrtc.so.13",
        ]
    );
    let output = workspace.setup(&["--compute-cap", "121"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("wheels installed before"));
    assert_eq!(workspace.read("pip-calls").lines().count(), 1);
}

#[test]
fn an_installed_toolkit_is_used_and_said_so() {
    let workspace = Workspace::new();
    workspace.toolkit("toolkit", NVCC_13_0);
    let home = workspace.path("toolkit");
    let output = workspace.setup(&["--no-build"], &[("CUDA_HOME", home.to_str().unwrap())]);
    insta::assert_snapshot!(workspace.redacted(&output), @r"
    exit: Some(0)
    --- stdout
    [ROOT]/toolkit/bin/nvcc
    --- stderr
    cuda-setup: using the installed toolkit, CUDA 13.0: [ROOT]/toolkit/bin/nvcc
    cuda-setup: the toolchain is ready; nothing was built
    ");
    assert_eq!(workspace.read("calls"), "", "nothing was built");
    // One that is not complete is no half of a build.
    std::fs::remove_file(home.join("lib64/libcurand.so.10")).unwrap();
    let output = workspace.setup(&["--no-build"], &[("CUDA_HOME", home.to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the toolkit has no `libcurand.so`"), "{}", stderr(&output));
    assert!(stderr(&output).contains("hint: complete the toolkit, or use the wheels"));
}

#[test]
fn a_toolkit_that_cudarc_does_not_know_is_refused() {
    let workspace = Workspace::new();
    workspace.toolkit("toolkit", "echo 'Cuda compilation tools, release 19.2, V19.2.1'");
    let home = workspace.path("toolkit");
    let output = workspace.setup(&[], &[("CUDA_HOME", home.to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the pinned cudarc does not know CUDA 19.2"));
}

#[test]
fn a_machine_without_python_or_venv_is_told_what_to_install() {
    let workspace = Workspace::new();
    let output = workspace.setup(&[], &[]);
    insta::assert_snapshot!(workspace.redacted(&output), @r"
    exit: Some(2)
    --- stdout
    --- stderr
    error: cannot make a CUDA toolchain from wheels
      caused by: there is no Python 3.8 or newer (tried python3, python)
    hint: install Python (on Debian and Ubuntu: apt install python3 python3-venv), or a CUDA toolkit
    ");
    workspace.write_program(
        "bin/python3",
        "[ \"$1\" = -c ] && exit 0; echo 'No module named venv' >&2; exit 1",
    );
    let output = workspace.setup(&[], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("caused by: No module named venv"), "{}", stderr(&output));
    assert!(stderr(&output).contains("hint: on Debian and Ubuntu: apt install python3-venv"));
}

#[test]
fn each_failure_of_pip_is_told_with_its_way_out_and_taken_up_again() {
    let workspace = Workspace::new();
    for (says, hint) in [
        ("Connection refused", "hint: check the network"),
        ("[Errno 28] No space left on device", "hint: free some space"),
        (
            "THESE PACKAGES DO NOT MATCH THE HASHES",
            "hint: the index that pip uses has a different file",
        ),
        ("No matching distribution found", "hint: the index that pip uses has no such wheel"),
    ] {
        workspace.python(&format!("echo 'ERROR: {says}' >&2; exit 1"));
        let output = workspace.setup(&[], &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(&format!("caused by: ERROR: {says}")));
        assert!(stderr(&output).contains(hint), "{}", stderr(&output));
    }
    workspace.python(&workspace.good_pip());
    assert_eq!(workspace.setup(&[], &[]).status.code(), Some(0));
}

#[test]
fn a_binary_that_needs_cuda_to_start_is_a_failure() {
    let workspace = Workspace::new();
    workspace.toolkit("toolkit", NVCC_13_0);
    let home = workspace.path("toolkit");
    let env = [("CUDA_HOME", home.to_str().unwrap())];
    workspace.needs(&["libc.so.6", "libcudart.so.13"]);
    let output = workspace.setup(&[], &env);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("needs libcudart.so.13 to start"));
    workspace.needs(&["libc.so.6"]);
    workspace.write_program("built", "echo 'cannot open libcuda.so.1' >&2; exit 127");
    let output = workspace.setup(&[], &env);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot open libcuda.so.1"), "{}", stderr(&output));
}

#[test]
fn kernels_of_another_compiler_are_made_anew() {
    let workspace = Workspace::new();
    workspace.toolkit("toolkit", NVCC_13_0);
    workspace.write("target/release/build/candle-kernels-0123/output", "");
    let home = workspace.path("toolkit");
    let is_cleaned = || {
        let _ = std::fs::remove_file(workspace.path("calls"));
        let output = workspace.setup(&[], &[("CUDA_HOME", home.to_str().unwrap())]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        workspace
            .read("calls")
            .contains("clean --quiet --locked --release --package candle-kernels")
    };
    assert!(is_cleaned());
    assert!(!is_cleaned());
    workspace.toolkit("toolkit", &format!("{NVCC_13_0} # patched"));
    assert!(is_cleaned());
}

#[test]
fn a_compute_capability_is_checked_before_anything_is_done() {
    let workspace = Workspace::new();
    let output = workspace.setup(&["--compute-cap", "9.0"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("write 90 for 9.0"), "{}", stderr(&output));
}
