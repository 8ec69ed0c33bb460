//! Attention: grouped-query, causal, over a cache that is not repeated per query head.

use candle_core::{Device, Result, Tensor, bail};

use super::kv_cache::CachedKv;

pub(super) mod host;

/// Causal attention of the last tokens over all positions of the cache, out of the device's matrix
/// products: the query heads that share a key head are stacked as rows, so that keys and values are
/// read where they lie.
///
/// `q`: `[tokens, heads, head_dim]`, the positions at the end of `kv`. Returns
/// `[tokens, heads * head_dim]`. Memory beyond inputs and output is bounded by tokens × context for
/// each head.
///
/// # Errors
/// Shapes that do not fit; those of the device.
pub(super) fn causal_attention(q: &Tensor, kv: &CachedKv) -> Result<Tensor> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let (kv_heads, context, _) = kv.keys.dims3()?;
    if tokens > context {
        bail!("{tokens} queries do not fit {context} positions");
    }
    let group = heads / kv_heads;
    let scale = 1.0 / (head_dim as f64).sqrt();
    let q = (q.transpose(0, 1)?.contiguous()? * scale)?;
    let scores = q.reshape((kv_heads, group * tokens, head_dim))?.matmul(&kv.keys.t()?)?;
    let scores = if tokens == 1 {
        scores
    } else {
        scores
            .reshape((heads, tokens, context))?
            .broadcast_add(&causal_mask(tokens, context, q.device())?)?
            .reshape((kv_heads, group * tokens, context))?
    };
    let weights = candle_nn::ops::softmax_last_dim(&scores)?;
    let out = weights.matmul(&kv.values)?.reshape((heads, tokens, head_dim))?;
    out.transpose(0, 1)?.reshape((tokens, heads * head_dim))
}

/// 0 where a position may be seen, -∞ where it lies ahead.
fn causal_mask(tokens: usize, context: usize, device: &Device) -> Result<Tensor> {
    let first = context - tokens;
    let mask: Vec<f32> = (0..tokens)
        .flat_map(|row| {
            (0..context).map(move |col| if col > first + row { f32::NEG_INFINITY } else { 0.0 })
        })
        .collect();
    Tensor::from_vec(mask, (tokens, context), device)
}
