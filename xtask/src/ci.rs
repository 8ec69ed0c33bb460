//! `cargo xtask ci`: every check and test of the project.

pub(crate) mod args;
pub(crate) mod run;
