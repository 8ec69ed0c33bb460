//! The edge: the only modules that touch processes, files, the clock, the environment and the host.
//!
//! Everything else takes values and returns values; `clippy.toml` says so.

pub(crate) mod family_repo;
pub(crate) mod manifests;
