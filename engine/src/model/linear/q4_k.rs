//! Q4_K: four bits in blocks of 256, with six-bit scales and minima of units.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits::{self, LINE};
use super::format::{COLUMNS, Format, ROWS, Scales};

/// Scale of the scales, scale of the minima, 12 bytes of both, 128 bytes of nibbles. A tile has four
/// lines a unit, then scales and minima of units, then what those are scaled by.
pub(super) struct Q4K;

const UNIT: usize = 4 * LINE;
const SIXES: usize = 8 * UNIT;

/// Scales, then minima, of the eight units of a block.
pub(super) fn sixes_of(packed: &[u8]) -> [u8; 16] {
    std::array::from_fn(|index| {
        let (unit, minimum) = (index % 8, index / 8);
        if unit < 4 {
            packed[4 * minimum + unit] & 63
        } else {
            let low = packed[8 + unit - 4] >> (4 * minimum) & 15;
            low | packed[4 * minimum + unit - 4] >> 6 << 4
        }
    })
}

/// The nibbles of unit `unit` out of the 128 bytes of a block.
pub(super) fn nibbles_of(bytes: &[u8], unit: usize) -> [u8; COLUMNS] {
    let bytes = &bytes[32 * (unit / 2)..];
    std::array::from_fn(|column| bytes[column] >> (4 * (unit % 2)) & 15)
}

/// Scales and offsets from the sixes at `at`, which what scales them follows.
///
/// # Safety
/// As [`Format::scales`].
#[inline(always)]
pub(super) unsafe fn scales_at<S: Simd>(at: *const u8, part: usize) -> Scales<S> {
    let mut out = Scales::zero();
    let scale = S::load_f16(at.add(12 * ROWS + 2 * S::LANES * part));
    let minimum = S::load_f16(at.add(14 * ROWS + 2 * S::LANES * part));
    let minimum = S::sub(S::splat(0.0), minimum);
    let sixes = bits::sixes::<S>(at);
    for unit in 0..8 {
        let of = |index: usize| S::load_u8(sixes.as_ptr().add(ROWS * index + S::LANES * part));
        out.scales[unit] = S::mul(scale, of(unit));
        out.offsets[unit] = S::mul(minimum, of(8 + unit));
    }
    out
}

impl Format for Q4K {
    const TYPE: TensorType = TensorType::Q4K;
    const BITS: u32 = 4;
    const OFFSETS: bool = true;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        for (unit, lines) in tile[..SIXES].chunks_exact_mut(UNIT).enumerate() {
            bits::put_nibbles(&nibbles_of(&block[16..], unit), lane, lines);
        }
        let at = &mut tile[SIXES..];
        bits::put_sixes(&sixes_of(&block[4..16]), lane, at);
        bits::put_half(block, lane, &mut at[12 * ROWS..]);
        bits::put_half(&block[2..], lane, &mut at[14 * ROWS..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, unit: usize, part: usize) -> [S::I; 8] {
        bits::nibbles::<S>(tile.add(UNIT * unit), part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        scales_at::<S>(tile.add(SIXES), part)
    }
}
