//! Small operations of a layer: norm, rotation, gated activation.
//!
//! On the processor they have kernels of their own, because candle-nn's run on rayon's pool, whose
//! threads compete with the spinning workers of the pool that runs the matrix products. Every other
//! device takes candle-nn's.

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, bail};

use super::config::RopeLayout;
use super::par;

/// Elements that are worth a job of their own on another thread.
const JOB_ELEMENTS: usize = 1 << 14;

/// Root mean square norm over the last dimension, times `weight`.
///
/// # Errors
/// Those of candle.
pub fn rms_norm(xs: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let xs = xs.contiguous()?;
    if xs.device().is_cpu() {
        xs.apply_op2_no_bwd(weight, &RmsNorm { eps })
    } else {
        candle_nn::ops::rms_norm(&xs, weight, eps)
    }
}

/// Rotates heads: `xs` `[tokens, heads, head_dim]`; `cos`, `sin` `[tokens, head_dim / 2]`.
///
/// # Errors
/// Those of candle.
pub fn rope(xs: &Tensor, cos: &Tensor, sin: &Tensor, layout: RopeLayout) -> Result<Tensor> {
    if xs.device().is_cpu() {
        return xs.contiguous()?.apply_op3_no_bwd(cos, sin, &Rope { layout });
    }
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
pub fn silu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.device().is_cpu() { gate.apply_op2_no_bwd(up, &SiluMul) } else { gate.silu()? * up }
}

/// The elements of a contiguous tensor on the processor.
pub(super) fn f32_slice<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("the input is not contiguous: {layout:?}");
    };
    Ok(&storage.as_slice::<f32>()?[start..end])
}

struct RmsNorm {
    eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "arc-rms-norm"
    }

    fn cpu_fwd(
        &self,
        xs: &CpuStorage,
        xs_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let xs = f32_slice(xs, xs_layout)?;
        let weight = f32_slice(weight, weight_layout)?;
        let width = weight.len();
        if xs_layout.dims().last() != Some(&width) {
            bail!("rows of {:?} do not fit a weight of {width}", xs_layout.dims());
        }
        let mut out = vec![0f32; xs.len()];
        let rows = (JOB_ELEMENTS / width).max(1);
        par::for_each_chunk(&mut out, rows * width, xs.len(), |index, out| {
            let xs = &xs[index * rows * width..][..out.len()];
            for (x, out) in xs.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                let scale = (sum_of_squares(x) / width as f32 + self.eps).sqrt().recip();
                for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * scale * w;
                }
            }
        });
        Ok((CpuStorage::F32(out), xs_layout.shape().clone()))
    }
}

/// In 16 partial sums, so that it vectorises.
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut sums = [0f32; 16];
    let chunks = x.chunks_exact(16);
    let rest: f32 = chunks.remainder().iter().map(|v| v * v).sum();
    for chunk in chunks {
        for (sum, &v) in sums.iter_mut().zip(chunk) {
            *sum = par::mul_add(v, v, *sum);
        }
    }
    sums.iter().sum::<f32>() + rest
}

struct Rope {
    layout: RopeLayout,
}

impl CustomOp3 for Rope {
    fn name(&self) -> &'static str {
        "arc-rope"
    }

    fn cpu_fwd(
        &self,
        xs: &CpuStorage,
        xs_layout: &Layout,
        cos: &CpuStorage,
        cos_layout: &Layout,
        sin: &CpuStorage,
        sin_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (tokens, heads, head_dim) = xs_layout.shape().dims3()?;
        let half = head_dim / 2;
        let xs = f32_slice(xs, xs_layout)?;
        let (cos, sin) = (f32_slice(cos, cos_layout)?, f32_slice(sin, sin_layout)?);
        if cos.len() != tokens * half || sin.len() != cos.len() {
            bail!("{} angles do not fit {tokens} tokens of {half} pairs", cos.len());
        }
        let mut out = vec![0f32; xs.len()];
        let row = heads * head_dim;
        let rows = (JOB_ELEMENTS / row).max(1);
        par::for_each_chunk(&mut out, rows * row, xs.len(), |index, out| {
            for (offset, out) in out.chunks_exact_mut(row).enumerate() {
                let token = index * rows + offset;
                let (cos, sin) = (&cos[token * half..][..half], &sin[token * half..][..half]);
                let xs = xs[token * row..][..row].chunks_exact(head_dim);
                for (x, out) in xs.zip(out.chunks_exact_mut(head_dim)) {
                    rotate(self.layout, x, cos, sin, out);
                }
            }
        });
        Ok((CpuStorage::F32(out), xs_layout.shape().clone()))
    }
}

fn rotate(layout: RopeLayout, x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let half = cos.len();
    match layout {
        RopeLayout::Pairs => {
            for (pair, (x, out)) in x.chunks_exact(2).zip(out.chunks_exact_mut(2)).enumerate() {
                out[0] = x[0] * cos[pair] - x[1] * sin[pair];
                out[1] = x[0] * sin[pair] + x[1] * cos[pair];
            }
        }
        RopeLayout::Halves => {
            let (low, high) = out.split_at_mut(half);
            for pair in 0..half {
                low[pair] = x[pair] * cos[pair] - x[half + pair] * sin[pair];
                high[pair] = x[pair] * sin[pair] + x[half + pair] * cos[pair];
            }
        }
    }
}

struct SiluMul;

impl CustomOp2 for SiluMul {
    fn name(&self) -> &'static str {
        "arc-silu-mul"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (gate, up) = (f32_slice(gate, gate_layout)?, f32_slice(up, up_layout)?);
        if gate.len() != up.len() {
            bail!("gate has {} elements, up {}", gate.len(), up.len());
        }
        let mut out = vec![0f32; gate.len()];
        par::for_each_chunk(&mut out, JOB_ELEMENTS, 4 * gate.len(), |index, out| {
            let start = index * JOB_ELEMENTS;
            let (gate, up) = (&gate[start..][..out.len()], &up[start..][..out.len()]);
            for ((out, &g), &u) in out.iter_mut().zip(gate).zip(up) {
                *out = g / (1.0 + par::exp(-g)) * u;
            }
        });
        Ok((CpuStorage::F32(out), gate_layout.shape().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    fn close(a: &Tensor, b: &Tensor) {
        let a: Vec<f32> = a.flatten_all().unwrap().to_vec1().unwrap();
        let b: Vec<f32> = b.flatten_all().unwrap().to_vec1().unwrap();
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(&b) {
            assert!((a - b).abs() <= 2e-6 * (1.0 + b.abs()), "{a} is not {b}");
        }
    }

    fn random(shape: &[usize]) -> Tensor {
        Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap()
    }

    #[test]
    fn the_norm_is_candle_nns() {
        let (xs, weight) = (random(&[300, 90]), random(&[90]));
        let theirs = candle_nn::ops::rms_norm_slow(&xs, &weight, 1e-5).unwrap();
        close(&rms_norm(&xs, &weight, 1e-5).unwrap(), &theirs);
    }

    #[test]
    fn both_rotations_are_candle_nns() {
        let (tokens, heads, head_dim) = (70, 3, 10);
        let xs = random(&[tokens, heads, head_dim]);
        let (cos, sin) = (random(&[tokens, head_dim / 2]), random(&[tokens, head_dim / 2]));
        let batch = xs.transpose(0, 1).unwrap().unsqueeze(0).unwrap().contiguous().unwrap();
        for (layout, theirs) in [
            (RopeLayout::Pairs, candle_nn::rotary_emb::rope_i_slow(&batch, &cos, &sin)),
            (RopeLayout::Halves, candle_nn::rotary_emb::rope_slow(&batch, &cos, &sin)),
        ] {
            let theirs = theirs.unwrap().squeeze(0).unwrap().transpose(0, 1).unwrap();
            close(&rope(&xs, &cos, &sin, layout).unwrap(), &theirs);
        }
    }

    #[test]
    fn the_gated_activation_is_candles() {
        let (gate, up) = (random(&[5, 7001]), random(&[5, 7001]));
        let gate = (gate * 8.0).unwrap().to_dtype(DType::F32).unwrap();
        close(&silu_mul(&gate, &up).unwrap(), &(gate.silu().unwrap() * &up).unwrap());
    }
}
