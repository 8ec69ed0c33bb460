//! Q4_1: four bits times an f16, plus an f16.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits;
use super::format::{Format, Scales};

/// Scale, offset, then 16 bytes. A tile has four lines, then the scales, then the offsets.
pub(super) struct Q4_1;

impl Format for Q4_1 {
    const TYPE: TensorType = TensorType::Q4_1;
    const BITS: u32 = 4;
    const OFFSETS: bool = true;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        bits::put_nibbles(&bits::nibbles_of(&block[4..]), lane, tile);
        bits::put_half(block, lane, &mut tile[256..]);
        bits::put_half(&block[2..], lane, &mut tile[288..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, _: usize, part: usize) -> [S::I; 8] {
        bits::nibbles::<S>(tile, part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        out.scales[0] = S::load_f16(tile.add(256 + 2 * S::LANES * part));
        out.offsets[0] = S::load_f16(tile.add(288 + 2 * S::LANES * part));
        out
    }
}
