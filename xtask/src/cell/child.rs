//! A measured child: what to start and under which limits, and what was seen of it at its end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cell::capture::{Capture, CaptureLimits};
use crate::cell::classify::{ExitKind, StopReason};
use crate::cell::evidence::signatures::Signatures;
use crate::cell::evidence::verdict::Said;
use crate::cell::quiet::LostTime;
use crate::cell::serving::{ClientPlan, ServeFailure, Served};

pub(crate) mod run;

/// How long a group may take to end after SIGTERM before SIGKILL follows.
const DEFAULT_GRACE: Duration = Duration::from_secs(3);

/// What to start, and under which limits.
#[derive(Debug, Clone)]
pub(crate) struct ChildSpec {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    /// Changes to the inherited environment, in order; `None` removes a variable.
    pub(crate) env: Vec<(String, Option<String>)>,
    pub(crate) current_dir: PathBuf,
    /// When it is ended; `None` waits for ever.
    pub(crate) timeout: Option<Duration>,
    /// How long it has after SIGTERM before SIGKILL follows.
    pub(crate) grace: Duration,
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) capture: CaptureLimits,
    /// What its output is searched for.
    pub(crate) signatures: Arc<Signatures>,
    /// What is asked of it while it runs, where it is a server: it is ended when that is done.
    pub(crate) client: Option<ClientPlan>,
}

impl ChildSpec {
    /// A child without limits.
    pub(crate) fn new(program: impl Into<OsString>, current_dir: impl Into<PathBuf>) -> ChildSpec {
        ChildSpec {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            current_dir: current_dir.into(),
            timeout: None,
            grace: DEFAULT_GRACE,
            memory_limit_bytes: None,
            capture: CaptureLimits::default(),
            signatures: Signatures::built_in(),
            client: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ChildEnd {
    pub(crate) exit: ExitKind,
    /// Set where the harness ended it.
    pub(crate) stopped: Option<StopReason>,
    /// From before the start to the end of the process.
    pub(crate) wall: Duration,
    /// Processor time of it and of the children that it waited for.
    pub(crate) cpu: Duration,
    /// Highest resident set of it, or of a child that it waited for.
    pub(crate) rss_peak_bytes: Option<u64>,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    /// Time within that in which it could not go on.
    pub(crate) lost: LostTime,
    /// What its output says of memory.
    pub(crate) said: Said,
    /// The least memory that the system had available while it ran.
    pub(crate) available_low_bytes: Option<u64>,
    /// All the memory that there is; read only where a signal ended the child.
    pub(crate) memory_bytes: Option<u64>,
    /// Processes that the kernel killed for memory in this cgroup meanwhile.
    pub(crate) cgroup_oom_kills: Option<u64>,
    /// The kernel log's line about having killed this very process for memory, where it can be read.
    pub(crate) kernel_oom_line: Option<String>,
    /// What its client saw, where it is a server.
    pub(crate) served: Option<Result<Served, ServeFailure>>,
}
