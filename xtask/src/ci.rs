//! `cargo xtask ci`: every check and test of the project.

pub(crate) mod args;
mod run;

pub(crate) use run::run;
