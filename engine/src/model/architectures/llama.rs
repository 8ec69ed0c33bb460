//! Llama, and what shares its layers and its name: SmolLM2, Mistral, Mixtral, Llama 2 and 3.

use super::{
    Activation, Architecture, Caps, Experts, HeadNorms, Norms, RopeLayout, WindowedRope, Windows,
};

pub(super) static LLAMA: Architecture = base("llama");

/// What the others say their differences from.
pub(super) const fn base(name: &'static str) -> Architecture {
    Architecture {
        name,
        rope_layout: RopeLayout::Pairs,
        norms: Norms::Before,
        head_norms: HeadNorms::None,
        activation: Activation::Silu,
        scales_embeddings: false,
        scales_in_file: false,
        caps: Caps::None,
        fused_gate: false,
        windows: Windows::EveryLayer,
        windowed_rope: WindowedRope::Same,
        unrotated: None,
        partial_rope: false,
        rope_factors: true,
        scaled_by_width: None,
        experts: Experts::Optional,
    }
}
