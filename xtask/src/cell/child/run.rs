//! Measured children: started in a process group of their own, watched, and ended as a group.
//!
//! It owns starting, waiting, the deadline, the memory limit, and reading output with bounded
//! memory while it is searched for allocator failures. It judges nothing: see `classify`.
//!
//! This is `std::process` and a few calls of libc rather than `duct`: a child needs its own group,
//! a limit set between fork and exec, the peak of its memory from `wait4`, and output that is
//! searched while it streams; all of them are below what `duct` offers.

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{ChildEnd, ChildSpec};
use crate::cell::capture::{Capture, CaptureLimits};
use crate::cell::classify::{ExitKind, StopReason};
use crate::cell::oom_pattern::PatternSearch;
use crate::sys::host;
use crate::sys::interrupt::{Interrupt, poll_timeout_ms};

/// How often memory is looked at while a child runs.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// How long output may still arrive after a child and its group ended: a process that left the
/// group can hold the pipe open for ever.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);
/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 * 1024;

/// Starts a child and stays with it until it and its group have ended.
///
/// # Errors
///
/// When it cannot be started at all. How it ends is never an error.
pub(crate) fn run_child(spec: &ChildSpec, interrupt: Interrupt) -> anyhow::Result<ChildEnd> {
    let oom_kills_before = host::read_cgroup_oom_kills();
    let start = Instant::now();
    let mut child = command(spec)
        .spawn()
        .with_context(|| format!("cannot start `{}`", spec.program.to_string_lossy()))?;
    let pid = child.id() as libc::pid_t;
    let mut streams = [
        Stream::new(child.stdout.take().expect("stdout is piped").into(), spec.capture),
        Stream::new(child.stderr.take().expect("stderr is piped").into(), spec.capture),
    ];
    let exited = watch_exit(pid).inspect_err(|_| kill_group(pid, libc::SIGKILL))?;
    let mut watch = Watch::new(spec, start);

    while !watch.has_exited {
        watch.act(pid, interrupt);
        let interrupt_fd = if watch.stopped.is_none() { interrupt.wake_fd() } else { -1 };
        let ready = poll(&mut streams, [exited.as_raw_fd(), interrupt_fd], watch.next_look());
        watch.has_exited = ready.exited;
    }
    // The leader has ended but is not reaped yet, so its group's number cannot belong to anybody
    // else: whoever is left in the group is ended before the next cell starts.
    kill_group(pid, libc::SIGKILL);
    let (exit, usage) = reap(pid)?;
    let wall = start.elapsed();
    // `Child` must not wait again for a process that is gone.
    drop(child);

    let drain_until = Instant::now() + DRAIN_LIMIT;
    while streams.iter().any(Stream::is_open) && Instant::now() < drain_until {
        poll(&mut streams, [-1, -1], drain_until.saturating_duration_since(Instant::now()));
    }
    let [stdout, stderr] = streams;
    Ok(ChildEnd {
        exit,
        stopped: watch.stopped,
        wall,
        cpu: usage.cpu,
        rss_peak_bytes: usage.rss_peak_bytes,
        pattern: stderr.search.found().or_else(|| stdout.search.found()),
        stdout: stdout.capture,
        stderr: stderr.capture,
        available_low_bytes: watch.available_low_bytes,
        cgroup_oom_kills: host::read_cgroup_oom_kills()
            .zip(oom_kills_before)
            .map(|(after, before)| after.saturating_sub(before)),
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
    let harness = std::process::id() as libc::pid_t;
    // SAFETY: between fork and exec the closure makes system calls alone; it neither allocates nor
    // takes a lock.
    unsafe { command.pre_exec(move || set_limits(limit, harness)) };
    command
}

/// Runs in the child, between fork and exec.
fn set_limits(memory_limit_bytes: Option<u64>, harness: libc::pid_t) -> std::io::Result<()> {
    // An abort of a large process must not fill the disk with its image.
    set_limit(libc::RLIMIT_CORE, 0)?;
    if let Some(bytes) = memory_limit_bytes {
        set_limit(libc::RLIMIT_AS, bytes)?;
    }
    #[cfg(target_os = "linux")]
    {
        // Nobody watches over a cell whose harness was killed: it ends as well.
        // SAFETY: plain system calls with integer arguments.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            if libc::getppid() != harness {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = harness;
    Ok(())
}

#[cfg(target_os = "linux")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_os = "linux"))]
type Resource = libc::c_int;

fn set_limit(resource: Resource, bytes: u64) -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: bytes as libc::rlim_t, rlim_max: bytes as libc::rlim_t };
    // SAFETY: `limit` is initialised and outlives the call.
    match unsafe { libc::setrlimit(resource, &raw const limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// One output stream of the child.
struct Stream {
    pipe: Option<std::fs::File>,
    capture: Capture,
    search: PatternSearch,
    buffer: Vec<u8>,
}

impl Stream {
    fn new(pipe: std::os::fd::OwnedFd, limits: CaptureLimits) -> Stream {
        Stream {
            pipe: Some(pipe.into()),
            capture: Capture::new(limits),
            search: PatternSearch::default(),
            buffer: vec![0; READ_BYTES],
        }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
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
    /// When SIGKILL follows on SIGTERM.
    kill_at: Option<Instant>,
    has_exited: bool,
    next_sample: Instant,
    available_low_bytes: Option<u64>,
}

impl Watch {
    fn new(spec: &ChildSpec, start: Instant) -> Watch {
        Watch {
            start,
            timeout: spec.timeout,
            grace: spec.grace,
            stopped: None,
            kill_at: None,
            has_exited: false,
            next_sample: start,
            available_low_bytes: None,
        }
    }

    /// Looks at the clock, at memory and at the interrupt, and does what is due.
    fn act(&mut self, pid: libc::pid_t, interrupt: Interrupt) {
        let now = Instant::now();
        if now >= self.next_sample {
            self.next_sample = now + SAMPLE_EVERY;
            let available = host::read_available_memory_bytes();
            self.available_low_bytes =
                [self.available_low_bytes, available].into_iter().flatten().min();
        }
        if self.stopped.is_none() {
            let late = self.timeout.is_some_and(|timeout| now - self.start >= timeout);
            self.stopped = match (interrupt.is_set(), late) {
                (true, _) => Some(StopReason::Interrupt),
                (false, true) => Some(StopReason::Timeout),
                (false, false) => None,
            };
            if self.stopped.is_some() {
                kill_group(pid, libc::SIGTERM);
                self.kill_at = Some(now + self.grace);
            }
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            kill_group(pid, libc::SIGKILL);
            self.kill_at = None;
        }
    }

    /// How long nothing is due.
    fn next_look(&self) -> Duration {
        let deadline = match self.stopped {
            None => self.timeout.map(|timeout| self.start + timeout),
            Some(_) => self.kill_at,
        };
        let next = deadline.map_or(self.next_sample, |deadline| deadline.min(self.next_sample));
        next.saturating_duration_since(Instant::now())
    }
}

/// What a wait found.
struct Ready {
    exited: bool,
}

/// Waits for output, the end of the child, an interrupt, or the time; takes the output there is.
fn poll(streams: &mut [Stream; 2], others: [RawFd; 2], timeout: Duration) -> Ready {
    let fd = |stream: &Stream| stream.pipe.as_ref().map_or(-1, |pipe| pipe.as_raw_fd());
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let [exited, interrupt] = others;
    let mut entries =
        [entry(fd(&streams[0])), entry(fd(&streams[1])), entry(exited), entry(interrupt)];
    // SAFETY: the array is initialised and outlives the call, its length is given, and negative
    // descriptors are ignored by the system.
    let count = unsafe {
        libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, poll_timeout_ms(timeout))
    };
    if count <= 0 {
        return Ready { exited: false };
    }
    for (stream, entry) in streams.iter_mut().zip(&entries) {
        if entry.revents != 0 {
            stream.read();
        }
    }
    Ready { exited: entries[2].revents != 0 }
}

/// A descriptor that becomes readable when the process has ended. The process is not reaped.
fn watch_exit(pid: libc::pid_t) -> anyhow::Result<std::io::PipeReader> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    std::thread::Builder::new()
        .name("wait".to_owned())
        .spawn(move || {
            // SAFETY: all zero is a valid value of this plain C structure.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            loop {
                // SAFETY: `info` is writable and outlives the call.
                let result = unsafe {
                    libc::waitid(
                        libc::P_PID,
                        pid as libc::id_t,
                        &raw mut info,
                        libc::WEXITED | libc::WNOWAIT,
                    )
                };
                let interrupted = result != 0
                    && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
                if !interrupted {
                    break;
                }
            }
            // Closing its last writer makes the pipe readable.
            drop(writer);
        })
        .context("cannot start a thread")?;
    Ok(reader)
}

/// Sends a signal to every process of the group; none being left is no error.
fn kill_group(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: a plain system call; the group's leader is not reaped while this is called, so the
    // number is still its own.
    unsafe { libc::killpg(pid, signal) };
}

/// What the process used.
struct Usage {
    cpu: Duration,
    rss_peak_bytes: Option<u64>,
}

/// Takes the status of a process that has ended.
fn reap(pid: libc::pid_t) -> anyhow::Result<(ExitKind, Usage)> {
    let mut status = 0;
    // SAFETY: all zero is a valid value of this plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for writing and outlive the call.
        let result = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        if result == pid {
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
