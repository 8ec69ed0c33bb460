//! Finds and reads a workspace: its manifests, cargo's configuration, the lock, and git where a clone
//! is asked. The only module that touches files, the environment and processes.

mod config;
mod git;
mod manifests;
mod members;
mod root;
mod text;
mod workspace;

pub(crate) use git::GitRepo;
pub use root::{Root, find_root};
