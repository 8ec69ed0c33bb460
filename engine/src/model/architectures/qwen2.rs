//! Qwen2 and Qwen2.5: biases on query, key and value.

use super::llama::base;
use super::{Architecture, Experts, RopeLayout, Windows};

pub(super) static QWEN2: Architecture = qwen("qwen2");

/// What all of Qwen's share.
pub(super) const fn qwen(name: &'static str) -> Architecture {
    Architecture {
        rope_layout: RopeLayout::Halves,
        windows: Windows::None,
        rope_factors: false,
        experts: Experts::Never,
        ..base(name)
    }
}
