//! Pre-registered ladders: a document whose rules are frozen before the first run, and the judgement
//! of what was measured.
//!
//! Everything here takes values and returns values. Files, processes, git and the clock are reached by
//! `cmd::prereg` through the edge.

pub(crate) mod args;
pub(crate) mod chain;
pub(crate) mod compose;
pub(crate) mod document;
pub(crate) mod judge;
pub(crate) mod lint;
pub(crate) mod metric;
pub(crate) mod oracle;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sample;
pub(crate) mod samples;
pub(crate) mod score;
pub(crate) mod template;
pub(crate) mod transfer;
