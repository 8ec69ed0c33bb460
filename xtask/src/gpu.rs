//! What needs a CUDA device, or stands in for one: `cuda-check`, `cuda-setup` and `gpu-check`.
//!
//! `toolkit` is what the two builds share: the names of libraries and the environment of a build.

pub(crate) mod check;
pub(crate) mod cuda_check;
pub(crate) mod setup;
mod toolkit;
