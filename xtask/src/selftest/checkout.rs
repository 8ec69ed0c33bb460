//! A temporary checkout to try the real program in.

pub(crate) mod run;
