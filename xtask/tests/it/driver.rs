//! What the commands do with the NVIDIA driver's answer, and without one. No GPU is involved: NVML is
//! a small library that is compiled here, and `nvidia-smi` a script.

use testkit::{Command, Ran, Script, Workspace};

use crate::XTASK;

const SILENT: &str = "error: the NVIDIA driver does not answer\nhint: ";

/// A workspace in which every measuring command has something to measure.
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
    fn new() -> Lab {
        let workspace = Workspace::new(XTASK, &[]);
        workspace.write("model.toml", "");
        workspace.write("models/m/m.gguf", "weights");
        workspace.write(
            "bench-configs/sweep/s.toml",
            "models = [\"m\"]\nlengths = [512]\nrunner = \"scripted\"\n",
        );
        workspace.write(
            "bench-configs/ab/default.toml",
            "model = \"m\"\nrunner = \"scripted\"\nmax_blocks = 8\nmax_minutes = 1.0\n",
        );
        workspace.write("bench-configs/prereg/seed.toml", include_str!("prereg/seed.toml"));
        workspace.write_runner("scripted", "report", &["./runner.sh"]);
        workspace.write_scripted_program("runner.sh", "script.toml", "");
        workspace.script(&Script::new());
        workspace.write("checks.sh", "");
        workspace.write("bin/.keep", "");
        Lab { workspace }
    }

    /// `nvidia-smi` in `PATH`.
    fn write_smi(&self, script: &str) {
        self.write_program("bin/nvidia-smi", script);
    }

    /// An NVML; see `nvml.c`.
    fn build_nvml(&self) -> String {
        let library = self.path("libnvidia-ml.so.1").to_string_lossy().into_owned();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/nvml.c");
        let cc = ["-shared", "-fPIC", source, "-o", &library];
        Command::new("cc", self.root()).args(cc).run().exits_with(0);
        library
    }

    fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        let path = std::env::var("PATH").unwrap();
        let command = self
            .command(args)
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            // The machine's own driver, if any, is left alone.
            .env("ARC_NVML_LIBRARY", "/nonexistent")
            .env("ARC_DRIVER_DEADLINE_S", "1");
        env.iter().fold(command, |command, (name, value)| command.env(name, value)).run()
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

const SWEEP: [&str; 5] = ["sweep", "--config", "bench-configs/sweep/s.toml", "--output", "o.csv"];

#[test]
fn an_nvidia_smi_that_sleeps_for_ever_ends_every_command_before_the_first_launch() {
    let lab = Lab::new();
    lab.commit("x");
    let frozen = lab.run_with(&["prereg", "freeze", "seed"], &[]);
    assert_eq!(frozen.code, Some(0), "{}", frozen.stderr);
    lab.commit("frozen");

    // With a child of its own, which must end with it.
    lab.write_smi("sleep 600 & echo $! >> \"$PIDS\"; wait");
    let pids = lab.path("bin/pids");
    let commands: [&[&str]; 5] = [
        &SWEEP,
        &["sweep", "--list", "--config", "bench-configs/sweep/s.toml"],
        &["ab"],
        &["prereg", "run", "seed"],
        &["gpu-check", "--binary", "runner.sh", "--model", "m"],
    ];
    for args in commands {
        let ran = lab.run_with(args, &[("PIDS", pids.to_str().unwrap())]);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with(SILENT), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(lab.read("launches.txt"), "");
    assert!(!lab.path("o.csv").exists());
    let pids = lab.read("bin/pids");
    assert_eq!(pids.lines().count(), commands.len());
    assert!(pids.lines().all(ends_soon), "a child of nvidia-smi is still there");
}

#[test]
fn five_seconds_is_what_the_driver_has() {
    let lab = Lab::new();
    lab.write_smi("sleep 600");
    let ran = lab.run_with(&SWEEP, &[("ARC_DRIVER_DEADLINE_S", "")]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(
        ran.stderr,
        "error: the NVIDIA driver does not answer\nhint: a wedged driver needs a reboot (`sudo dmesg \
         | grep -iE 'nvrm|xid'` may say why); if the GPUs are only slow to wake up, run `sudo \
         nvidia-smi -pm 1` or set ARC_DRIVER_DEADLINE_S=30\n"
    );
}

#[test]
fn an_nvml_that_hangs_is_a_driver_that_does_not_answer() {
    let lab = Lab::new();
    let nvml = lab.build_nvml();
    lab.write_smi("echo 'NVIDIA X1, 24576, 570.86.15'");
    let ran = lab.run_with(&SWEEP, &[("ARC_NVML_LIBRARY", &nvml), ("TEST_NVML", "hang")]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.starts_with(SILENT), "{}", ran.stderr);
    assert_eq!(lab.read("launches.txt"), "");
}

#[test]
fn nvml_says_what_the_gpus_are_and_do() {
    let lab = Lab::new();
    let nvml = lab.build_nvml();
    let facts = |play: &str| {
        let env = [("ARC_NVML_LIBRARY", nvml.as_str()), ("TEST_NVML", play)];
        lab.run_with(&["driver-facts"], &env).stdout
    };
    let two = |memory: &str, free: &str| {
        let gpu =
            format!("{{\"name\":\"NVIDIA X1\",\"memory_bytes\":{memory},\"free_bytes\":{free}}}");
        format!(
            "{{\"version\":\"570.86.15\",\"gpus\":[{gpu},{gpu}],\"compute_processes\":3,\
             \"clock_event_reasons\":65}}\n"
        )
    };
    assert_eq!(facts(""), two("25769803776", "21474836480"));
    assert_eq!(facts("shared-memory"), two("null", "null"));
    assert_eq!(facts("crash"), "");
}

#[test]
fn a_row_names_the_gpu_whoever_told_of_it() {
    let lab = Lab::new();
    let nvml = lab.build_nvml();
    // It fails at what only newer drivers know, and names are all that a sweep needs.
    lab.write_smi(
        "case $1 in --query-gpu=name*) echo 'NVIDIA X2, [N/A], 580.1' ;; *) exit 2 ;; esac",
    );
    for (play, name, driver) in
        [("", "NVIDIA_X1_24GB", "570.86.15"), ("crash", "NVIDIA_X2_", "580.1")]
    {
        let csv = format!("{play}out.csv");
        let args = [&SWEEP[..4], &[&csv]].concat();
        let ran = lab.run_with(&args, &[("ARC_NVML_LIBRARY", &nvml), ("TEST_NVML", play)]);
        assert_eq!(ran.code, Some(0), "{play}: {}", ran.stderr);
        assert!(lab.read(&csv).contains(&format!(",{name}")), "{play}");
        let journal = lab.read(format!("{csv}.journal.jsonl"));
        assert!(journal.contains(&format!("\"driver\":\"{driver}\"")), "{play}: {journal}");
    }
}
