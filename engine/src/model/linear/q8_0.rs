//! Q8_0: signed bytes times an f16.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits::{self, LINE};
use super::format::{Format, Scales};

/// Scale, then 32 bytes. A tile has eight lines, a vector each, then the scales.
pub(super) struct Q8_0;

impl Format for Q8_0 {
    const TYPE: TensorType = TensorType::Q8_0;
    const BITS: u32 = 8;
    const OFFSETS: bool = false;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        for (column, &byte) in block[2..34].iter().enumerate() {
            tile[LINE * (column / 4) + 4 * lane + column % 4] = byte ^ 0x80;
        }
        bits::put_half(block, lane, &mut tile[512..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, _: usize, part: usize) -> [S::I; 8] {
        std::array::from_fn(|line| S::load(tile.add(LINE * line + 4 * S::LANES * part)))
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        out.scales[0] = S::load_f16(tile.add(512 + 2 * S::LANES * part));
        out
    }
}
