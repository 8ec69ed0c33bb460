//! Weights that are floats, in two bytes or four, which stay as they are in memory.
//!
//! A tile is one column of 16 rows. Activations are not rounded.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use std::marker::PhantomData;

use crate::model::gguf::TensorType;
use crate::model::simd::{Kernel, Kernels, Scalar, Simd, dispatch};

use super::format::{Inputs, ROWS};
use super::product::{LINE, Output, PREFETCH_BYTES};

/// A float type.
pub(super) trait Float: 'static {
    const TYPE: TensorType;
    const BYTES: usize = Self::TYPE.type_size();

    /// A vector of it as F32.
    ///
    /// # Safety
    /// As [`Simd`].
    unsafe fn load<S: Simd>(from: *const u8) -> S::F;
}

pub(super) struct F16;
pub(super) struct BF16;
pub(super) struct F32;

impl Float for F16 {
    const TYPE: TensorType = TensorType::F16;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        S::load_f16(from)
    }
}

impl Float for BF16 {
    const TYPE: TensorType = TensorType::BF16;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        S::load_bf16(from)
    }
}

impl Float for F32 {
    const TYPE: TensorType = TensorType::F32;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        S::load_f32(from.cast())
    }
}

/// Puts a float into its lane.
pub(super) fn pack<F: Float>(block: &[u8], lane: usize, tile: &mut [u8]) {
    tile[F::BYTES * lane..][..F::BYTES].copy_from_slice(&block[..F::BYTES]);
}

/// One row of activations.
pub(super) fn one<F: Float>(
    kernels: Kernels,
    tiles: &[u8],
    columns: usize,
    inputs: &Inputs<'_>,
    out: &Output<'_>,
) {
    dispatch(kernels, One::<F>(Work::new(tiles, columns, inputs, out)));
}

/// Any number of rows of activations.
pub(super) fn many<F: Float>(
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
    columns: usize,
    groups: usize,
    inputs: Inputs<'a>,
    out: &'a Output<'a>,
    float: PhantomData<F>,
}

impl<'a, F: Float> Work<'a, F> {
    fn new(tiles: &'a [u8], columns: usize, inputs: &Inputs<'a>, out: &'a Output<'a>) -> Self {
        let groups = tiles.len() / (columns * ROWS * F::BYTES);
        assert_eq!(tiles.len(), groups * columns * ROWS * F::BYTES, "whole groups of tiles");
        assert!(columns <= inputs.stride && inputs.floats.len() >= inputs.rows * inputs.stride);
        Self { tiles, columns, groups, inputs: *inputs, out, float: PhantomData }
    }

    /// Rows `row` to `row + M` with all groups, `V` vectors of weights at a time.
    #[inline(always)]
    unsafe fn rows<S: Simd, const M: usize, const V: usize>(&self, row: usize) {
        // Vectors are counted through groups and their parts.
        let parts = ROWS / S::LANES;
        let mut vector = 0;
        while self.groups * parts - vector >= V {
            self.vectors::<S, M, V>(row, vector);
            vector += V;
        }
        while vector < self.groups * parts {
            self.vectors::<S, M, 1>(row, vector);
            vector += 1;
        }
    }

    #[inline(always)]
    unsafe fn vectors<S: Simd, const M: usize, const V: usize>(&self, row: usize, vector: usize) {
        let parts = ROWS / S::LANES;
        let xs: [*const f32; M] = std::array::from_fn(|m| {
            self.inputs.floats[(row + m) * self.inputs.stride..][..self.columns].as_ptr()
        });
        let weights: [*const u8; V] = std::array::from_fn(|v| {
            let (group, part) = ((vector + v) / parts, (vector + v) % parts);
            let at = (group * self.columns * ROWS + part * S::LANES) * F::BYTES;
            self.tiles[at..][..((self.columns - 1) * ROWS + S::LANES) * F::BYTES].as_ptr()
        });
        let group_bytes = self.columns * ROWS * F::BYTES;
        let skipped = (V / parts).saturating_sub(1) * group_bytes;
        let mut totals = [[S::splat(0.0); V]; M];
        for column in 0..self.columns {
            let at = column * ROWS * F::BYTES;
            if M == 1 && at.is_multiple_of(LINE) {
                // What comes after the end of these groups is the beginning of the next `V`.
                let ahead = at + PREFETCH_BYTES;
                let ahead = if ahead < group_bytes { ahead } else { ahead + skipped };
                for weights in &weights {
                    S::prefetch(weights.wrapping_add(ahead));
                }
            }
            let weights: [S::F; V] = std::array::from_fn(|v| F::load::<S>(weights[v].add(at)));
            for (totals, x) in totals.iter_mut().zip(&xs) {
                let x = S::splat(*x.add(column));
                for (total, &weight) in totals.iter_mut().zip(&weights) {
                    *total = S::mul_add(weight, x, *total);
                }
            }
        }
        for (m, totals) in totals.iter().enumerate() {
            for (v, &total) in totals.iter().enumerate() {
                let (group, part) = ((vector + v) / parts, (vector + v) % parts);
                self.out.write::<S>(row + m, group, part, total);
            }
        }
    }
}

struct One<'a, F>(Work<'a, F>);

impl<F: Float> Kernel for One<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for row in 0..self.0.inputs.rows {
            self.0.rows::<S, 1, 4>(row);
        }
    }
}

struct Many<'a, F>(Work<'a, F>);

impl<F: Float> Kernel for Many<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (work, mut row) = (self.0, 0);
        while work.inputs.rows - row >= S::MANY {
            // As many sums as half of the registers hold, or more of them.
            if S::MANY == 8 {
                work.rows::<S, 8, 2>(row);
            } else {
                work.rows::<S, 4, 2>(row);
            }
            row += S::MANY;
        }
        while work.inputs.rows - row >= 2 {
            work.rows::<S, 2, 4>(row);
            row += 2;
        }
        if work.inputs.rows > row {
            work.rows::<S, 1, 4>(row);
        }
    }
}

/// The weights of lane `lane` of a group.
pub(super) fn row<F: Float>(tiles: &[u8], lane: usize, out: &mut [f32]) {
    for (tile, out) in tiles.chunks_exact(ROWS * F::BYTES).zip(out) {
        // SAFETY: the scalar kernels need no instructions beyond the baseline, and a tile is whole.
        *out = unsafe { F::load::<Scalar>(tile.as_ptr()) }[lane];
    }
}
