//! What an A/B comparison is: its legs, the proofs that it was one, and how its result reads.
//!
//! The arithmetic is in `stats`, the launching in `cell`; files and the order of things are in `run`.

pub(crate) mod args;

mod activation;
mod analysis;
mod attribution;
mod bisect;
mod config;
mod figures;
mod gate;
mod metric;
mod render;
mod run;
mod same_work;
mod samples;

pub(crate) use run::run;
