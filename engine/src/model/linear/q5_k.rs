//! Q5_K: five bits in blocks of 256, with six-bit scales and minima of units.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits::{self, LINE};
use super::format::{Format, ROWS, Scales};
use super::q4_k;

/// As Q4_K, with 32 bytes of fifth bits before the nibbles. A tile has four lines and one of fifth
/// bits a unit, then scales and minima of units, then what those are scaled by.
pub(super) struct Q5K;

const UNIT: usize = 5 * LINE;
const SIXES: usize = 8 * UNIT;

impl Format for Q5K {
    const TYPE: TensorType = TensorType::Q5K;
    const BITS: u32 = 5;
    const OFFSETS: bool = true;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        for (unit, lines) in tile[..SIXES].chunks_exact_mut(UNIT).enumerate() {
            bits::put_nibbles(&q4_k::nibbles_of(&block[48..], unit), lane, lines);
            let fifth = std::array::from_fn(|column| block[16 + column] >> unit & 1);
            bits::put_bits(&fifth, lane, &mut lines[4 * LINE..]);
        }
        let at = &mut tile[SIXES..];
        bits::put_sixes(&q4_k::sixes_of(&block[4..16]), lane, at);
        bits::put_half(block, lane, &mut at[12 * ROWS..]);
        bits::put_half(&block[2..], lane, &mut at[14 * ROWS..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, unit: usize, part: usize) -> [S::I; 8] {
        let lines = tile.add(UNIT * unit);
        bits::with_bits::<S, 4>(bits::nibbles::<S>(lines, part), lines.add(4 * LINE), part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        q4_k::scales_at::<S>(tile.add(SIXES), part)
    }
}
