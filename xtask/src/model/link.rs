//! Linking a model of the user's.

pub(crate) mod file;
