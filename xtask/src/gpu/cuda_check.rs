//! `cargo xtask cuda-check`: the CUDA feature over the stand-in driver.

pub(crate) mod args;
mod run;

pub(crate) use run::run;
