//! The commands, one module each: read → plan → act → write.

pub(crate) mod ab;
pub(crate) mod ci;
pub(crate) mod cuda_check;
pub(crate) mod cuda_setup;
pub(crate) mod gpu_check;
pub(crate) mod model;
pub(crate) mod oom_record;
pub(crate) mod prereg;
pub(crate) mod scenarios;
pub(crate) mod sweep;
