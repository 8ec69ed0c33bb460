//! `cargo xtask sweep`: models × prompt lengths, one process a cell.

pub(crate) mod args;
pub(crate) mod definition;
pub(crate) mod eta;
pub(crate) mod run;
pub(crate) mod table;
