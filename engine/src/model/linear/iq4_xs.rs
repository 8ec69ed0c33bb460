//! IQ4_XS: the bytes of IQ4_NL in blocks of 256, with six-bit scales of units less 32.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::gguf::TensorType;
use crate::model::simd::Simd;

use super::bits;
use super::format::{Format, ROWS, Scales};
use super::iq4_nl::chosen;

/// Scale, upper bits of the units' scales, lower bits, then 16 bytes a unit. A tile has four lines a
/// unit, then the units' scales, then the scales.
pub(super) struct Iq4Xs;

const UNIT: usize = 256;
const SIXES: usize = 8 * UNIT;
const HALVES: usize = SIXES + 6 * ROWS;

impl Format for Iq4Xs {
    const TYPE: TensorType = TensorType::IQ4_XS;
    const BITS: u32 = 8;
    const OFFSETS: bool = false;

    fn pack(block: &[u8], lane: usize, tile: &mut [u8]) {
        for (unit, lines) in tile[..SIXES].chunks_exact_mut(UNIT).enumerate() {
            bits::put_nibbles(&bits::nibbles_of(&block[8 + 16 * unit..]), lane, lines);
        }
        let upper = u16::from_le_bytes([block[2], block[3]]);
        let scales: [u8; 8] = std::array::from_fn(|unit| {
            let low = block[4 + unit / 2] >> (4 * (unit % 2)) & 15;
            low | ((upper >> (2 * unit) & 3) as u8) << 4
        });
        bits::put_sixes(&scales, lane, &mut tile[SIXES..HALVES]);
        bits::put_half(block, lane, &mut tile[HALVES..]);
    }

    #[inline(always)]
    unsafe fn integers<S: Simd>(tile: *const u8, unit: usize, part: usize) -> [S::I; 8] {
        chosen::<S>(tile.add(UNIT * unit), part)
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S> {
        let mut out = Scales::zero();
        let scale = S::load_f16(tile.add(HALVES + 2 * S::LANES * part));
        let (low, high) = (S::splat_byte(15), S::splat_byte(0x30));
        for unit in 0..8 {
            let nibble = S::widen(tile.add(SIXES + ROWS * (unit % 4) + S::LANES * part));
            let nibble = if unit < 4 { nibble } else { S::shr(nibble, 4) };
            let upper = S::widen(tile.add(SIXES + ROWS * (4 + unit % 2) + S::LANES * part));
            let upper = match unit / 2 {
                0 => S::shl(upper, 4),
                1 => S::shl(upper, 2),
                2 => upper,
                _ => S::shr(upper, 2),
            };
            let six = S::to_f32(S::or(S::and(nibble, low), S::and(upper, high)));
            out.scales[unit] = S::mul(scale, S::sub(six, S::splat(32.0)));
        }
        out
    }
}
