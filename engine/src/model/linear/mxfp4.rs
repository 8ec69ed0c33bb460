//! MXFP4: four-bit floats (one bit of mantissa, two of exponent) times a power of two.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits;
use super::format::{Format, Scales};

/// Twice the floats (ggml's `kvalues_mxfp4`), plus 12: whole numbers of five bits.
const VALUES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Exponent, then 16 bytes. A tile has four lines, then the exponents.
pub(super) struct Mxfp4;

impl Format for Mxfp4 {
    const TYPE: TensorType = TensorType::MXFP4;
    const BITS: u32 = 5;
    const OFFSETS: bool = true;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        bits::put_nibbles(&bits::nibbles_of(&block[1..]), lane, tile);
        tile[256 + lane] = block[0];
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, _: usize, part: usize) -> [S::I; 8] {
        let index = bits::nibbles::<S>(tile, part);
        std::array::from_fn(|vector| S::lookup(&VALUES, index[vector]))
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        // Half of 2^(e - 127), which for e below 2 is not a normal number, so in two factors.
        let exponent = S::widen(tile.add(256 + S::LANES * part));
        let half = S::to_f32(S::shr(exponent, 1));
        let rest = S::sub(S::to_f32(exponent), half);
        let power = |n| S::scale_by_power(S::splat(1.0), S::sub(n, S::splat(64.0)));
        out.scales[0] = S::mul(power(half), power(rest));
        out.offsets[0] = S::mul(out.scales[0], S::splat(-12.0));
        out
    }
}
