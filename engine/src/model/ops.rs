//! Small operations of a layer on a device: norm, rotation, gated activation, as candle-nn has them.
//!
//! On the processor [`super::elementwise`] has them instead.

use candle_core::{Result, Tensor};

use super::architectures::RopeLayout;

/// Root mean square norm over the last dimension, times `weight`.
///
/// # Errors
/// Those of candle.
pub(super) fn rms_norm(xs: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    candle_nn::ops::rms_norm(&xs.contiguous()?, weight, eps)
}

/// Rotates heads: `xs` `[tokens, heads, head_dim]`; `cos`, `sin` `[tokens, head_dim / 2]`.
///
/// # Errors
/// Those of candle.
pub(super) fn rope(xs: &Tensor, cos: &Tensor, sin: &Tensor, layout: RopeLayout) -> Result<Tensor> {
    let xs = xs.unsqueeze(0)?.contiguous()?;
    match layout {
        RopeLayout::Halves => candle_nn::rotary_emb::rope_thd(&xs, cos, sin)?,
        RopeLayout::Pairs => {
            let xs = xs.transpose(1, 2)?.contiguous()?;
            candle_nn::rotary_emb::rope_i(&xs, cos, sin)?.transpose(1, 2)?.contiguous()?
        }
    }
    .squeeze(0)
}

/// `silu(gate) * up`.
///
/// # Errors
/// Those of candle.
pub(super) fn silu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.silu()? * up
}
