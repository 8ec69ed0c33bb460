//! The workflow from outside: the real binary, run in a workspace of its own. One test binary, so that
//! the whole suite is linked once; `cargo test -p xtask --test it sweep::` runs one part of it.

mod ab;
mod ab_shown;
mod architecture;
mod cuda_check;
mod cuda_setup;
mod driver;
mod evidence;
mod gpu_check;
mod model;
mod oom_record;
mod pages;
mod prereg;
mod report;
mod scenarios;
mod servers;
mod sweep;
mod tutorial;
mod verify_lock;
mod work;

/// The binary under test.
pub(crate) const XTASK: &str = env!("CARGO_BIN_EXE_xtask");
