//! Q2_K: two bits in blocks of 256, with four-bit scales and minima of halves of units.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits::{self, LINE};
use super::format::{COLUMNS, Format, ROWS, Scales};

/// 16 bytes of a scale and a minimum each, 64 bytes of pairs, scale of the scales, scale of the
/// minima. A tile has two lines a unit, then the rest in the same order.
pub(super) struct Q2K;

const UNIT: usize = 2 * LINE;
const FOURS: usize = 8 * UNIT;
const SCALES: usize = FOURS + 16 * ROWS;
const MINIMA: usize = SCALES + 2 * ROWS;

/// The pairs of bits of unit `unit` out of the 64 bytes of a block.
pub(super) fn pairs_of(bytes: &[u8], unit: usize) -> [u8; COLUMNS] {
    let bytes = &bytes[32 * (unit / 4)..];
    std::array::from_fn(|column| bytes[column] >> (2 * (unit % 4)) & 3)
}

impl Format for Q2K {
    const TYPE: TensorType = TensorType::Q2K;
    const BITS: u32 = 2;
    const HALVES: bool = true;
    const OFFSETS: bool = true;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        for (unit, lines) in tile[..FOURS].chunks_exact_mut(UNIT).enumerate() {
            bits::put_pairs(&pairs_of(&block[16..80], unit), lane, lines);
        }
        for (index, &four) in block[..16].iter().enumerate() {
            tile[FOURS + ROWS * index + lane] = four;
        }
        bits::put_half(&block[80..], lane, &mut tile[SCALES..]);
        bits::put_half(&block[82..], lane, &mut tile[MINIMA..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, unit: usize, part: usize) -> [S::I; 8] {
        bits::pairs::<S>(tile.add(UNIT * unit), part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        let scale = S::load_f16(tile.add(SCALES + 2 * S::LANES * part));
        let minimum = S::load_f16(tile.add(MINIMA + 2 * S::LANES * part));
        let minimum = S::sub(S::splat(0.0), minimum);
        let low = S::splat_byte(15);
        for unit in 0..8 {
            let both = |half: usize| {
                S::widen(tile.add(FOURS + ROWS * (2 * unit + half) + S::LANES * part))
            };
            let (first, second) = (both(0), both(1));
            out.scales[2 * unit] = S::mul(scale, S::to_f32(S::and(first, low)));
            out.scales[2 * unit + 1] = S::mul(scale, S::to_f32(S::and(second, low)));
            let first = S::to_f32(S::shr(first, 4));
            let second = S::to_f32(S::shr(second, 4));
            out.offsets[2 * unit] = S::mul(minimum, S::sub(first, second));
            out.offsets[2 * unit + 1] = S::mul(minimum, second);
        }
        out
    }
}
