//! Small values that every room uses: outcomes, diagnostics, definitions in TOML, flags, hashes.
//!
//! Nothing in it knows a feature, a file or a process.

pub(crate) mod columns;
pub(crate) mod count;
pub(crate) mod definition;
pub(crate) mod diagnostic;
pub(crate) mod flag;
pub(crate) mod hash;
pub(crate) mod nearest;
pub(crate) mod outcome;
pub(crate) mod page;
pub(crate) mod repeated;
pub(crate) mod scrub;
pub(crate) mod shell;
pub(crate) mod shown;
