//! Ctrl-C, SIGTERM and SIGHUP: noted, and waited for together with whatever else is waited for.
//!
//! A signal ends nothing by itself. It sets a flag and makes a pipe readable for good, so that a
//! wait in progress ends at once; the command then ends its child, closes its journal and returns.

use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static INSTALLING: Mutex<()> = Mutex::new(());
static WAKE_PIPE: OnceLock<(std::io::PipeReader, std::io::PipeWriter)> = OnceLock::new();

/// Tells whether the run was interrupted. Cheap to copy: the state belongs to the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interrupt {
    wake_fd: BorrowedFd<'static>,
}

impl Interrupt {
    /// Takes over the signals of this process; later calls share the first one's handler.
    pub(crate) fn install() -> anyhow::Result<Interrupt> {
        // Two callers at once must not both set a handler.
        let _held = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((reader, _)) = WAKE_PIPE.get() {
            return Ok(Interrupt { wake_fd: reader.as_fd() });
        }
        let pipe = std::io::pipe().context("cannot make a pipe for signals")?;
        let (reader, _) = WAKE_PIPE.get_or_init(|| pipe);
        ctrlc::set_handler(|| {
            if !INTERRUPTED.swap(true, Ordering::SeqCst)
                && let Some((_, writer)) = WAKE_PIPE.get()
            {
                // The byte is never read: the pipe stays readable for every later wait.
                let mut writer: &std::io::PipeWriter = writer;
                let _ = writer.write_all(b"!");
            }
        })
        .context("cannot take over Ctrl-C")?;
        Ok(Interrupt { wake_fd: reader.as_fd() })
    }

    pub(crate) fn is_set(self) -> bool {
        INTERRUPTED.load(Ordering::SeqCst)
    }

    /// A descriptor that becomes readable, and stays so, when a signal comes. Never read from it.
    pub(crate) fn wake_fd(self) -> BorrowedFd<'static> {
        self.wake_fd
    }

    /// Waits, but not beyond a signal. Returns whether the run may go on.
    pub(crate) fn sleep(self, duration: Duration) -> bool {
        let deadline = std::time::Instant::now() + duration;
        while !self.is_set() {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return true;
            }
            poll_for(&mut [PollFd::new(&self.wake_fd, PollFlags::IN)], left);
        }
        false
    }
}

/// Waits until one of the descriptors is ready, or the time is over. Returns whether one is; a signal
/// may end the wait early.
pub(crate) fn poll_for(entries: &mut [PollFd<'_>], timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).ok();
    rustix::event::poll(entries, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_may_install_it_at_once() {
        let start = std::sync::Barrier::new(16);
        let install = || {
            start.wait();
            Interrupt::install().map(drop)
        };
        std::thread::scope(|scope| {
            let threads = [(); 16].map(|()| scope.spawn(install));
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
        });
    }
}
