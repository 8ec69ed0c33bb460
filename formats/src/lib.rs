//! What both halves of Arc read and write, each format in a module of its own.
//!
//! Serde types and their checks, and nothing else: no file access, no clock, and neither candle nor
//! anything of the workflow, since this crate is all that the two halves share.

pub mod cell_report;
pub mod geometry;
