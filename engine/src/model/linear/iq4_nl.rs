//! IQ4_NL: four bits that choose one of 16 signed bytes, times an f16.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits;
use super::format::{Format, Scales};

/// The bytes that can be chosen (ggml's `kvalues_iq4nl`), plus 128.
const VALUES: [u8; 16] = {
    let signed: [i16; 16] =
        [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let mut out = [0; 16];
    let mut index = 0;
    while index < 16 {
        out[index] = (signed[index] + 128) as u8;
        index += 1;
    }
    out
};

/// Scale, then 16 bytes. A tile has four lines, then the scales.
pub(super) struct Iq4Nl;

/// The chosen bytes, plus 128, of four lines.
///
/// # Safety
/// The lines must be there, and the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn chosen<S: Simd>(lines: *const u8, part: usize) -> [S::I; 8] {
    let index = bits::nibbles::<S>(lines, part);
    std::array::from_fn(|vector| S::lookup(&VALUES, index[vector]))
}

impl Format for Iq4Nl {
    const TYPE: TensorType = TensorType::IQ4_NL;
    const BITS: u32 = 8;
    const OFFSETS: bool = false;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        bits::put_nibbles(&bits::nibbles_of(&block[2..]), lane, tile);
        bits::put_half(block, lane, &mut tile[256..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, _: usize, part: usize) -> [S::I; 8] {
        chosen::<S>(tile, part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        out.scales[0] = S::load_f16(tile.add(256 + 2 * S::LANES * part));
        out
    }
}
