//! The samples of a ladder on disk.

pub(crate) mod file;
