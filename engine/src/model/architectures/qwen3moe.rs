//! Qwen3 with experts, whose weights are normalised.

use super::qwen2::qwen;
use super::{Architecture, Experts, HeadNorms};

pub(super) static QWEN3MOE: Architecture = Architecture {
    head_norms: HeadNorms::EachHead,
    experts: Experts::Always { normalised: true, shared: false },
    ..qwen("qwen3moe")
};
