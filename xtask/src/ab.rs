//! What an A/B comparison is: its legs, the proofs that it was one, and how its result reads.
//!
//! Pure. The arithmetic is in `stats` and `verdict`; launching and files are in `cmd::ab`.

pub(crate) mod activation;
pub(crate) mod analysis;
pub(crate) mod args;
pub(crate) mod attribution;
pub(crate) mod config;
pub(crate) mod figures;
pub(crate) mod gate;
pub(crate) mod metric;
pub(crate) mod render;
pub(crate) mod run;
pub(crate) mod same_work;
pub(crate) mod samples;
