//! The binary as it is used: exit codes, reports and errors.

#![allow(clippy::print_stdout)]

mod bad_input;
mod cases;
mod clone;
mod shared_cases;
