//! `cargo xtask cuda-setup`: a CUDA toolchain from wheels, and a program to carry to a GPU machine.

pub(crate) mod args;
mod run;

pub(crate) use run::run;
