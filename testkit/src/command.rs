//! One command of a test: an environment that nobody's shell reaches, no stdin, and a deadline.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duct::unix::HandleExt as _;

/// No command of a test takes longer, even on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(180);
/// What an interrupted command gets to end its own children.
const GRACE: Duration = Duration::from_secs(5);
/// Prefixes of variables that steer the programs under test, or git.
const STEERING: &[&str] = &[
    "ARC_",
    "BENCH_",
    "CANDLE_",
    "CUBLAS_",
    "CUDA",
    "GGML_",
    "GIT_",
    "LLAMA_",
    "MALLOC_",
    "MKL_",
    "MLXCEL_",
    "NVCC",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "RAYON_",
];
/// Single variables that do.
const STEERING_NAMES: &[&str] = &["CARGO_TARGET_DIR", "RUSTFLAGS", "RUST_BACKTRACE"];

/// A program with its arguments, its folder and its environment.
#[derive(Debug, Clone)]
#[must_use]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    folder: PathBuf,
    env: Vec<(OsString, Option<OsString>)>,
    limit: Duration,
}

/// How a command ended. Shown, it is what a snapshot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to stdout; what is not UTF-8 is replaced.
    pub stdout: String,
    /// What it wrote to stderr, likewise.
    pub stderr: String,
}

/// A command that runs. It is killed when the value goes, so that a test that fails leaves nothing
/// behind.
#[derive(Debug)]
pub struct Started {
    handle: duct::Handle,
    shown: String,
    deadline: Instant,
    // Files, because a pipe that a grandchild holds open would be waited for.
    stdout: File,
    stderr: File,
}

impl Command {
    /// A command in a folder, without the variables that steer it from outside.
    pub fn new(program: impl AsRef<OsStr>, folder: impl AsRef<Path>) -> Command {
        let env = std::env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| {
                let name = name.to_string_lossy();
                STEERING.iter().any(|prefix| name.starts_with(prefix))
                    || STEERING_NAMES.contains(&&*name)
            })
            .map(|name| (name, None))
            .collect();
        Command {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            folder: folder.as_ref().to_owned(),
            env,
            limit: LIMIT,
        }
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Command {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Command {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes a variable.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Command {
        self.env.push((name.as_ref().to_owned(), None));
        self
    }

    /// Replaces the deadline of three minutes.
    pub fn limit(mut self, limit: Duration) -> Command {
        self.limit = limit;
        self
    }

    /// Runs it to its end. Panics with what it wrote where the deadline comes first.
    #[track_caller]
    pub fn run(&self) -> Ran {
        self.start().wait()
    }

    /// Starts it.
    #[track_caller]
    pub fn start(&self) -> Started {
        let shown = format!("{} {:?}", self.program.to_string_lossy(), self.args);
        let stdout = tempfile::tempfile().expect("cannot make a temporary file");
        let stderr = tempfile::tempfile().expect("cannot make a temporary file");
        let mut expression = duct::cmd(&self.program, &self.args)
            .dir(&self.folder)
            .stdin_null()
            .stdout_file(stdout.try_clone().expect("cannot clone a file"))
            .stderr_file(stderr.try_clone().expect("cannot clone a file"))
            .before_spawn(|command| {
                heed_interrupts(command);
                Ok(())
            })
            .unchecked();
        // What is said last is applied first.
        for (name, value) in self.env.iter().rev() {
            expression = match value {
                Some(value) => expression.env(name, value),
                None => expression.env_remove(name),
            };
        }
        let handle = expression.start().unwrap_or_else(|error| panic!("{shown}: {error}"));
        Started { handle, shown, deadline: Instant::now() + self.limit, stdout, stderr }
    }
}

/// A shell that starts the tests in the background has interrupts ignored, and a program would inherit that.
fn heed_interrupts(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt as _;
    let heed = || {
        // SAFETY: it sets how one signal is taken, which is allowed between fork and exec.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: as above, and nothing else is done there.
    unsafe { command.pre_exec(heed) };
}

impl Started {
    /// Waits for its end. Panics with what it wrote where the deadline comes first.
    #[track_caller]
    pub fn wait(self) -> Ran {
        let ended = self.handle.wait_deadline(self.deadline).expect("cannot wait for a child");
        let Some(status) = ended.map(|output| output.status) else {
            self.end();
            panic!("{} was not done in time; it wrote:\n{}", self.shown, self.text());
        };
        Ran {
            code: status.code(),
            signal: status.signal(),
            stdout: read(&self.stdout),
            stderr: read(&self.stderr),
        }
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        self.handle.try_wait().expect("cannot ask for a child").is_none()
    }

    /// Waits until something is so, or it has ended. Panics where the deadline comes first.
    #[track_caller]
    pub fn wait_until(&self, is_so: impl Fn() -> bool) {
        while !is_so() && self.is_running() {
            if Instant::now() > self.deadline {
                self.end();
                panic!("{} was waited for in vain; it wrote:\n{}", self.shown, self.text());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends it SIGINT, as Ctrl-C does, and waits for its end.
    #[track_caller]
    pub fn interrupt(self) -> Ran {
        self.handle.send_signal(libc::SIGINT).expect("cannot send a signal");
        self.wait()
    }

    /// Ends it by SIGKILL, as a power cut would. `code` is `None` in what is returned, unless it had
    /// ended before.
    #[track_caller]
    pub fn kill(self) -> Ran {
        self.handle.kill().expect("cannot kill a child");
        self.wait()
    }

    /// Interrupts it, so that it ends its own children, and kills it if that does not help.
    fn end(&self) {
        let _ = self.handle.send_signal(libc::SIGINT);
        if !matches!(self.handle.wait_timeout(GRACE), Ok(Some(_))) {
            let _ = self.handle.kill();
        }
    }

    fn text(&self) -> String {
        read(&self.stdout) + &read(&self.stderr)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !matches!(self.handle.try_wait(), Ok(Some(_))) {
            self.end();
        }
    }
}

/// What a child has written to a file; the child writes on where it was.
fn read(file: &File) -> String {
    let len = file.metadata().expect("cannot read what a child wrote").len();
    let mut bytes = vec![0; usize::try_from(len).expect("a child wrote too much")];
    file.read_exact_at(&mut bytes, 0).expect("cannot read what a child wrote");
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Ran {
    /// Expects this exit code; panics with what was written where it is another.
    #[track_caller]
    pub fn exits_with(self, code: i32) -> Ran {
        assert!(self.code == Some(code), "expected exit code {code}\n{self}");
        self
    }

    /// The JSON on stdout.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}\n{self}"))
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => writeln!(f, "exit code {code}")?,
            (None, signal) => writeln!(f, "signal {}", signal.unwrap_or_default())?,
        }
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                write!(f, "--- {name}\n{text}")?;
                if !text.ends_with('\n') {
                    writeln!(f, "\n(no newline at the end)")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        Command::new("/bin/sh", "/").args(["-c", script])
    }

    #[test]
    fn a_command_ends_with_its_code_or_its_signal() {
        let ran = sh("echo out; echo err >&2; exit 3").run();
        assert_eq!(ran.to_string(), "exit code 3\n--- stdout\nout\n--- stderr\nerr\n");
        assert_eq!(sh("kill -9 $$").run().to_string(), "signal 9\n");
        assert_eq!(sh("cat").run().exits_with(0).stdout, "", "stdin is empty");
    }

    #[test]
    #[should_panic(expected = "expected exit code 0\nexit code 1\n--- stderr\nwhy\n")]
    fn another_code_is_told_with_what_was_written() {
        sh("echo why >&2; exit 1").run().exits_with(0);
    }

    #[test]
    #[should_panic(expected = "was not done in time; it wrote:\nhere\n")]
    fn a_command_that_hangs_is_ended_and_told() {
        // The grandchild keeps the command's stdout open, and is not waited for.
        sh("echo here; sleep 5 & wait").limit(Duration::from_millis(300)).run();
    }

    #[test]
    #[should_panic(expected = "was waited for in vain")]
    fn a_wait_has_the_deadline_too() {
        sh("exec sleep 600").limit(Duration::from_millis(300)).start().wait_until(|| false);
    }

    #[test]
    fn variables_that_steer_are_gone_and_the_last_word_counts() {
        let command = sh("echo \"$A:$CARGO_TARGET_DIR\"").env("A", "1").env("A", "2");
        assert_eq!(command.run().stdout, "2:\n");
        assert_eq!(command.env_remove("A").run().stdout, ":\n");
    }

    #[test]
    fn a_started_command_is_interrupted_and_killed() {
        let started = sh("trap 'exit 130' INT; echo up; while :; do sleep 0.01; done").start();
        assert!(started.is_running());
        started.wait_until(|| started.text() == "up\n");
        assert_eq!(started.interrupt().code, Some(130));
        assert_eq!(sh("exec sleep 600").start().kill().signal, Some(9));
    }
}
