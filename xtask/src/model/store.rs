//! Looking models up on disk.

pub(crate) mod file;
