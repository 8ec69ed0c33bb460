//! A temporary checkout: a small workspace with two models and a scripted runner, in which the real
//! binary runs real sweeps that prove something about it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::Signal;

use crate::cell::child::ChildSpec;
use crate::cell::child::run::run_child;
use crate::cell::classify::ExitKind;
use crate::cell::journal::{Journal, parse_journal};
use crate::cell::row::{Table, parse_csv};
use crate::oom_record::OomRecord;
use crate::sys::command::{Running, Tool};
use crate::sys::files;
use crate::sys::git::git;
use crate::sys::interrupt::Interrupt;

/// No run of a scenario takes longer than this.
const RUN_LIMIT: Duration = Duration::from_secs(180);
/// The definition that runs of a scenario use.
const CONFIG: &str = "bench-configs/sweep/scenario.toml";
const RECORD: &str = "benchmarks/.oom-record";
const LAUNCH_LOG: &str = "launches.txt";
const SCRIPT: &str = "script.toml";

/// A workspace of its own; it goes with the value.
#[derive(Debug)]
pub(crate) struct Checkout {
    folder: tempfile::TempDir,
    xtask: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; `None` where a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) rss_peak_bytes: Option<u64>,
}

impl Checkout {
    /// Models `a` and `b`, lengths 512, 2048 and 8192, and a runner whose every launch succeeds.
    pub(crate) fn create() -> anyhow::Result<Checkout> {
        let folder = tempfile::Builder::new()
            .prefix("arc-scenario-")
            .tempdir()
            .context("cannot create a temporary folder")?;
        let xtask = std::env::current_exe().context("cannot tell the path of this program")?;
        let checkout = Checkout { folder, xtask };
        checkout.write("Cargo.toml", "")?;
        for model in ["a", "b"] {
            checkout.write(&format!("bench-configs/models/{model}.toml"), "")?;
        }
        checkout.write(
            CONFIG,
            "models = [\"a\", \"b\"]\nlengths = [512, 2048, 8192]\nrunner = \"scripted\"\ndevice = \
             \"cpu\"\ntimeout_s = 60\n",
        )?;
        let program = serde_json::to_string(&checkout.xtask.to_string_lossy())?;
        let command = format!(
            "command = [{program}, \"scripted-runner\", \"--script\", \"{SCRIPT}\", \"--model\", \
             \"{{model}}\", \"--prompt-tokens\", \"{{prompt_tokens}}\", \"--max-tokens\", \
             \"{{max_tokens}}\""
        );
        checkout.write(
            "bench-configs/runners/scripted.toml",
            &format!("result = \"report\"\n{command}, \"--report\", \"{{report}}\"]\n"),
        )?;
        checkout.write(
            "bench-configs/runners/scripted-text.toml",
            &format!("result = \"profile-text\"\n{command}]\n"),
        )?;
        checkout.script("")?;
        checkout
            .write(".gitignore", "/benchmarks/.oom-record\n/benchmarks/.sweep.lock\n/target\n")?;
        checkout.commit()?;
        Ok(checkout)
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let path = self.root().join(path);
        files::create_folder(path.parent().unwrap_or(self.root()))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Replaces a text in a file wherever it stands.
    pub(crate) fn replace(&self, path: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let text = self.read(path)?;
        anyhow::ensure!(text.contains(from), "`{path}` does not hold `{from}`");
        files::replace_text(&self.folder.path().join(path), &text.replace(from, to))
    }

    pub(crate) fn remove(&self, path: &str) -> anyhow::Result<()> {
        match std::fs::remove_file(self.root().join(path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove `{path}`"))
            }
            _ => Ok(()),
        }
    }

    /// The text of a file; empty where there is none.
    pub(crate) fn read(&self, path: &str) -> anyhow::Result<String> {
        Ok(files::read_text_if_present(&self.root().join(path))?.unwrap_or_default())
    }

    /// What the runner does from now on: cells in TOML.
    pub(crate) fn script(&self, cells: &str) -> anyhow::Result<()> {
        self.write(SCRIPT, &format!("launch_log = \"{LAUNCH_LOG}\"\n{cells}"))
    }

    /// The launches so far, `MODEL LENGTH` each; the count starts again at 0.
    pub(crate) fn take_launches(&self) -> anyhow::Result<Vec<String>> {
        let launches = self.read(LAUNCH_LOG)?.lines().map(str::to_owned).collect();
        self.remove(LAUNCH_LOG)?;
        Ok(launches)
    }

    pub(crate) fn record_text(&self) -> anyhow::Result<String> {
        self.read(RECORD)
    }

    pub(crate) fn write_record(&self, text: &str) -> anyhow::Result<()> {
        self.write(RECORD, text)
    }

    pub(crate) fn record(&self) -> anyhow::Result<OomRecord> {
        crate::oom_record::file::read_record(&self.root().join(RECORD))
    }

    pub(crate) fn csv(&self, path: &str) -> anyhow::Result<Table> {
        parse_csv(&self.read(path)?).with_context(|| format!("`{path}` is not a CSV"))
    }

    /// Model, length and class of each row; measured ones have the class `measured`.
    pub(crate) fn rows(&self, path: &str) -> anyhow::Result<Vec<String>> {
        let table = self.csv(path)?;
        let describe = |row| {
            let value = |column| table.value(row, column).unwrap_or_default();
            let class = row.classification_token().unwrap_or("measured");
            format!("{} {} {class}", value("model"), value("prompt_target_len"))
        };
        Ok(table.rows().iter().map(describe).collect())
    }

    pub(crate) fn journal(&self, csv: &str) -> anyhow::Result<Journal> {
        Ok(parse_journal(&self.read(&format!("{csv}.journal.jsonl"))?))
    }

    pub(crate) fn sweep(&self, csv: &str, args: &[&str]) -> anyhow::Result<Ran> {
        self.sweep_with(csv, args, &[])
    }

    pub(crate) fn sweep_with(
        &self,
        csv: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Ran> {
        let mut all = vec!["sweep", "--config", CONFIG, "--output", csv];
        all.extend_from_slice(args);
        self.xtask(&all, env)
    }

    pub(crate) fn resume(&self, csv: &str, args: &[&str]) -> anyhow::Result<Ran> {
        let mut all = vec!["sweep", "--resume", csv];
        all.extend_from_slice(args);
        self.xtask(&all, &[])
    }

    pub(crate) fn xtask(&self, args: &[&str], env: &[(&str, &str)]) -> anyhow::Result<Ran> {
        let mut spec = ChildSpec::new(&self.xtask, self.root());
        spec.args = args.iter().map(Into::into).collect();
        self.run(spec, env)
    }

    /// Runs a sweep that can write files of this size at most: a disk that is full.
    pub(crate) fn sweep_on_full_disk(
        &self,
        csv: &str,
        args: &[&str],
        blocks_of_512_bytes: u64,
    ) -> anyhow::Result<Ran> {
        let mut spec = ChildSpec::new("/bin/sh", self.root());
        spec.args = vec![
            "-c".into(),
            // Without the signal a write beyond the limit is an error, as on a full disk.
            format!("trap '' XFSZ; ulimit -f {blocks_of_512_bytes}; exec \"$@\"").into(),
            "sh".into(),
        ];
        spec.args.push(self.xtask.clone().into());
        let start = ["sweep", "--config", CONFIG, "--output", csv];
        spec.args.extend(start.iter().chain(args).map(Into::into));
        self.run(spec, &[])
    }

    /// Runs it as a cell is run, though it is none: its peak memory is measured, and it ends with us.
    fn run(&self, mut spec: ChildSpec, env: &[(&str, &str)]) -> anyhow::Result<Ran> {
        spec.env = clean_env();
        spec.env.extend(env.iter().map(|(n, v)| ((*n).to_owned(), Some((*v).to_owned()))));
        spec.timeout = Some(RUN_LIMIT);
        let interrupt = Interrupt::install()?;
        let end = run_child(&spec, interrupt)?;
        if interrupt.is_set() {
            bail!("interrupted");
        }
        let code = match end.exit {
            ExitKind::Code(code) => Some(code),
            ExitKind::Signal(_) => None,
        };
        Ok(Ran {
            code,
            stdout: end.stdout.text(),
            stderr: end.stderr.text(),
            rss_peak_bytes: end.rss_peak_bytes,
        })
    }

    /// Starts a sweep and lets it run for a while.
    pub(crate) fn start_sweep(&self, csv: &str, wait: Duration) -> anyhow::Result<Started> {
        let running = Tool::new(&self.xtask)
            .args(["sweep", "--config", CONFIG, "--output", csv])
            .dir(self.root())
            .env(&clean_env())
            .start()?;
        std::thread::sleep(wait);
        Ok(Started { running })
    }

    /// Waits until this many cells have been launched.
    pub(crate) fn wait_for_launches(&self, count: usize) -> anyhow::Result<()> {
        for _ in 0..2000 {
            if self.read(LAUNCH_LOG)?.lines().count() >= count {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("{count} cells were not launched within 10 s")
    }

    fn commit(&self) -> anyhow::Result<()> {
        let steps: [&[&str]; 3] = [
            &["init", "--quiet"],
            &["add", "--all"],
            &[
                "-c",
                "user.name=scenario",
                "-c",
                "user.email=scenario@invalid",
                "-c",
                "core.hooksPath=/dev/null",
                "commit",
                "--quiet",
                "--no-gpg-sign",
                "--message",
                "checkout of a scenario",
            ],
        ];
        for args in steps {
            git(self.root(), args.iter().copied()).read()?;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Started {
    running: Running,
}

impl Started {
    /// Ends it by SIGKILL, as a power cut would, and waits until it is gone. Returns whether it was
    /// still running.
    pub(crate) fn kill(self) -> anyhow::Result<bool> {
        let was_running = self.running.is_running()?;
        self.running.signal(Signal::KILL)?;
        self.running.wait()?;
        Ok(was_running)
    }

    /// Sends it SIGINT, as Ctrl-C does, and waits for its exit code.
    pub(crate) fn interrupt(self) -> anyhow::Result<Option<i32>> {
        self.running.signal(Signal::INT)?;
        Ok(self.running.wait()?.code())
    }
}

/// Removes what would steer a sweep from outside.
fn clean_env() -> Vec<(String, Option<String>)> {
    crate::sys::env::read_relevant_vars()
        .into_keys()
        .chain(["CARGO_TARGET_DIR".to_owned()])
        .map(|name| (name, None))
        .collect()
}
