//! `cargo xtask oom-record`: lists, explains, prunes and confirms what the record of true OOMs holds.
//!
//! The record itself is the shared room `oom_record`; this is the command over it, which may launch a
//! cell.

pub(crate) mod args;
mod confirm;
mod explain;
mod run;

pub(crate) use run::run;
