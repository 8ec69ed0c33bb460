//! The executor that starts real processes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::Executor;
use crate::cell::child::run::run_child;
use crate::cell::child::{ChildEnd, ChildSpec};
use crate::cell::health::Look;
use crate::cell::health::file::read_look;
use crate::cell::quiet::HostSample;
use crate::cell::quiet::file::read_host_sample;
use crate::oom_record::file::append_entry;
use crate::oom_record::{OomEntry, RECORD_PATH};
use crate::sys::interrupt::Interrupt;
use crate::sys::{boot, clock};

/// Starts real processes, and appends to the record of a workspace.
#[derive(Debug)]
pub(crate) struct RealExecutor {
    record_path: PathBuf,
    interrupt: Interrupt,
    boot_id: String,
}

impl RealExecutor {
    pub(crate) fn new(root: &Path, interrupt: Interrupt) -> RealExecutor {
        let (record_path, boot_id) = (root.join(RECORD_PATH), boot::read_boot_id());
        RealExecutor { record_path, interrupt, boot_id }
    }
}

impl Executor for RealExecutor {
    fn run_child(&mut self, spec: &ChildSpec) -> anyhow::Result<ChildEnd> {
        run_child(spec, self.interrupt)
    }

    fn find_free_port(&mut self) -> anyhow::Result<u16> {
        // Whoever takes it before the server does keeps the server from starting, and nothing else.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0));
        let address = listener.and_then(|listener| listener.local_addr());
        Ok(address.context("cannot find a free port on loopback")?.port())
    }

    fn read_text(&mut self, path: &Path, limit_bytes: u64) -> Option<String> {
        let size = std::fs::metadata(path).ok()?.len();
        (size <= limit_bytes).then(|| std::fs::read_to_string(path).ok()).flatten()
    }

    fn look(&mut self) -> Look {
        read_look()
    }

    fn sample_host(&mut self) -> HostSample {
        read_host_sample()
    }

    fn pause(&mut self, duration: Duration) -> Option<Duration> {
        let (may_go_on, wall) = clock::time(|| self.interrupt.sleep(duration));
        may_go_on.then_some(wall)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    fn record_oom(&mut self, entry: &OomEntry) -> anyhow::Result<()> {
        append_entry(&self.record_path, entry)
    }

    fn today(&self) -> String {
        clock::today()
    }

    fn now(&self) -> String {
        clock::now_utc()
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }
}
