//! Fields of a few bits within tiles: how they are put there, and how vectors of them come out.
//!
//! A line is 64 bytes: byte `4r + i` belongs to row `r`, and to column `4v + i` for the vectors `v`
//! that the line holds fields of.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::simd::Simd;

use super::format::{COLUMNS, ROWS};

/// Bytes of a line.
pub(super) const LINE: usize = 4 * ROWS;

/// Puts 32 fields of four bits into four lines: columns 0 to 15 in the lower halves of the bytes.
pub(super) fn put_nibbles(values: &[u8; COLUMNS], lane: usize, lines: &mut [u8]) {
    for (column, &value) in values.iter().enumerate() {
        let (at, shift) = if column < 16 { (column, 0) } else { (column - 16, 4) };
        lines[LINE * (at / 4) + 4 * lane + at % 4] |= (value & 15) << shift;
    }
}

/// Puts 32 fields of two bits into two lines.
pub(super) fn put_pairs(values: &[u8; COLUMNS], lane: usize, lines: &mut [u8]) {
    for (column, &value) in values.iter().enumerate() {
        let vector = column / 4;
        let at = LINE * (vector / 4) + 4 * lane + column % 4;
        lines[at] |= (value & 3) << (2 * (vector % 4));
    }
}

/// Puts 32 bits into a line.
pub(super) fn put_bits(values: &[u8; COLUMNS], lane: usize, line: &mut [u8]) {
    for (column, &value) in values.iter().enumerate() {
        line[4 * lane + column % 4] |= (value & 1) << (column / 4);
    }
}

/// Puts `COUNT` fields of six bits of a row, 8 or 16, into `12·COUNT` bytes: the lower four bits,
/// two fields a byte, then the upper two, four fields a byte.
pub(super) fn put_sixes<const COUNT: usize>(values: &[u8; COUNT], lane: usize, out: &mut [u8]) {
    for (index, &value) in values.iter().enumerate() {
        let (half, quarter) = (COUNT / 2, COUNT / 4);
        out[ROWS * (index % half) + lane] |= (value & 15) << (4 * (index / half));
        let high = ROWS * half + ROWS * (index % quarter) + lane;
        out[high] |= (value >> 4 & 3) << (2 * (index / quarter));
    }
}

/// Copies an f16 of a block to its lane.
pub(super) fn put_half(half: &[u8], lane: usize, halves: &mut [u8]) {
    halves[2 * lane..2 * lane + 2].copy_from_slice(&half[..2]);
}

/// The low halves of 16 bytes, then the high ones: the order of columns in ggml's blocks of 32.
pub(super) fn nibbles_of(bytes: &[u8]) -> [u8; COLUMNS] {
    std::array::from_fn(
        |column| {
            if column < 16 { bytes[column] & 15 } else { bytes[column - 16] >> 4 }
        },
    )
}

/// Vectors of four-bit fields out of four lines.
///
/// # Safety
/// The lines must be there, and the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn nibbles<S: Simd>(lines: *const u8, part: usize) -> [S::I; 8] {
    let low = S::splat_byte(15);
    let mut out = [low; 8];
    for line in 0..4 {
        let both = S::load(lines.add(LINE * line + 4 * S::LANES * part));
        out[line] = S::and(both, low);
        out[line + 4] = S::and(S::shr(both, 4), low);
    }
    out
}

/// Vectors of two-bit fields out of two lines.
///
/// # Safety
/// As [`nibbles`].
#[inline(always)]
pub(super) unsafe fn pairs<S: Simd>(lines: *const u8, part: usize) -> [S::I; 8] {
    let low = S::splat_byte(3);
    let mut out = [low; 8];
    for line in 0..2 {
        let four = S::load(lines.add(LINE * line + 4 * S::LANES * part));
        out[4 * line] = S::and(four, low);
        for field in 1..4 {
            out[4 * line + field] = S::and(S::shr(four, 2 * field as i32), low);
        }
    }
    out
}

/// Adds two-bit fields out of two lines above the lower four bits.
///
/// # Safety
/// As [`nibbles`].
#[inline(always)]
pub(super) unsafe fn with_pairs<S: Simd>(
    mut low: [S::I; 8],
    lines: *const u8,
    part: usize,
) -> [S::I; 8] {
    let mask = S::splat_byte(0x30);
    for line in 0..2 {
        let four = S::load(lines.add(LINE * line + 4 * S::LANES * part));
        for field in 0..4 {
            let moved = match field {
                0 => S::shl(four, 4),
                1 => S::shl(four, 2),
                2 => four,
                _ => S::shr(four, 2),
            };
            let at = 4 * line + field;
            low[at] = S::or(low[at], S::and(moved, mask));
        }
    }
    low
}

/// Adds bits out of a line as bit number `BIT`.
///
/// # Safety
/// As [`nibbles`].
#[inline(always)]
pub(super) unsafe fn with_bits<S: Simd, const BIT: i32>(
    mut low: [S::I; 8],
    line: *const u8,
    part: usize,
) -> [S::I; 8] {
    let mask = S::splat_byte(1 << BIT);
    let eight = S::load(line.add(4 * S::LANES * part));
    for (vector, low) in low.iter_mut().enumerate() {
        let shift = vector as i32 - BIT;
        let moved = if shift > 0 { S::shr(eight, shift) } else { S::shl(eight, -shift) };
        *low = S::or(*low, S::and(moved, mask));
    }
    low
}

/// The 16 fields of six bits of 16 rows: field `f` of row `r` is byte `16f + r`.
///
/// # Safety
/// 192 bytes must be there, and the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn sixes<S: Simd>(from: *const u8) -> [u8; 256] {
    let mut out = [0; 256];
    let (low, high) = (S::splat_byte(15), S::splat_byte(0x30));
    let step = 4 * S::LANES;
    for at in (0..64).step_by(step) {
        let upper = S::load(from.add(128 + at));
        for quarter in 0..4 {
            // Fields 4·quarter to 4·quarter + 3 of all rows are 64 bytes.
            let nibbles = S::load(from.add(64 * (quarter % 2) + at));
            let nibbles = if quarter < 2 { nibbles } else { S::shr(nibbles, 4) };
            let upper = match quarter {
                0 => S::shl(upper, 4),
                1 => S::shl(upper, 2),
                2 => upper,
                _ => S::shr(upper, 2),
            };
            let six = S::or(S::and(nibbles, low), S::and(upper, high));
            S::store(out.as_mut_ptr().add(64 * quarter + at), six);
        }
    }
    out
}
