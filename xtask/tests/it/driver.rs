//! What the commands do with the NVIDIA driver's answer, and without one. No GPU is involved: NVML is
//! a small library that is compiled here, and `nvidia-smi` a script.

use testkit::{Command, Ran, Script, Workspace};

use crate::XTASK;

mod health;

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
    let gpus = |memory: &str, free: &str, processes: [&str; 2], reasons: [u64; 2]| {
        let gpu = |number: usize| {
            format!(
                "{{\"name\":\"NVIDIA X1\",\"uuid\":\"GPU-{}11\",\"memory_bytes\":{memory},\
                 \"free_bytes\":{free},\"processes\":[{}],\"drawing\":[],\
                 \"clock_event_reasons\":{},\"instances\":[]}}",
                ["aa", "bb"][number],
                processes[number],
                reasons[number]
            )
        };
        format!("{{\"facts\":{{\"version\":\"570.86.15\",\"gpus\":[{},{}]}}}}\n", gpu(0), gpu(1))
    };
    assert_eq!(facts(""), gpus("25769803776", "21474836480", ["", ""], [1, 1]));
    assert_eq!(facts("shared-memory"), gpus("null", "null", ["", ""], [1, 1]));
    assert_eq!(
        facts("busy hot lost"),
        gpus("25769803776", "12884901888", ["4000000", "4000010,4000011"], [1, 64])
    );
    assert_eq!(facts("crash"), "");
    let [first, second] = ["fallen", "desktop"].map(facts);
    assert!(first.contains("\"broken\":\"device fell off the bus"), "{first}");
    assert!(first.contains("\"uuid\":\"GPU-bb11\",\"memory_bytes\":25769803776"), "{first}");
    let processes = "\"processes\":[4100000],\"drawing\":[4100000,4100001]";
    assert_eq!(second.matches(processes).count(), 1, "{second}");
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

/// A sweep of three lengths whose runner does `what` in its second cell, with the state of the driver in a
/// file.
fn sick_lab(what: &str) -> (Lab, String) {
    let lab = Lab::new();
    let nvml = lab.build_nvml();
    lab.write(
        "bench-configs/sweep/s.toml",
        "models = [\"m\"]\nlengths = [512, 1024, 2048]\nrunner = \"ill\"\n",
    );
    lab.write_runner("ill", "profile-text", &["./ill.sh", "{prompt_tokens}"]);
    lab.write_program(
        "ill.sh",
        &format!(
            "echo $1 >> launched.txt\nif [ $1 = 1024 ]; then {what}; fi\n\
             echo \"Prompt tokens: $1\"\necho 'Generated tokens: 32'\n\
             echo \"Prefill: 100.00 ms (${{1}}0.00 tok/s)\"\necho 'Decode: 320.00 ms (96.88 tok/s)'\n"
        ),
    );
    lab.write("state", "");
    lab.write("kernel.log", "6,1,1,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n");
    (lab, nvml)
}

fn run_sick(lab: &Lab, nvml: &str, args: &[&str]) -> Ran {
    let (state, log) = (lab.path("state"), lab.path("kernel.log"));
    let env = [
        ("ARC_NVML_LIBRARY", nvml),
        ("TEST_NVML_STATE", state.to_str().unwrap()),
        ("ARC_KERNEL_LOG", log.to_str().unwrap()),
    ];
    lab.run_with(args, &env)
}

/// Whatever a hard cell leaves of the driver, no cell is launched on it; what was measured is kept, and
/// once the driver is well the sweep goes on where it stopped.
#[test]
fn a_driver_that_is_ill_after_a_hard_cell_stops_the_sweep() {
    let cases = [
        ("echo hang > state", "it does not answer"),
        ("echo lost > state", "12.0 GiB of GPU 0's memory are free, 20.0 GiB were before"),
        ("echo busy > state", "process 4000000 (another user's) computes on the GPU"),
        ("echo hot > state", "heat or power lowers the GPU's clocks"),
        ("echo fallen > state", "it fails: device fell off the bus"),
        ("echo desktop > state", "process 4100000 (another user's) computes on the GPU"),
        (
            "echo '4,2,2,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.' >> kernel.log",
            "the kernel logged `NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.`",
        ),
    ];
    std::thread::scope(|scope| {
        for (leaves, said) in cases {
            scope.spawn(move || stops_and_goes_on(leaves, said));
        }
    });
}

fn stops_and_goes_on(leaves: &str, said: &str) {
    let (lab, nvml) = sick_lab(&format!("{leaves}; kill -SEGV $$"));
    let ran = run_sick(&lab, &nvml, &SWEEP);
    assert_eq!(ran.code, Some(2), "{leaves}: {}", ran.stderr);
    let line = format!("sweep: the driver is not healthy: {said}");
    assert!(ran.stderr.contains(&line), "{leaves}: {}", ran.stderr);
    assert!(ran.stderr.contains("go on with `cargo xtask sweep --resume o.csv`"));
    assert_eq!(ran.stdout, "o.csv\n");
    assert_eq!(lab.read("launched.txt"), "512\n1024\n", "{leaves}");
    let csv = lab.read("o.csv");
    assert_eq!(csv.lines().count(), 3, "{csv}");
    let journal = lab.read("o.csv.journal.jsonl");
    let end = journal.lines().last().unwrap();
    assert!(end.contains("\"event\":\"sweep_end\"") && end.contains("\"stopped\":\""), "{end}");

    // Of what the kernel logs nobody knows how long it holds; a desktop may have been started meanwhile.
    if !leaves.contains("kernel.log") && !leaves.contains("desktop") {
        let ran = run_sick(&lab, &nvml, &["sweep", "--resume", "o.csv"]);
        assert_eq!(ran.code, Some(2), "still ill, {leaves}: {}", ran.stderr);
        assert_eq!(lab.read("launched.txt"), "512\n1024\n", "{leaves}");
        assert_eq!(lab.read("o.csv.journal.jsonl"), journal, "{leaves}");
    }

    lab.write("state", "newer");
    let ran = run_sick(&lab, &nvml, &["sweep", "--resume", "o.csv"]);
    assert_eq!(ran.code, Some(1), "{leaves}: {}", ran.stderr);
    assert_eq!(lab.read("launched.txt"), "512\n1024\n2048\n", "{leaves}");
    let note = "note: changed since the last start: the driver was 570.86.15 and is 580.1";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    let logged = ran.stderr.contains("the kernel logged since: NVRM: Xid");
    assert_eq!(logged, leaves.contains("kernel.log"), "{}", ran.stderr);
}

#[test]
fn nothing_is_launched_on_a_driver_that_is_ill_from_the_start() {
    let (lab, nvml) = sick_lab("true");
    lab.write("state", "busy");
    let ran = run_sick(&lab, &nvml, &SWEEP);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("sweep: the driver is not healthy: process 4000000"));
    assert!(!lab.path("launched.txt").exists() && !lab.path("o.csv").exists());
}

#[test]
fn a_hard_cell_that_leaves_all_well_is_followed_by_the_next() {
    // As the driver logs it of any cell that runs out of memory.
    let (lab, nvml) = sick_lab(
        "echo '4,2,2,-;NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY]' >> \
         kernel.log; kill -SEGV $$",
    );
    let ran = run_sick(&lab, &nvml, &SWEEP);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(!ran.stderr.contains("not healthy"), "{}", ran.stderr);
    assert_eq!(lab.read("launched.txt"), "512\n1024\n2048\n");
    assert_eq!(lab.read("o.csv").matches("FAIL:").count(), 1, "the hard one alone");
}

#[test]
fn gpus_of_two_kinds_are_not_mixed_in_one_file() {
    let (lab, nvml) = sick_lab("true");
    lab.write("state", "mixed");
    let ran = run_sick(&lab, &nvml, &SWEEP);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let said = "the GPUs that programs see here differ (NVIDIA X1 24 GiB, NVIDIA X2 24 GiB)";
    assert!(ran.stderr.contains(said) && ran.stderr.contains("CUDA_VISIBLE_DEVICES"));
    assert!(!lab.path("launched.txt").exists());

    let args = [&SWEEP[..4], &["x2.csv"]].concat();
    let (state, log) = (lab.path("state"), lab.path("kernel.log"));
    let env = [
        ("ARC_NVML_LIBRARY", nvml.as_str()),
        ("TEST_NVML_STATE", state.to_str().unwrap()),
        ("ARC_KERNEL_LOG", log.to_str().unwrap()),
        ("CUDA_VISIBLE_DEVICES", "GPU-bb"),
    ];
    let ran = lab.run_with(&args, &env);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(lab.read("x2.csv").contains(",NVIDIA_X2_24GB"), "{}", lab.read("x2.csv"));
}
