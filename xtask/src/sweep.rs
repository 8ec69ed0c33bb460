//! `cargo xtask sweep`: models × prompt lengths, one process a cell.

pub(crate) mod args;
pub(crate) mod definition;
pub(crate) mod eta;
pub(crate) mod repeats;
pub(crate) mod resume;
mod run;
pub(crate) mod status;
pub(crate) mod table;

pub(crate) use run::run;
