//! Measured children.

pub(crate) mod run;
