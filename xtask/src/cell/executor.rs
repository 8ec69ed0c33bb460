//! What a measuring loop does to the world, as a trait with an in-process twin.
//!
//! A [`Session`](super::session::Session) decides; an executor acts. The real one starts processes,
//! reads files and waits; the scripted one plays a list of endings, so that loops are tested
//! without a fork.

use std::path::Path;
use std::time::Duration;

use super::child::{ChildEnd, ChildSpec};
use super::health::Look;
use super::quiet::HostSample;
use crate::oom_record::OomEntry;

pub(crate) mod run;
#[cfg(test)]
pub(crate) mod scripted;

/// The effects that running cells has.
pub(crate) trait Executor {
    /// Starts a process in a group of its own and stays with it until the group has ended.
    ///
    /// # Errors
    /// When it cannot be started. How it ends is never an error.
    fn run_child(&mut self, spec: &ChildSpec) -> anyhow::Result<ChildEnd>;

    /// A port of this machine that nobody listens on, for a server about to be started.
    ///
    /// # Errors
    /// When there is none.
    fn find_free_port(&mut self) -> anyhow::Result<u16>;

    /// The text of a file that a cell left; `None` where there is none, or it is not text of at
    /// most `limit_bytes`.
    fn read_text(&mut self, path: &Path, limit_bytes: u64) -> Option<String>;

    /// How the machine is.
    fn look(&mut self) -> Look;

    /// What the system has counted so far.
    fn sample_host(&mut self) -> HostSample;

    /// Waits. Returns how long that was, or `None` where an interrupt ended it.
    fn pause(&mut self, duration: Duration) -> Option<Duration>;

    fn is_interrupted(&self) -> bool;

    /// Appends to the OOM record; it is on disk when this returns.
    fn record_oom(&mut self, entry: &OomEntry) -> anyhow::Result<()>;

    /// Today's date, `YYYY-MM-DD`.
    fn today(&self) -> String;

    /// The moment in UTC, as journals have it.
    fn now(&self) -> String;

    /// What distinguishes this start of the machine from others, without naming the machine.
    fn boot_id(&self) -> &str;
}
