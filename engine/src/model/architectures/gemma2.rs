//! Gemma 2: norms around each sub-layer, caps on scores and logits, a window on every other layer.

use super::llama::base;
use super::{Activation, Architecture, Caps, Experts, Norms, RopeLayout, Windows};

pub(super) static GEMMA2: Architecture = Architecture {
    windows: Windows::Pattern { period: 2, width: Some(4096) },
    // The 27B.
    scaled_by_width: Some(46),
    ..gemma("gemma2")
};

/// What all of Gemma's share.
pub(super) const fn gemma(name: &'static str) -> Architecture {
    Architecture {
        rope_layout: RopeLayout::Halves,
        norms: Norms::BeforeAndAfter,
        activation: Activation::Gelu,
        scales_embeddings: true,
        caps: Caps::ScoresAndLogits,
        rope_factors: false,
        experts: Experts::Never,
        ..base(name)
    }
}
