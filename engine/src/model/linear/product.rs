//! Products of quantised weights with activations in bytes, for every format and instruction set.
//!
//! A tile's integers are taken apart once for as many rows of activations as registers hold. A sum
//! runs along the columns in one order whatever the number of rows, so a row's products do not
//! depend on what else is computed with it.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use std::marker::PhantomData;

use crate::model::par::Share;
use crate::model::simd::{Kernel, Kernels, Scalar, Simd, dispatch};

use super::activations::Quantised;
use super::format::{COLUMNS, Format, Inputs, ROWS, Scales};

/// Where products go: a strip of columns of a matrix of rows.
#[derive(Debug)]
pub(in crate::model) struct Output<'a> {
    all: Share<'a, f32>,
    stride: usize,
    first: usize,
    add: bool,
}

impl<'a> Output<'a> {
    /// Columns from `first` on, of rows `stride` apart; `add` says whether products are added to what
    /// is there.
    ///
    /// # Safety
    /// While this lives, nobody else uses the columns that products are written to.
    pub(in crate::model) unsafe fn new(
        all: Share<'a, f32>,
        stride: usize,
        first: usize,
        add: bool,
    ) -> Self {
        Self { all, stride, first, add }
    }

    /// Writes a part of 16 neighbouring products of a row.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`.
    #[inline(always)]
    pub(super) unsafe fn write<S: Simd>(&self, row: usize, group: usize, part: usize, value: S::F) {
        let start = row * self.stride + self.first + group * ROWS + part * S::LANES;
        let to = self.all.part(start..start + S::LANES).as_mut_ptr();
        let value = if self.add { S::add(S::load_f32(to), value) } else { value };
        S::store_f32(to, value);
    }
}

/// One row of activations.
pub(super) fn one<F: Format>(
    kernels: Kernels,
    tiles: &[u8],
    columns: usize,
    inputs: &Inputs<'_>,
    out: &Output<'_>,
) {
    dispatch(kernels, One::<F>(Work::new(tiles, columns, inputs, out)));
}

/// Any number of rows of activations.
pub(super) fn many<F: Format>(
    kernels: Kernels,
    tiles: &[u8],
    columns: usize,
    inputs: &Inputs<'_>,
    out: &Output<'_>,
) {
    dispatch(kernels, Many::<F>(Work::new(tiles, columns, inputs, out)));
}

struct Work<'a, F> {
    tiles: &'a [u8],
    /// Tiles of a group of 16 rows.
    width: usize,
    groups: usize,
    rows: usize,
    bytes: &'a [Quantised],
    out: &'a Output<'a>,
    format: PhantomData<F>,
}

impl<'a, F: Format> Work<'a, F> {
    /// How far ahead weights are asked for: fewer bits are read faster, so they are asked for earlier.
    const AHEAD: usize = if F::BITS <= 5 { 2 * PREFETCH_BYTES } else { PREFETCH_BYTES };

    fn new(tiles: &'a [u8], columns: usize, inputs: &Inputs<'a>, out: &'a Output<'a>) -> Self {
        let width = columns / (COLUMNS * F::UNITS);
        let groups = tiles.len() / (width * F::TILE_BYTES);
        let rows = inputs.rows;
        assert_eq!(tiles.len(), groups * width * F::TILE_BYTES, "whole groups of tiles");
        assert!(inputs.bytes.len() >= rows * width * F::UNITS, "activations for every column");
        Self { tiles, width, groups, rows, bytes: inputs.bytes, out, format: PhantomData }
    }

    /// Rows `row` to `row + M` with all groups.
    #[inline(always)]
    unsafe fn rows<S: Simd, const M: usize>(&self, row: usize) {
        let stride = self.width * F::UNITS;
        let acts: [&[Quantised]; M] =
            std::array::from_fn(|m| &self.bytes[(row + m) * stride..][..stride]);
        let group_bytes = self.width * F::TILE_BYTES;
        for (group, tiles) in self.tiles.chunks_exact(group_bytes).enumerate().take(self.groups) {
            // One row takes all parts of a tile at once, so that memory is read in one stream.
            if M == 1 && S::LANES == 8 {
                self.group::<S, M, 2>(row, group, 0, tiles, &acts);
            } else {
                for part in 0..ROWS / S::LANES {
                    self.group::<S, M, 1>(row, group, part, tiles, &acts);
                }
            }
        }
    }

    /// `P` parts of a group, from `part` on.
    #[inline(always)]
    unsafe fn group<S: Simd, const M: usize, const P: usize>(
        &self,
        row: usize,
        group: usize,
        part: usize,
        tiles: &[u8],
        acts: &[&[Quantised]; M],
    ) {
        let mut totals = [[S::splat(0.0); M]; P];
        for (index, tile) in tiles.chunks_exact(F::TILE_BYTES).enumerate() {
            for (own, totals) in totals.iter_mut().enumerate() {
                let ahead = (M == 1 && own == 0).then_some(Self::AHEAD);
                add_products::<S, F, M>(tile.as_ptr(), part + own, index, acts, totals, ahead);
            }
        }
        for (own, totals) in totals.iter().enumerate() {
            for (m, &total) in totals.iter().enumerate() {
                self.out.write::<S>(row + m, group, part + own, total);
            }
        }
    }
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// How far ahead of one row's products weights are asked for.
pub(super) const PREFETCH_BYTES: usize = 2048;

/// Adds the products of a part of tile number `index` with `M` rows of activations. What lies so far
/// `ahead` of the tile is asked for, a share with each unit: more at once would keep the tile itself
/// waiting.
#[inline(always)]
unsafe fn add_products<S: Simd, F: Format, const M: usize>(
    tile: *const u8,
    part: usize,
    index: usize,
    acts: &[&[Quantised]; M],
    totals: &mut [S::F; M],
    ahead: Option<usize>,
) {
    let Scales { scales, offsets } = F::scales::<S>(tile, part);
    let lines = F::TILE_BYTES.div_ceil(LINE);
    for unit in 0..F::UNITS {
        if let Some(ahead) = ahead {
            for line in lines * unit / F::UNITS..lines * (unit + 1) / F::UNITS {
                S::prefetch(tile.wrapping_add(ahead + line * LINE));
            }
        }
        let weights = F::integers::<S>(tile, unit, part);
        for (total, acts) in totals.iter_mut().zip(acts) {
            let act = acts.get_unchecked(index * F::UNITS + unit);
            let (bytes, scale) = (act.bytes.as_ptr(), S::splat(act.scale));
            if F::HALVES {
                let first = S::to_f32(dot::<S, F>(&weights[..4], bytes));
                let second = S::to_f32(dot::<S, F>(&weights[4..], bytes.add(16)));
                let both = S::mul(first, scales[2 * unit]);
                let both = S::mul_add(second, scales[2 * unit + 1], both);
                *total = S::mul_add(both, scale, *total);
                if F::OFFSETS {
                    let first_sum = S::splat(act.first_sum);
                    *total = S::mul_add(offsets[2 * unit], first_sum, *total);
                    *total = S::mul_add(offsets[2 * unit + 1], S::splat(act.sum), *total);
                }
            } else {
                let product = if F::BITS == 8 {
                    S::dot_signed(&weights, bytes, act.minus_128_sum)
                } else {
                    dot::<S, F>(&weights, bytes)
                };
                let product = S::mul(S::to_f32(product), scales[unit]);
                *total = S::mul_add(product, scale, *total);
                if F::OFFSETS {
                    *total = S::mul_add(offsets[unit], S::splat(act.sum), *total);
                }
            }
        }
    }
}

/// [`Simd::dot`] for the bits that the format has.
#[inline(always)]
unsafe fn dot<S: Simd, F: Format>(weights: &[S::I], bytes: *const i8) -> S::I {
    match F::BITS {
        0..=4 => S::dot::<4>(weights, bytes),
        5 => S::dot::<5>(weights, bytes),
        6 => S::dot::<6>(weights, bytes),
        _ => S::dot::<7>(weights, bytes),
    }
}

struct One<'a, F>(Work<'a, F>);

impl<F: Format> Kernel for One<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for row in 0..self.0.rows {
            self.0.rows::<S, 1>(row);
        }
    }
}

struct Many<'a, F>(Work<'a, F>);

impl<F: Format> Kernel for Many<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (work, mut row) = (self.0, 0);
        while work.rows - row >= S::MANY {
            if S::MANY == 8 {
                work.rows::<S, 8>(row);
            } else {
                work.rows::<S, 4>(row);
            }
            row += S::MANY;
        }
        while work.rows - row >= 2 {
            work.rows::<S, 2>(row);
            row += 2;
        }
        if work.rows > row {
            work.rows::<S, 1>(row);
        }
    }
}

/// The weights of lane `lane` of a group.
pub(super) fn row<F: Format>(tiles: &[u8], lane: usize, out: &mut [f32]) {
    let units = out.chunks_exact_mut(F::UNITS * COLUMNS);
    for (tile, out) in tiles.chunks_exact(F::TILE_BYTES).zip(units) {
        // SAFETY: the scalar kernels need no instructions beyond the baseline, and a tile is whole.
        unsafe {
            let Scales { scales, offsets } = F::scales::<Scalar>(tile.as_ptr(), 0);
            for (unit, out) in out.chunks_exact_mut(COLUMNS).enumerate() {
                let weights = F::integers::<Scalar>(tile.as_ptr(), unit, 0);
                for (column, out) in out.iter_mut().enumerate() {
                    let bytes = weights[column / 4][lane].to_le_bytes();
                    let signed = if F::BITS == 8 { 128.0 } else { 0.0 };
                    let integer = f32::from(bytes[column % 4]) - signed;
                    let (scale, offset) = if F::HALVES && column < 16 {
                        let offset = offsets[2 * unit][lane] + offsets[2 * unit + 1][lane];
                        (scales[2 * unit][lane], offset)
                    } else if F::HALVES {
                        (scales[2 * unit + 1][lane], offsets[2 * unit + 1][lane])
                    } else {
                        (scales[unit][lane], offsets[unit][lane])
                    };
                    *out = scale.mul_add(integer, offset);
                }
            }
        }
    }
}
