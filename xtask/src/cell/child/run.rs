//! Measured children: started in a process group of their own, watched, and ended as a group.
//!
//! It owns starting, waiting, the deadline, the memory limit, and reading output with bounded
//! memory while it is searched for allocator failures. It judges nothing: see `classify`.
//!
//! This is `std::process` rather than `duct`: a measured child has limits set between fork and exec,
//! its memory's peak taken from `wait4`, and its output searched while it streams, all of which lies
//! below what `duct` offers. `wait4` is libc's, because rustix waits without the usage.

use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};

use super::{ChildEnd, ChildSpec};
use crate::cell::capture::Capture;
use crate::cell::classify::{ExitKind, StopReason};
use crate::cell::evidence::search::Search;
use crate::cell::evidence::verdict::judge;
use crate::cell::quiet::LostTime;
use crate::cell::serving::run::Client;
use crate::cell::serving::{FailureKind, ServeFailure, Served};
use crate::sys::family::Family;
use crate::sys::interrupt::{Interrupt, poll_for};
use crate::sys::{clock, host, kernel_log};

/// How often memory is looked at while a child runs.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// How long output may still arrive after a child and its group ended: a process that left the
/// group can hold the pipe open for ever.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);
/// How long a server may take to die of what made a request fail before it is taken to live on.
const DEATH_LIMIT: Duration = Duration::from_secs(2);
/// How long a client may take to notice that its server has ended.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 * 1024;

/// Starts a child and stays with it until it and its group have ended.
///
/// # Errors
/// When it cannot be started at all. How it ends is never an error.
pub(crate) fn run_child(spec: &ChildSpec, interrupt: Interrupt) -> anyhow::Result<ChildEnd> {
    let oom_kills_before = host::read_cgroup_oom_kills();
    let slept_before = clock::read_slept();
    let start = Instant::now();
    let mut child = command(spec)
        .spawn()
        .with_context(|| format!("cannot start `{}`", spec.program.to_string_lossy()))?;
    let pid = Pid::from_child(&child);
    let mut streams = [
        Stream::new(child.stdout.take().expect("stdout is piped").into(), spec),
        Stream::new(child.stderr.take().expect("stderr is piped").into(), spec),
    ];
    let exited = watch_exit(pid).inspect_err(|_| kill_group(pid, Signal::KILL))?;
    let mut watch = Watch::new(spec, start, pid);
    let client = spec.client.clone().map(Client::start).transpose();
    let client = client.inspect_err(|_| kill_group(pid, Signal::KILL))?;
    let mut served = None;

    while !watch.has_exited {
        watch.act(pid, interrupt);
        let interrupt_fd = watch.stopped.is_none().then(|| interrupt.wake_fd());
        let client = client.as_ref().filter(|_| served.is_none());
        let others = [interrupt_fd, client.map(Client::done)];
        watch.has_exited = poll(&mut streams, Some(exited.as_fd()), others, watch.next_look());
        served = client.and_then(Client::take).inspect(|end| watch.note_served(end)).or(served);
    }
    // The leader has ended but is not reaped yet, so its group's number cannot belong to anybody
    // else: whoever is left in the group is ended before the next cell starts.
    kill_group(pid, Signal::KILL);
    let (exit, usage) = reap(pid)?;
    let raw_pid = pid.as_raw_nonzero().get();
    let wall = start.elapsed();
    // `Child` must not wait again for a process that is gone.
    drop(child);
    let served = client.map(|client| served.unwrap_or_else(|| client.give_up(CLIENT_PATIENCE)));

    let drain_until = Instant::now() + DRAIN_LIMIT;
    while streams.iter().any(Stream::is_open) && Instant::now() < drain_until {
        let left = drain_until.saturating_duration_since(Instant::now());
        poll(&mut streams, None, [None, None], left);
    }
    if let Some(Err(failure)) = &served {
        streams[1].hear(&failure.said);
    }
    let [stdout, stderr] = streams.map(Stream::ended);
    let was_killed = watch.stopped.is_none() && exit.is_sigkill();
    Ok(ChildEnd {
        exit,
        said: judge(
            &spec.signatures,
            match (&served, watch.stopped) {
                (Some(served), Some(StopReason::Finished)) => served.is_err(),
                _ => exit != ExitKind::Code(0),
            },
            (&stderr.search, &stderr.capture),
            (&stdout.search, &stdout.capture),
        ),
        stopped: watch.stopped,
        wall,
        cpu: usage.cpu,
        rss_peak_bytes: usage.rss_peak_bytes,
        lost: LostTime {
            slept: clock::read_slept()
                .zip(slept_before)
                .and_then(|(after, before)| after.checked_sub(before))
                .unwrap_or_default(),
            stopped: watch.halted,
        },
        stdout: stdout.capture,
        stderr: stderr.capture,
        available_low_bytes: watch.available_low_bytes,
        memory_bytes: was_killed.then(host::read_total_memory_bytes).flatten(),
        kernel_oom_line: was_killed.then(|| kernel_log::read_oom_kill(raw_pid)).flatten(),
        cgroup_oom_kills: host::read_cgroup_oom_kills()
            .zip(oom_kills_before)
            .map(|(after, before)| after.saturating_sub(before)),
        served,
    })
}

fn command(spec: &ChildSpec) -> Command {
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .current_dir(&spec.current_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    for (name, value) in &spec.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let limit = spec.memory_limit_bytes;
    let harness = rustix::process::getpid();
    // SAFETY: between fork and exec the closure makes system calls alone; it neither allocates nor
    // takes a lock.
    unsafe { command.pre_exec(move || set_limits(limit, harness)) };
    command
}

/// Runs in the child, between fork and exec.
fn set_limits(memory_limit_bytes: Option<u64>, harness: Pid) -> std::io::Result<()> {
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    // An abort of a large process must not fill the disk with its image.
    rustix::process::setrlimit(Resource::Core, limit(0))?;
    if let Some(bytes) = memory_limit_bytes {
        rustix::process::setrlimit(Resource::As, limit(bytes))?;
    }
    #[cfg(target_os = "linux")]
    {
        // Nobody watches over a cell whose harness was killed: it ends as well.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(harness) {
            return Err(rustix::io::Errno::SRCH.into());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = harness;
    Ok(())
}

struct Stream {
    pipe: Option<std::fs::File>,
    capture: Capture,
    search: Search,
    buffer: Vec<u8>,
}

impl Stream {
    fn new(pipe: OwnedFd, spec: &ChildSpec) -> Stream {
        Stream {
            pipe: Some(pipe.into()),
            capture: Capture::new(spec.capture),
            search: Search::new(Arc::clone(&spec.signatures)),
            buffer: vec![0; READ_BYTES],
        }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Takes lines as if they had been written, for the search alone: what a server said in an answer.
    fn hear(&mut self, lines: &[String]) {
        for line in lines {
            self.search.feed(format!("\n{line}\n").as_bytes());
        }
    }

    /// The same, with its last line looked at.
    fn ended(mut self) -> Stream {
        self.search.end();
        self
    }

    /// Takes what one read gives: called only when the pipe is readable, so it does not block.
    fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(&mut self.buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                self.capture.feed(&self.buffer[..count]);
                self.search.feed(&self.buffer[..count]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
    }
}

/// The deadline and what has been done about it.
struct Watch {
    start: Instant,
    timeout: Option<Duration>,
    grace: Duration,
    stopped: Option<StopReason>,
    /// When it is to end because its client has, and why.
    end_at: Option<(Instant, StopReason)>,
    /// When SIGKILL follows on SIGTERM.
    kill_at: Option<Instant>,
    has_exited: bool,
    last_sample: Instant,
    next_sample: Instant,
    available_low_bytes: Option<u64>,
    /// How long a process of the group was found to be stopped, as far as looks now and then tell.
    halted: Duration,
    family: Family,
}

impl Watch {
    fn new(spec: &ChildSpec, start: Instant, pid: Pid) -> Watch {
        Watch {
            start,
            timeout: spec.timeout,
            grace: spec.grace,
            stopped: None,
            end_at: None,
            kill_at: None,
            has_exited: false,
            last_sample: start,
            next_sample: start,
            available_low_bytes: None,
            halted: Duration::ZERO,
            family: Family::new(pid.as_raw_nonzero().get()),
        }
    }

    /// Looks at the clock, at memory and at the interrupt, and does what is due.
    fn act(&mut self, pid: Pid, interrupt: Interrupt) {
        let now = Instant::now();
        if now >= self.next_sample {
            self.next_sample = now + SAMPLE_EVERY;
            if self.family.is_any_stopped() {
                self.halted += now - self.last_sample;
            }
            self.last_sample = now;
            let available = host::read_available_memory_bytes();
            self.available_low_bytes =
                [self.available_low_bytes, available].into_iter().flatten().min();
        }
        if self.stopped.is_none() {
            let late = self.timeout.is_some_and(|timeout| now - self.start >= timeout);
            self.stopped = match (interrupt.is_set(), self.end_at) {
                (true, _) => Some(StopReason::Interrupt),
                // A client that has ended was in time.
                (false, Some((at, reason))) => (late || now >= at).then_some(reason),
                (false, None) => late.then_some(StopReason::Timeout),
            };
            if self.stopped.is_some() {
                kill_group(pid, Signal::TERM);
                self.kill_at = Some(now + self.grace);
            }
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            kill_group(pid, Signal::KILL);
            self.kill_at = None;
        }
    }

    /// Takes what came of the client: the server is to end, at once or when it had the time to do so by
    /// itself. It may be dying of what made a request fail, and how it dies says why.
    fn note_served(&mut self, end: &Result<Served, ServeFailure>) {
        let now = Instant::now();
        self.end_at = Some(match end {
            Ok(_) => (now, StopReason::Finished),
            Err(failure) => match failure.kind {
                FailureKind::NotReady => (now, StopReason::Timeout),
                FailureKind::Request => (now + DEATH_LIMIT, StopReason::Finished),
                FailureKind::Empty => (now, StopReason::Finished),
            },
        });
    }

    /// How long nothing is due.
    fn next_look(&self) -> Duration {
        let deadline = match self.stopped {
            None => {
                let timeout = self.timeout.map(|timeout| self.start + timeout);
                [timeout, self.end_at.map(|(at, _)| at)].into_iter().flatten().min()
            }
            Some(_) => self.kill_at,
        };
        let next = deadline.map_or(self.next_sample, |deadline| deadline.min(self.next_sample));
        next.saturating_duration_since(Instant::now())
    }
}

/// Waits for output, the end of the child, one of the others, or the time, and takes the output there is.
/// Returns whether the child has ended.
fn poll(
    streams: &mut [Stream; 2],
    exited: Option<BorrowedFd<'_>>,
    others: [Option<BorrowedFd<'_>>; 2],
    timeout: Duration,
) -> bool {
    let pipes = streams.each_ref().map(|stream| stream.pipe.as_ref().map(|pipe| pipe.as_fd()));
    let [out, err] = pipes;
    let [first, second] = others;
    let watched = [out, err, exited, first, second];
    let mut entries: Vec<PollFd<'_>> =
        watched.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    if !poll_for(&mut entries, timeout) {
        return false;
    }
    let mut entries = entries.iter();
    let ready = watched
        .map(|fd| fd.is_some() && entries.next().is_some_and(|entry| !entry.revents().is_empty()));
    for (stream, is_ready) in streams.iter_mut().zip(ready) {
        if is_ready {
            stream.read();
        }
    }
    ready[2]
}

/// A descriptor that becomes readable when the process has ended. The process is not reaped.
fn watch_exit(pid: Pid) -> anyhow::Result<std::io::PipeReader> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    std::thread::Builder::new()
        .name("wait".to_owned())
        .spawn(move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            // Whatever else it fails with, `reap` fails with as well, and says so.
            let _ =
                rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), options));
            // Closing its last writer makes the pipe readable.
            drop(writer);
        })
        .context("cannot start a thread")?;
    Ok(reader)
}

/// Sends a signal to every process of the group; it is not an error if none is left.
///
/// The group's leader is not reaped while this is called, so the number is still its own.
fn kill_group(pid: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(pid, signal);
}

struct Usage {
    cpu: Duration,
    rss_peak_bytes: Option<u64>,
}

/// Takes the status of a process that has ended.
fn reap(pid: Pid) -> anyhow::Result<(ExitKind, Usage)> {
    let raw = pid.as_raw_nonzero().get();
    let mut status = 0;
    // SAFETY: all zero is a valid value of this plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for writing and outlive the call.
        let result = unsafe { libc::wait4(raw, &raw mut status, 0, &raw mut usage) };
        if result == raw {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).context("cannot wait for the child");
        }
    }
    let exit = if libc::WIFSIGNALED(status) {
        ExitKind::Signal(libc::WTERMSIG(status))
    } else {
        ExitKind::Code(libc::WEXITSTATUS(status))
    };
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec as u64) + Duration::from_micros(value.tv_usec as u64)
    };
    // Linux counts in KiB, macOS in bytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    let rss = u64::try_from(usage.ru_maxrss).ok().filter(|&rss| rss > 0).map(|rss| rss * unit);
    Ok((exit, Usage { cpu: time(usage.ru_utime) + time(usage.ru_stime), rss_peak_bytes: rss }))
}

#[cfg(test)]
mod tests;
