//! Q6_K: six bits less 32 in blocks of 256, with signed bytes as scales of halves of units.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits::{self, LINE};
use super::format::{COLUMNS, Format, ROWS, Scales};

/// 128 bytes of nibbles, 64 of upper pairs, 16 scales, scale of the scales. A tile has four lines of
/// nibbles and two of pairs a unit, then the scales, then their scales.
pub(super) struct Q6K;

const UNIT: usize = 6 * LINE;
const BYTES: usize = 8 * UNIT;
const HALVES: usize = BYTES + 16 * ROWS;

/// Nibbles and upper pairs of unit `unit`: of 128 columns, 64 bytes of nibbles hold columns 0 to 63
/// low and the rest high, and 32 bytes of pairs one unit in each two bits.
fn fields_of(block: &[u8], unit: usize) -> ([u8; COLUMNS], [u8; COLUMNS]) {
    let (half, quarter) = (unit / 4, unit % 4);
    let nibbles = &block[64 * half + 32 * (quarter % 2)..];
    let pairs = &block[128 + 32 * half..];
    (
        std::array::from_fn(|column| nibbles[column] >> (4 * (quarter / 2)) & 15),
        std::array::from_fn(|column| pairs[column] >> (2 * quarter) & 3),
    )
}

impl Format for Q6K {
    const TYPE: TensorType = TensorType::Q6K;
    const BITS: u32 = 6;
    const HALVES: bool = true;
    const OFFSETS: bool = true;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        for (unit, lines) in tile[..BYTES].chunks_exact_mut(UNIT).enumerate() {
            let (nibbles, pairs) = fields_of(block, unit);
            bits::put_nibbles(&nibbles, lane, lines);
            bits::put_pairs(&pairs, lane, &mut lines[4 * LINE..]);
        }
        for (index, &scale) in block[192..208].iter().enumerate() {
            tile[BYTES + ROWS * index + lane] = scale;
        }
        bits::put_half(&block[208..], lane, &mut tile[HALVES..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, unit: usize, part: usize) -> [S::I; 8] {
        let lines = tile.add(UNIT * unit);
        bits::with_pairs::<S>(bits::nibbles::<S>(lines, part), lines.add(4 * LINE), part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        let scale = S::load_f16(tile.add(HALVES + 2 * S::LANES * part));
        let offset = S::splat(-32.0);
        for unit in 0..8 {
            let of = |half: usize| {
                let byte = S::load_i8(tile.add(BYTES + ROWS * (2 * unit + half) + S::LANES * part));
                S::mul(scale, byte)
            };
            let (first, second) = (of(0), of(1));
            (out.scales[2 * unit], out.scales[2 * unit + 1]) = (first, second);
            out.offsets[2 * unit] = S::mul(offset, S::sub(first, second));
            out.offsets[2 * unit + 1] = S::mul(offset, second);
        }
        out
    }
}
