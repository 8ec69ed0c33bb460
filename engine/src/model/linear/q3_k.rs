//! Q3_K: three bits less 4 in blocks of 256, with six-bit scales of halves of units less 32.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits::{self, LINE};
use super::format::{Format, ROWS, Scales};
use super::q2_k::pairs_of;

/// 32 bytes of third bits, 64 bytes of pairs, 12 of scales, scale of the scales. A tile has two lines
/// of pairs and one of third bits a unit, then the scales, then their scales.
pub(super) struct Q3K;

const UNIT: usize = 3 * LINE;
const SIXES: usize = 8 * UNIT;
const HALVES: usize = SIXES + 12 * ROWS;

impl Format for Q3K {
    const TYPE: TensorType = TensorType::Q3K;
    const BITS: u32 = 3;
    const HALVES: bool = true;
    const OFFSETS: bool = true;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        for (unit, lines) in tile[..SIXES].chunks_exact_mut(UNIT).enumerate() {
            bits::put_pairs(&pairs_of(&block[32..96], unit), lane, lines);
            let third = std::array::from_fn(|column| block[column] >> unit & 1);
            bits::put_bits(&third, lane, &mut lines[2 * LINE..]);
        }
        let packed = &block[96..108];
        let scales: [u8; 16] = std::array::from_fn(|index| {
            let low = packed[index % 8] >> (4 * (index / 8)) & 15;
            low | (packed[8 + index % 4] >> (2 * (index / 4)) & 3) << 4
        });
        bits::put_sixes(&scales, lane, &mut tile[SIXES..HALVES]);
        bits::put_half(&block[108..], lane, &mut tile[HALVES..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, unit: usize, part: usize) -> [S::I; 8] {
        let lines = tile.add(UNIT * unit);
        bits::with_bits::<S, 2>(bits::pairs::<S>(lines, part), lines.add(2 * LINE), part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        let scale = S::load_f16(tile.add(HALVES + 2 * S::LANES * part));
        let sixes = bits::sixes::<S>(tile.add(SIXES));
        let offset = S::splat(-4.0);
        for unit in 0..8 {
            let of = |half: usize| {
                let six =
                    S::load_u8(sixes.as_ptr().add(ROWS * (2 * unit + half) + S::LANES * part));
                S::mul(scale, S::sub(six, S::splat(32.0)))
            };
            let (first, second) = (of(0), of(1));
            (out.scales[2 * unit], out.scales[2 * unit + 1]) = (first, second);
            out.offsets[2 * unit] = S::mul(offset, S::sub(first, second));
            out.offsets[2 * unit + 1] = S::mul(offset, second);
        }
        out
    }
}
