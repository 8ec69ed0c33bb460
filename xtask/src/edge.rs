//! The edge: the only modules that touch processes, files, the clock, the environment and the host.
//!
//! Everything else takes values and returns values; `clippy.toml` says so.
#![allow(clippy::disallowed_methods)]

#[allow(dead_code)]
pub(crate) mod clock;
#[allow(dead_code)]
pub(crate) mod env;
pub(crate) mod family_repo;
#[allow(dead_code)]
pub(crate) mod files;
#[allow(dead_code)]
pub(crate) mod git;
pub(crate) mod git_history;
#[allow(dead_code)]
pub(crate) mod host;
#[allow(dead_code)]
pub(crate) mod interrupt;
#[allow(dead_code)]
pub(crate) mod journal_file;
#[allow(dead_code)]
pub(crate) mod launch_lock;
pub(crate) mod manifests;
pub(crate) mod model_fetch;
pub(crate) mod model_link;
pub(crate) mod model_store;
pub(crate) mod pip;
#[allow(dead_code)]
pub(crate) mod process;
#[allow(dead_code)]
pub(crate) mod record_file;
pub(crate) mod scripted_runner;
pub(crate) mod term;
pub(crate) mod workspace;
