//! `cargo xtask scenarios`: faked failures over the real program.

pub(crate) mod args;
mod run;

pub(crate) use run::run;
