//! The edge: the only modules that touch processes, files, the clock, the environment and the host.
//!
//! Everything else takes values and returns values; `clippy.toml` says so.
#![allow(clippy::disallowed_methods)]

pub(crate) mod clock;
#[allow(dead_code)]
pub(crate) mod model_store;
#[allow(dead_code)]
pub(crate) mod record_file;
pub(crate) mod term;
pub(crate) mod workspace;
