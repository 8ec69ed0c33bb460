//! Qwen3: norms on each query and key head.

use super::qwen2::qwen;
use super::{Architecture, HeadNorms};

pub(super) static QWEN3: Architecture =
    Architecture { head_norms: HeadNorms::EachHead, ..qwen("qwen3") };
