//! The seam of attention: grouped-query, causal, over a cache that is not repeated per query head.

use candle_core::{Device, Result, Tensor, bail};

use super::kv_cache::{CachedKv, KeyLayout};

mod cpu;

/// Causal attention of the last tokens over all positions of the cache.
///
/// `q`: `[tokens, heads, head_dim]`, the positions at the end of `kv`. Returns
/// `[tokens, heads * head_dim]`. Memory beyond inputs and output is bounded by tokens × context for
/// each head, and on the processor by a few tiles for each thread.
///
/// # Errors
/// Shapes that do not fit; those of the device.
pub fn causal_attention(q: &Tensor, kv: &CachedKv) -> Result<Tensor> {
    let tokens = q.dim(0)?;
    if tokens > kv.context {
        bail!("{tokens} queries do not fit {} positions", kv.context);
    }
    match kv.layout {
        KeyLayout::Tiles => {
            q.apply_op3_no_bwd(kv.keys, kv.values, &cpu::TiledAttention { context: kv.context })
        }
        KeyLayout::Rows => {
            let keys = kv.keys.narrow(1, 0, kv.context)?;
            attention_by_matmul(q, &keys, &kv.values.narrow(1, 0, kv.context)?)
        }
    }
}

/// Attention out of the device's matrix products: the query heads that share a key head are stacked
/// as rows, so that keys and values are read where they lie.
fn attention_by_matmul(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let (kv_heads, context, _) = k.dims3()?;
    let group = heads / kv_heads;
    let scale = 1.0 / (head_dim as f64).sqrt();
    let q = (q.transpose(0, 1)?.contiguous()? * scale)?;
    let scores = q.reshape((kv_heads, group * tokens, head_dim))?.matmul(&k.t()?)?;
    let scores = if tokens == 1 {
        scores
    } else {
        scores
            .reshape((heads, tokens, context))?
            .broadcast_add(&causal_mask(tokens, context, q.device())?)?
            .reshape((kv_heads, group * tokens, context))?
    };
    let weights = candle_nn::ops::softmax_last_dim(&scores)?;
    let out = weights.matmul(v)?.reshape((heads, tokens, head_dim))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KvCache;
    use crate::model::config::{Architecture, ModelConfig};
    use crate::model::rope::RopeScaling;

    fn config(heads: usize, kv_heads: usize, head_dim: usize) -> ModelConfig {
        ModelConfig {
            architecture: Architecture::Llama,
            name: None,
            layers: 1,
            hidden: heads * head_dim,
            heads,
            kv_heads,
            head_dim,
            ffn: 1,
            vocab: 1,
            context: 4096,
            rms_eps: 1e-5,
            rope_base: 1e4,
            rope_scaling: RopeScaling::None,
        }
    }

    /// The tiled kernel and the matrix products agree, over contexts around every block border,
    /// group sizes and head widths, in prefill with and without a past and in decode.
    #[test]
    fn the_tiled_kernel_agrees_with_matrix_products() {
        let random = |shape: &[usize]| Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap();
        for (heads, kv_heads, head_dim) in [(9, 3, 64), (4, 4, 16), (8, 1, 48), (2, 1, 128)] {
            for (past, tokens) in [
                (0, 1),
                (5, 1),
                (16, 1),
                (63, 1),
                (64, 1),
                (200, 1),
                (1500, 1),
                (0, 2),
                (0, 17),
                (3, 64),
                (130, 33),
                (17, 100),
            ] {
                let config = config(heads, kv_heads, head_dim);
                let outputs = [KeyLayout::Tiles, KeyLayout::Rows].map(|layout| {
                    KvCache::with_layout(&config, past + tokens + 3, &Device::Cpu, layout).unwrap()
                });
                let chunks = [past, tokens].map(|count| {
                    (
                        random(&[count.max(1), kv_heads, head_dim]),
                        random(&[count.max(1), kv_heads, head_dim]),
                    )
                });
                let q = random(&[tokens, heads, head_dim]);
                let [tiled, plain] = outputs.map(|mut cache| {
                    if past > 0 {
                        cache.append(0, &chunks[0].0, &chunks[0].1).unwrap();
                        cache.advance(past);
                    }
                    let kv = cache.append(0, &chunks[1].0, &chunks[1].1).unwrap();
                    causal_attention(&q, &kv)
                        .unwrap()
                        .flatten_all()
                        .unwrap()
                        .to_vec1::<f32>()
                        .unwrap()
                });
                for (a, b) in tiled.iter().zip(&plain) {
                    assert!(
                        (a - b).abs() < 1e-5,
                        "{heads}/{kv_heads}×{head_dim}, {past}+{tokens}: {a} {b}"
                    );
                }
            }
        }
    }
}
