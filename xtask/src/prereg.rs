//! Pre-registered ladders: a document whose rules are frozen before the first run, and the judgement
//! of what was measured.
//!
//! What a document means and what samples amount to is a matter of values alone; `run` reads files,
//! launches the runner and writes reports.

pub(crate) mod args;
mod chain;
mod compose;
mod document;
#[cfg(test)]
mod fixture;
mod judge;
mod lint;
mod metric;
mod numbers;
mod oracle;
mod plan;
mod report;
mod run;
mod sample;
mod score;
mod template;
mod transfer;

pub(crate) use run::run;
