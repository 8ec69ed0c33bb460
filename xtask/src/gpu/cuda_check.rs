//! `cargo xtask cuda-check`: the CUDA feature over the stand-in driver.

pub(crate) mod args;
pub(crate) mod run;
