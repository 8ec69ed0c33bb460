//! Phi 3, 3.5 and 4: query, key and value in one matrix, gate and up in another; factors of the
//! rotation's frequencies for short and for long contexts; Phi 4 mini rotates a part of each head.
//!
//! Its window is not applied, as llama.cpp does not: files give it in ways that contradict each
//! other (pull request 13676 there).

use super::llama::base;
use super::{Architecture, Experts, RopeLayout, Windows};

pub(super) static PHI3: Architecture = Architecture {
    rope_layout: RopeLayout::Halves,
    fused_gate: true,
    windows: Windows::None,
    partial_rope: true,
    experts: Experts::Never,
    ..base("phi3")
};
