//! `cargo xtask report`: what was measured, as a picture.
//!
//! It reads the CSV of a sweep and the journal beside it, and renders. It measures nothing, and what
//! it writes can always be written again from the files that it read.

pub(crate) mod args;
mod axis;
mod format;
mod legend;
mod panel;
mod picture;
mod run;

pub(crate) use run::run;
mod strip;
mod sweep;
