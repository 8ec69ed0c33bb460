//! Q5_1: five bits times an f16, plus an f16.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits;
use super::format::{Format, Scales};
use super::q5_0::fifth_bits;

/// Scale, offset, a word of fifth bits, then 16 bytes. A tile has four lines, one of fifth bits, then
/// the scales, then the offsets.
pub(super) struct Q5_1;

impl Format for Q5_1 {
    const TYPE: TensorType = TensorType::Q5_1;
    const BITS: u32 = 5;
    const OFFSETS: bool = true;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        bits::put_nibbles(&bits::nibbles_of(&block[8..]), lane, tile);
        bits::put_bits(&fifth_bits(&block[4..8]), lane, &mut tile[256..]);
        bits::put_half(block, lane, &mut tile[320..]);
        bits::put_half(&block[2..], lane, &mut tile[352..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, _: usize, part: usize) -> [S::I; 8] {
        bits::with_bits::<S, 4>(bits::nibbles::<S>(tile, part), tile.add(256), part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        out.scales[0] = S::load_f16(tile.add(320 + 2 * S::LANES * part));
        out.offsets[0] = S::load_f16(tile.add(352 + 2 * S::LANES * part));
        out
    }
}
