//! The machine: clock, environment, files, git, host, locks, signals, terminal.
//!
//! Everything here may touch the world. It knows no feature and judges nothing.

pub(crate) mod boot;
pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod driver;
pub(crate) mod env;
pub(crate) mod family;
pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod glob;
pub(crate) mod hardware;
pub(crate) mod host;
pub(crate) mod interrupt;
pub(crate) mod json_lines;
pub(crate) mod kernel_log;
pub(crate) mod launch_lock;
pub(crate) mod progress;
pub(crate) mod terminal;
pub(crate) mod watched;
pub(crate) mod workspace;
