//! The edge: the only modules that touch processes, files, the clock, the environment and the host.
//!
//! Everything else takes values and returns values; `clippy.toml` says so.
#![allow(clippy::disallowed_methods)]

pub(crate) mod cell;
pub(crate) mod checkout;
pub(crate) mod clock;
pub(crate) mod cuda_files;
pub(crate) mod cuda_python;
pub(crate) mod env;
pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod git_history;
pub(crate) mod git_trees;
pub(crate) mod host;
pub(crate) mod interrupt;
pub(crate) mod journal_file;
pub(crate) mod launch_lock;
pub(crate) mod model_fetch;
pub(crate) mod model_link;
pub(crate) mod model_store;
pub(crate) mod pip;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod quiet;
pub(crate) mod record_file;
pub(crate) mod runner_store;
pub(crate) mod samples_file;
pub(crate) mod scripted_runner;
pub(crate) mod term;
pub(crate) mod watched;
pub(crate) mod workspace;
