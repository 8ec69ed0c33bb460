//! Activations in bytes: 32 at a time, by their largest magnitude.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::simd::{Kernel, Kernels, Simd, dispatch};

use super::format::COLUMNS;

/// 32 activations as signed bytes `a`: an activation is `scale·a`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
pub(in crate::model) struct Quantised {
    pub(super) bytes: [i8; COLUMNS],
    pub(super) scale: f32,
    /// `scale` times the sum of the bytes, which an offset is multiplied by.
    pub(super) sum: f32,
    /// The same of the first 16 bytes.
    pub(super) first_sum: f32,
    pub(super) minus_128_sum: i32,
}

/// Quantises elements, 32 to one of `out`. What is not finite makes its scale so, and with it every
/// product.
pub(in crate::model) fn quantise(kernels: Kernels, xs: &[f32], out: &mut [Quantised]) {
    assert_eq!(xs.len(), out.len() * COLUMNS, "whole blocks of activations");
    dispatch(kernels, Quantise { xs, out });
}

struct Quantise<'a> {
    xs: &'a [f32],
    out: &'a mut [Quantised],
}

impl Kernel for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (xs, out) in self.xs.chunks_exact(COLUMNS).zip(self.out) {
            // As bits, because numbers order in the same way and infinities and NaN come last.
            let largest = xs.iter().fold(0, |largest, x| largest.max(x.to_bits() & !(1 << 31)));
            let largest = f32::from_bits(largest);
            let scale = largest / 127.0;
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            let mut wide = [0i32; COLUMNS];
            for (wide, &x) in wide.iter_mut().zip(xs) {
                // The nearest whole number, halves to the even one: what lies beyond 2^22 has no
                // bits for fractions. Not finite becomes anything, which the scale then spoils.
                let rounded = x * inverse + 12_582_912.0;
                *wide = (rounded.to_bits() as i32).wrapping_sub(0x4b40_0000);
            }
            for (byte, &wide) in out.bytes.iter_mut().zip(&wide) {
                *byte = wide as i8;
            }
            let of = |bytes: &[i8]| bytes.iter().map(|&byte| i32::from(byte)).sum::<i32>();
            let (first, second) = (of(&out.bytes[..16]), of(&out.bytes[16..]));
            out.scale = scale;
            out.sum = scale * (first + second) as f32;
            out.first_sum = scale * first as f32;
            out.minus_128_sum = -128 * (first + second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_within_half_a_step_and_the_same_on_every_path() {
        let xs: Vec<f32> = (0..320).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.37).collect();
        let mut first = vec![Quantised::default(); 10];
        quantise(Kernels::SCALAR, &xs, &mut first);
        for (block, xs) in first.iter().zip(xs.chunks_exact(COLUMNS)) {
            let mut sums = [0, 0];
            for (column, (&byte, &x)) in block.bytes.iter().zip(xs).enumerate() {
                assert!((f32::from(byte) * block.scale - x).abs() <= block.scale * 0.5001);
                sums[column / 16] += i32::from(byte);
            }
            assert_eq!(block.minus_128_sum, -128 * (sums[0] + sums[1]));
            assert_eq!(block.first_sum, block.scale * sums[0] as f32);
            assert_eq!(block.sum, block.scale * (sums[0] + sums[1]) as f32);
        }
        for kernels in Kernels::available() {
            let mut again = vec![Quantised::default(); 10];
            quantise(kernels, &xs, &mut again);
            for (a, b) in again.iter().zip(&first) {
                assert_eq!((a.bytes, a.scale, a.sum), (b.bytes, b.scale, b.sum), "{kernels:?}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_spoils_its_block_and_nothing_else() {
        for kernels in Kernels::available() {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut xs = [0.5; 64];
                xs[37] = bad;
                let mut out = [Quantised::default(); 2];
                quantise(kernels, &xs, &mut out);
                assert!(out[0].scale.is_finite() && !out[1].scale.is_finite(), "{bad}");
            }
        }
    }
}
