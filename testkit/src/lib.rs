//! The fixture of the command-line tests: a [`Workspace`] in a temporary folder, a [`Command`] run in
//! it, what the scripted runner plays ([`Script`]), and snapshots of what came out ([`Redaction`]).
//!
//! It knows no crate of Arc: the program under test is passed in, as
//! `env!("CARGO_BIN_EXE_xtask")`, which only an integration test can say. Whatever goes wrong here
//! panics, for there is nobody but a test to tell.

mod command;
mod redact;
mod script;
mod shared;
mod workspace;

pub use command::{Command, Ran, Started};
pub use insta;
pub use redact::Redaction;
pub use script::{Cell, Script};
pub use shared::{shared_data, skip};
pub use workspace::Workspace;
