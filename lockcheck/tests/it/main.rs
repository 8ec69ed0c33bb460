//! The binary as it is used: exit codes, reports and errors.

mod bad_input;
mod cases;
mod clone;
mod shared_cases;

/// The binary under test.
const LOCKCHECK: &str = env!("CARGO_BIN_EXE_lockcheck");
