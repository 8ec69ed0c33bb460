//! Fetching a model.

pub(crate) mod run;
