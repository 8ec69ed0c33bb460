//! What the commands do with the NVIDIA driver's answer, and without one. No GPU is involved: NVML is
//! a small library that is compiled here, and `nvidia-smi` a script.

#[path = "fixture/folder.rs"]
mod folder;

use std::process::{Command, Output};

use folder::Folder;

const SILENT: &str = "error: the NVIDIA driver does not answer\nhint: ";

/// A workspace in which every measuring command has something to measure.
struct Workspace {
    dir: Folder,
}

impl Workspace {
    fn new() -> Workspace {
        let dir = Folder::new();
        dir.write("Cargo.toml", "");
        dir.write("model.toml", "");
        dir.write("models/m/m.gguf", "weights");
        dir.write(
            "bench-configs/sweep/s.toml",
            "models = [\"m\"]\nlengths = [512]\nrunner = \"scripted\"\n",
        );
        dir.write(
            "bench-configs/ab/default.toml",
            "model = \"m\"\nrunner = \"scripted\"\nmax_blocks = 8\nmax_minutes = 1.0\n",
        );
        dir.write("bench-configs/prereg/seed.toml", include_str!("prereg/seed.toml"));
        dir.write(
            "bench-configs/runners/scripted.toml",
            "result = \"report\"\ncommand = [\"./runner.sh\", \"--model\", \"{model}\", \
             \"--prompt-tokens\", \"{prompt_tokens}\", \"--report\", \"{report}\"]\n",
        );
        dir.write("script.toml", "launch_log = \"launches.txt\"\n");
        let xtask = env!("CARGO_BIN_EXE_xtask");
        let play = format!("exec '{xtask}' scripted-runner --script script.toml \"$@\"");
        dir.write_program("runner.sh", &play);
        dir.write("checks.sh", "");
        dir.write("bin/.keep", "");
        Workspace { dir }
    }

    /// `nvidia-smi` in `PATH`.
    fn write_smi(&self, script: &str) {
        self.dir.write_program("bin/nvidia-smi", script);
    }

    /// An NVML; see `fixture/nvml.c`.
    fn build_nvml(&self) -> String {
        let library = self.dir.path("libnvidia-ml.so.1");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixture/nvml.c");
        let cc = ["-shared", "-fPIC", source, "-o"];
        let made = Command::new("cc").args(cc).arg(&library).output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        library.to_string_lossy().into_owned()
    }

    fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let path = std::env::var("PATH").unwrap();
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(args)
            .current_dir(self.dir.root())
            .env("PATH", format!("{}:{path}", self.dir.path("bin").display()))
            // The machine's own driver, if any, is left alone.
            .env("ARC_NVML_LIBRARY", "/nonexistent")
            .env("ARC_DRIVER_DEADLINE_S", "1")
            .env_remove("CARGO_TARGET_DIR")
            .envs(env.iter().copied())
            .output()
            .unwrap()
    }

    fn git(&self, args: &[&str]) {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
        let git = Command::new("git").args(who).args(args).current_dir(self.dir.root()).output();
        assert!(git.unwrap().status.success(), "git {args:?}");
    }
}

/// Whether a process ends within a few seconds; one that waits for its parent to notice has ended.
fn ends_soon(pid: &str) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    })
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SWEEP: [&str; 5] = ["sweep", "--config", "bench-configs/sweep/s.toml", "--output", "o.csv"];

#[test]
fn an_nvidia_smi_that_sleeps_for_ever_ends_every_command_before_the_first_launch() {
    let workspace = Workspace::new();
    for args in [&["init", "--quiet"][..], &["add", "-A"], &["commit", "--quiet", "-m", "x"]] {
        workspace.git(args);
    }
    let frozen = workspace.run(&["prereg", "freeze", "seed"], &[]);
    assert_eq!(frozen.status.code(), Some(0), "{}", stderr(&frozen));
    workspace.git(&["add", "-A"]);
    workspace.git(&["commit", "--quiet", "-m", "frozen"]);

    // With a child of its own, which must end with it.
    workspace.write_smi("sleep 600 & echo $! >> \"$PIDS\"; wait");
    let pids = workspace.dir.path("bin/pids");
    let commands: [&[&str]; 5] = [
        &SWEEP,
        &["sweep", "--list", "--config", "bench-configs/sweep/s.toml"],
        &["ab"],
        &["prereg", "run", "seed"],
        &["gpu-check", "--binary", "runner.sh", "--model", "m"],
    ];
    for args in commands {
        let ran = workspace.run(args, &[("PIDS", pids.to_str().unwrap())]);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {}", stderr(&ran));
        assert!(stderr(&ran).starts_with(SILENT), "{args:?}: {}", stderr(&ran));
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(workspace.dir.read("launches.txt"), "");
    assert!(!workspace.dir.path("o.csv").exists());
    let pids = workspace.dir.read("bin/pids");
    assert_eq!(pids.lines().count(), commands.len());
    assert!(pids.lines().all(ends_soon), "a child of nvidia-smi is still there");
}

#[test]
fn five_seconds_is_what_the_driver_has() {
    let workspace = Workspace::new();
    workspace.write_smi("sleep 600");
    let ran = workspace.run(&SWEEP, &[("ARC_DRIVER_DEADLINE_S", "")]);
    assert_eq!(ran.status.code(), Some(2));
    assert_eq!(
        stderr(&ran),
        "error: the NVIDIA driver does not answer\nhint: a wedged driver needs a reboot (`sudo dmesg \
         | grep -iE 'nvrm|xid'` may say why); if the GPUs are only slow to wake up, run `sudo \
         nvidia-smi -pm 1` or set ARC_DRIVER_DEADLINE_S=30\n"
    );
}

#[test]
fn an_nvml_that_hangs_is_a_driver_that_does_not_answer() {
    let workspace = Workspace::new();
    let nvml = workspace.build_nvml();
    workspace.write_smi("echo 'NVIDIA X1, 24576, 570.86.15'");
    let ran = workspace.run(&SWEEP, &[("ARC_NVML_LIBRARY", &nvml), ("TEST_NVML", "hang")]);
    assert_eq!(ran.status.code(), Some(2), "{}", stderr(&ran));
    assert!(stderr(&ran).starts_with(SILENT), "{}", stderr(&ran));
    assert_eq!(workspace.dir.read("launches.txt"), "");
}

#[test]
fn nvml_says_what_the_gpus_are_and_do() {
    let workspace = Workspace::new();
    let nvml = workspace.build_nvml();
    let facts = |play: &str| {
        let env = [("ARC_NVML_LIBRARY", nvml.as_str()), ("TEST_NVML", play)];
        String::from_utf8(workspace.run(&["driver-facts"], &env).stdout).unwrap()
    };
    let two = |memory: &str| {
        let gpu = format!("{{\"name\":\"NVIDIA X1\",\"memory_bytes\":{memory}}}");
        format!(
            "{{\"version\":\"570.86.15\",\"gpus\":[{gpu},{gpu}],\"compute_processes\":3,\
             \"clock_event_reasons\":65}}\n"
        )
    };
    assert_eq!(facts(""), two("25769803776"));
    assert_eq!(facts("shared-memory"), two("null"));
    assert_eq!(facts("crash"), "");
}

#[test]
fn a_row_names_the_gpu_whoever_told_of_it() {
    let workspace = Workspace::new();
    let nvml = workspace.build_nvml();
    // It fails at what only newer drivers know, and names are all that a sweep needs.
    workspace.write_smi(
        "case $1 in --query-gpu=name*) echo 'NVIDIA X2, [N/A], 580.1' ;; *) exit 2 ;; esac",
    );
    for (play, name, driver) in
        [("", "NVIDIA_X1_24GB", "570.86.15"), ("crash", "NVIDIA_X2_", "580.1")]
    {
        let csv = format!("{play}out.csv");
        let args = [&SWEEP[..4], &[&csv]].concat();
        let ran = workspace.run(&args, &[("ARC_NVML_LIBRARY", &nvml), ("TEST_NVML", play)]);
        assert_eq!(ran.status.code(), Some(0), "{play}: {}", stderr(&ran));
        assert!(workspace.dir.read(&csv).contains(&format!(",{name}")), "{play}");
        let journal = workspace.dir.read(&format!("{csv}.journal.jsonl"));
        assert!(journal.contains(&format!("\"driver\":\"{driver}\"")), "{play}: {journal}");
    }
}
