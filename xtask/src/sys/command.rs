//! Children that are not measured: builds, pip, git, compilers, checks.
//!
//! All of them run here, through `duct`, without input and with the command line in every error.
//! What is captured has a deadline and a process group of its own, which is killed when the deadline
//! passes. What a user watches has neither, so that Ctrl-C reaches it. Measured children are
//! `cell::child`'s.

use std::ffi::OsString;
use std::io::BufRead as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::terminal;
use crate::base::shell::quote_word;

/// How long a captured child may take, where nothing else is said.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long to wait for a child that was killed. One that is blocked in the kernel does not die; it
/// is left behind then, since nothing can be done about it.
const REAP: Duration = Duration::from_millis(500);
/// How many lines of what a child said an error shows.
const SHOWN_LINES: usize = 6;

/// A command line, where it runs, and its limits.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    words: Vec<OsString>,
    dir: Option<PathBuf>,
    env: Vec<(String, Option<String>)>,
    deadline: Duration,
}

/// Cargo in a folder, with its arguments on a line.
pub(crate) fn cargo(root: &Path, line: &str) -> Tool {
    Tool::new("cargo").args(line.split_whitespace()).dir(root)
}

/// Why a captured child gave no output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error("cannot start `{command}`")]
    Start { command: String, source: std::io::Error },
    #[error("`{command}` did not end within {} s", deadline.as_secs_f64())]
    Deadline { command: String, deadline: Duration },
}

impl Tool {
    /// A program: a path, or a name that is looked up in `PATH`.
    pub(crate) fn new(program: impl Into<OsString>) -> Tool {
        Tool { words: vec![program.into()], dir: None, env: Vec::new(), deadline: DEADLINE }
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Tool {
        self.words.push(arg.into());
        self
    }

    pub(crate) fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Tool {
        self.words.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn dir(mut self, dir: impl Into<PathBuf>) -> Tool {
        self.dir = Some(dir.into());
        self
    }

    /// Changes to the inherited environment, in order; `None` removes a variable.
    pub(crate) fn env(mut self, changes: &[(String, Option<String>)]) -> Tool {
        self.env.extend_from_slice(changes);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Tool {
        self.env.push((name.to_owned(), None));
        self
    }

    pub(crate) fn deadline(mut self, deadline: Duration) -> Tool {
        self.deadline = deadline;
        self
    }

    /// Runs it and captures what it writes. How it ends is not an error.
    pub(crate) fn output(&self) -> Result<Output, ToolError> {
        let start = |source| ToolError::Start { command: self.to_string(), source };
        let own_group = |command: &mut std::process::Command| {
            command.process_group(0);
            Ok(())
        };
        let handle = self
            .expression()
            .stdout_capture()
            .stderr_capture()
            .before_spawn(own_group)
            .start()
            .map_err(start)?;
        if handle.wait_timeout(self.deadline).map_err(start)?.is_some() {
            return handle.into_output().map_err(start);
        }
        for pid in handle.pids() {
            if let Some(group) = Pid::from_raw(pid as i32) {
                // It may have ended in this moment.
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        let _ = handle.wait_timeout(REAP);
        Err(ToolError::Deadline { command: self.to_string(), deadline: self.deadline })
    }

    /// Runs it and returns what it wrote to stdout; it must succeed.
    pub(crate) fn read(&self) -> anyhow::Result<String> {
        let output = self.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`{self}` failed ({}): {}", output.status, render_last(said.lines()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it with its output where ours goes; it must succeed.
    pub(crate) fn show(&self) -> anyhow::Result<()> {
        let output = self.expression().run().with_context(|| format!("cannot start `{self}`"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(anyhow!("`{self}` failed ({})", output.status)),
        }
    }

    /// Runs it with its output on our stderr. Returns how it ended, and the lines that it wrote to
    /// its stderr.
    pub(crate) fn relay(&self) -> anyhow::Result<(ExitStatus, Vec<String>)> {
        // What `duct` reads is stdout, and the messages are on stderr.
        let reader = self
            .expression()
            .stdout_stderr_swap()
            .reader()
            .with_context(|| format!("cannot start `{self}`"))?;
        let mut messages = Vec::new();
        for line in std::io::BufReader::new(&reader).split(b'\n') {
            let line = line.with_context(|| format!("cannot read what `{self}` says"))?;
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            terminal::log(&line);
            messages.push(line);
        }
        let ended = reader.try_wait().with_context(|| format!("cannot wait for `{self}`"))?;
        let output =
            ended.with_context(|| format!("`{self}` closed its output but is still running"))?;
        Ok((output.status, messages))
    }

    /// Starts it without output and does not wait.
    pub(crate) fn start(&self) -> anyhow::Result<Running> {
        let command = self.to_string();
        let started = self.expression().stdout_null().stderr_null().start();
        let handle = started.with_context(|| format!("cannot start `{command}`"))?;
        Ok(Running { handle, command })
    }

    fn expression(&self) -> duct::Expression {
        let mut expression = duct::cmd(&self.words[0], &self.words[1..]).stdin_null().unchecked();
        if let Some(dir) = &self.dir {
            expression = expression.dir(dir);
        }
        // The change that `duct` is told first wins.
        for (name, value) in self.env.iter().rev() {
            expression = match value {
                Some(value) => expression.env(name, value),
                None => expression.env_remove(name),
            };
        }
        expression
    }
}

/// The command line as it can be pasted into a shell.
impl std::fmt::Display for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let quote = |word: &OsString| quote_word(&word.to_string_lossy());
        f.write_str(&self.words.iter().map(quote).collect::<Vec<_>>().join(" "))
    }
}

/// A child that runs in the background.
#[derive(Debug)]
pub(crate) struct Running {
    handle: duct::Handle,
    command: String,
}

impl Running {
    pub(crate) fn is_running(&self) -> anyhow::Result<bool> {
        let ended = self.handle.try_wait();
        Ok(ended.with_context(|| format!("cannot check on `{}`", self.command))?.is_none())
    }

    /// Sends a signal to it; one that has ended does not hear it.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        if !self.is_running()? {
            return Ok(());
        }
        for pid in self.handle.pids().into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
            kill_process(pid, signal)
                .with_context(|| format!("cannot signal `{}`", self.command))?;
        }
        Ok(())
    }

    pub(crate) fn wait(self) -> anyhow::Result<ExitStatus> {
        let ended = self.handle.into_output();
        Ok(ended.with_context(|| format!("cannot wait for `{}`", self.command))?.status)
    }
}

/// The last lines of what a child said, on one line.
pub(crate) fn render_last<'a>(lines: impl DoubleEndedIterator<Item = &'a str>) -> String {
    let mut last: Vec<&str> =
        lines.rev().filter(|line| !line.trim().is_empty()).take(SHOWN_LINES).collect();
    last.reverse();
    if last.is_empty() { "it said nothing".to_owned() } else { last.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Tool {
        Tool::new("/bin/sh").args(["-c", script])
    }

    #[test]
    fn output_is_captured_and_a_failure_names_the_command_and_what_it_said() {
        assert_eq!(shell("echo out; echo err >&2").read().unwrap(), "out\n");
        let error = shell("echo a; echo first >&2; echo 'no such thing' >&2; exit 3").read();
        assert_eq!(
            error.unwrap_err().to_string(),
            "`/bin/sh -c 'echo a; echo first >&2; echo '\\''no such thing'\\'' >&2; exit 3'` failed \
             (exit status: 3): first; no such thing"
        );
        let error = shell("exit 1").read().unwrap_err().to_string();
        assert!(error.ends_with("(exit status: 1): it said nothing"), "{error}");
        assert_eq!(shell("exit 3").output().unwrap().status.code(), Some(3));
        let error = Tool::new("/nonexistent/tool").arg("--version").read().unwrap_err();
        assert_eq!(error.to_string(), "cannot start `/nonexistent/tool --version`");
    }

    #[test]
    fn the_deadline_ends_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let tool = shell("(sleep 60; touch late) & echo $! > pid; wait")
            .dir(folder.path())
            .deadline(Duration::from_millis(300));
        let error = tool.read().unwrap_err();
        assert!(error.to_string().ends_with("did not end within 0.3 s"), "{error}");
        let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let is_there = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        for _ in 0..1000 {
            if !is_there() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the grandchild is still there");
    }

    #[test]
    fn the_environment_is_changed_in_order() {
        let set = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let tool = shell("echo $A,$B,${HOME-none}")
            .env(&[set("A", "1"), set("B", "1")])
            .env(&[set("A", "2")])
            .env_remove("HOME");
        assert_eq!(tool.read().unwrap(), "2,1,none\n");
    }

    #[test]
    fn messages_are_relayed_and_returned() {
        let (status, messages) =
            shell("echo progress; echo 'ERROR: no' >&2; exit 2").relay().unwrap();
        assert_eq!((status.code(), messages), (Some(2), vec!["ERROR: no".to_owned()]));
        assert_eq!(shell("exit 0").show().unwrap(), ());
        assert!(
            shell("exit 4").show().unwrap_err().to_string().ends_with("failed (exit status: 4)")
        );
    }

    #[test]
    fn a_child_in_the_background_is_signalled() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap 'kill $!; exit 7' INT; sleep 60 & touch ready; wait";
        let running = shell(script).dir(folder.path()).start().unwrap();
        while !folder.path().join("ready").exists() {
            assert!(running.is_running().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
        running.signal(Signal::INT).unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn arguments_that_are_added_come_last_and_whole() {
        let tool = cargo(Path::new("/"), "test --").args(["a filter", "--nocapture"]);
        assert_eq!(tool.to_string(), "cargo test -- 'a filter' --nocapture");
    }

    #[test]
    fn only_the_last_lines_are_shown() {
        let lines = ["1", "2", "3", "", "4", "5", "6", "7"];
        assert_eq!(render_last(lines.into_iter()), "2; 3; 4; 5; 6; 7");
    }
}
