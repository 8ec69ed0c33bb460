//! `cargo xtask cuda-setup`: a CUDA toolchain from wheels, and a program to carry to a GPU machine.

pub(crate) mod args;
pub(crate) mod run;
