//! What several parts of the suite set up.

pub(crate) mod folder;
pub(crate) mod gpu_workspace;
