//! Small operations between the products, on rows in the processor's memory: norm, rotation, gated
//! activation.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use super::architectures::{Activation, RopeLayout};
use super::simd::{Kernel, Kernels, Simd, bend, dispatch, exp, sum16};

/// Root mean square norm of `x`, times `weight`. Says whether all of `x` is finite.
pub(super) fn rms_norm(
    kernels: Kernels,
    x: &[f32],
    weight: &[f32],
    eps: f32,
    out: &mut [f32],
) -> bool {
    assert!(x.len() == weight.len() && x.len() == out.len(), "rows fit the norm's weight");
    let squares = dispatch(kernels, SumOfSquares { x });
    let scale = (squares / x.len() as f32 + eps).sqrt().recip();
    for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
    squares.is_finite()
}

/// The norm in place, of one head.
pub(super) fn rms_norm_head(kernels: Kernels, x: &mut [f32], weight: &[f32], eps: f32) {
    assert_eq!(x.len(), weight.len(), "heads fit the norm's weight");
    let squares = dispatch(kernels, SumOfSquares { x });
    let scale = (squares / x.len() as f32 + eps).sqrt().recip();
    for (x, &weight) in x.iter_mut().zip(weight) {
        *x = *x * scale * weight;
    }
}

/// Whether all of `x` is finite.
pub(super) fn is_finite(kernels: Kernels, x: &[f32]) -> bool {
    dispatch(kernels, SumOfSquares { x }).is_finite()
}

/// Bends whole groups of 16 so that they stay between `-cap` and `cap`.
pub(super) fn soft_cap(kernels: Kernels, xs: &mut [f32], cap: f32) {
    assert!(xs.len().is_multiple_of(16), "whole groups of 16");
    dispatch(kernels, SoftCap { xs, cap });
}

struct SoftCap<'a> {
    xs: &'a mut [f32],
    cap: f32,
}

impl Kernel for SoftCap<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        bend::<S>(self.xs, self.cap);
    }
}

struct SumOfSquares<'a> {
    x: &'a [f32],
}

impl Kernel for SumOfSquares<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        let mut sums = [S::splat(0.0); 2];
        let chunks = self.x.chunks_exact(16);
        let rest: f32 = chunks.remainder().iter().map(|x| x * x).sum();
        for chunk in chunks {
            for (part, sum) in sums.iter_mut().enumerate().take(16 / S::LANES) {
                let x = S::load_f32(chunk.as_ptr().add(part * S::LANES));
                *sum = S::mul_add(x, x, *sum);
            }
        }
        sum16::<S>(sums) + rest
    }
}

/// Rotates one head in place; `cos` and `sin` have half as many elements.
pub(super) fn rotate(layout: RopeLayout, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    assert!(x.len() == 2 * half && sin.len() == half, "a pair for each angle");
    match layout {
        RopeLayout::Pairs => {
            for ((x, &cos), &sin) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                *x = [x[0] * cos - x[1] * sin, x[0] * sin + x[1] * cos];
            }
        }
        RopeLayout::Halves => {
            let (low, high) = x.split_at_mut(half);
            for (((low, high), &cos), &sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                (*low, *high) = (*low * cos - *high * sin, *low * sin + *high * cos);
            }
        }
    }
}

/// `gate = activation(gate)·up`, of whole groups of 16.
pub(super) fn activate_mul(kernels: Kernels, activation: Activation, gate: &mut [f32], up: &[f32]) {
    assert!(gate.len() == up.len() && gate.len().is_multiple_of(16), "whole groups of 16");
    match activation {
        Activation::Silu => dispatch(kernels, SiluMul { gate, up }),
        Activation::Gelu => dispatch(kernels, GeluMul { gate, up }),
    }
}

struct GeluMul<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Kernel for GeluMul<'_> {
    type Output = ();

    /// `x/2·(1 + tanh u)` is `x / (1 + e^-2u)`, with u = √(2/π)·(x + 0.044715·x³).
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (one, cubic) = (S::splat(1.0), S::splat(0.044_715));
        let minus_twice = S::splat(-2.0 * 0.797_884_6);
        for at in (0..self.gate.len()).step_by(S::LANES) {
            let gate = S::load_f32(self.gate.as_ptr().add(at));
            let up = S::load_f32(self.up.as_ptr().add(at));
            let inner = S::mul_add(S::mul(cubic, S::mul(gate, gate)), gate, gate);
            let negative = exp::<S>(S::mul(minus_twice, inner));
            let gelu = S::div(gate, S::add(one, negative));
            S::store_f32(self.gate.as_mut_ptr().add(at), S::mul(gelu, up));
        }
    }
}

struct SiluMul<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for at in (0..self.gate.len()).step_by(S::LANES) {
            let gate = S::load_f32(self.gate.as_ptr().add(at));
            let up = S::load_f32(self.up.as_ptr().add(at));
            let negative = exp::<S>(S::sub(S::splat(0.0), gate));
            let silu = S::div(gate, S::add(S::splat(1.0), negative));
            S::store_f32(self.gate.as_mut_ptr().add(at), S::mul(silu, up));
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::*;
    use crate::model::ops;

    fn random(shape: &[usize]) -> Tensor {
        Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap()
    }

    fn values(x: &Tensor) -> Vec<f32> {
        x.flatten_all().unwrap().to_vec1().unwrap()
    }

    fn close(a: &[f32], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() <= 4e-6 * (1.0 + b.abs()), "{a} is not {b}");
        }
    }

    #[test]
    fn the_norm_is_candle_nns_and_sees_what_is_not_finite() {
        let (xs, weight) = (random(&[1, 90]), random(&[90]));
        let theirs = values(&ops::rms_norm(&xs, &weight, 1e-5).unwrap());
        for kernels in Kernels::available() {
            let (x, weight) = (values(&xs), values(&weight));
            let mut out = vec![0.0; 90];
            assert!(rms_norm(kernels, &x, &weight, 1e-5, &mut out));
            close(&out, &theirs);
            let mut head = x.clone();
            rms_norm_head(kernels, &mut head, &weight, 1e-5);
            assert_eq!(head, out);
            for bad in [f32::NAN, f32::INFINITY] {
                for at in [3, 89] {
                    let mut x = x.clone();
                    x[at] = bad;
                    assert!(!rms_norm(kernels, &x, &weight, 1e-5, &mut out));
                }
            }
        }
    }

    #[test]
    fn both_rotations_are_candle_nns() {
        let (xs, cos, sin) = (random(&[1, 3, 10]), random(&[1, 5]), random(&[1, 5]));
        for layout in [RopeLayout::Pairs, RopeLayout::Halves] {
            let theirs = values(&ops::rope(&xs, &cos, &sin, layout).unwrap());
            let mut ours = values(&xs);
            for head in ours.chunks_exact_mut(10) {
                rotate(layout, head, &values(&cos), &values(&sin));
            }
            close(&ours, &theirs);
        }
    }

    #[test]
    fn the_gated_activations_are_candles_on_every_path() {
        let (gate, up) = ((random(&[5, 704]) * 8.0).unwrap(), random(&[5, 704]));
        for activation in [Activation::Silu, Activation::Gelu] {
            the_gated_activation_is_candles(activation, &gate, &up);
        }
    }

    fn the_gated_activation_is_candles(activation: Activation, gate: &Tensor, up: &Tensor) {
        let activated = match activation {
            Activation::Silu => gate.silu().unwrap(),
            Activation::Gelu => gate.gelu().unwrap(),
        };
        let theirs = values(&(activated * up).unwrap());
        let first = {
            let mut ours = values(gate);
            activate_mul(Kernels::SCALAR, activation, &mut ours, &values(up));
            ours
        };
        close(&first, &theirs);
        for kernels in Kernels::available() {
            let mut ours = values(gate);
            activate_mul(kernels, activation, &mut ours, &values(up));
            assert_eq!(ours, first, "{kernels:?}");
        }
    }
}
