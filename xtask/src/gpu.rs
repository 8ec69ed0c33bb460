//! What needs a CUDA device, or stands in for one: `cuda-check`, `cuda-setup` and `gpu-check`.

pub(crate) mod check;
pub(crate) mod cuda_check;
pub(crate) mod setup;
pub(crate) mod toolkit;
