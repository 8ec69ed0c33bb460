//! `cargo xtask scenarios`: faked failures over the real program.

pub(crate) mod args;
pub(crate) mod run;
