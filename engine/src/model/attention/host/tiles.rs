//! Scores over tiles of keys, and weighted sums of values, in each type that the cache can have.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use half::f16;

use crate::model::kv_cache::{SCALED, TILE};
use crate::model::simd::Simd;

/// An element type of the cache.
pub(super) trait Element {
    /// Bytes of an element.
    const BYTES: usize;
    /// Whether 32 elements share a scale, which follows them.
    const HAS_SCALES: bool;

    /// # Safety
    /// As [`Simd`].
    unsafe fn load<S: Simd>(from: *const u8) -> S::F;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Q8_0;

impl Element for F32 {
    const BYTES: usize = 4;
    const HAS_SCALES: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        S::load_f32(from.cast())
    }
}

impl Element for F16 {
    const BYTES: usize = 2;
    const HAS_SCALES: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        S::load_f16(from)
    }
}

impl Element for Q8_0 {
    const BYTES: usize = 1;
    const HAS_SCALES: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        S::load_i8(from)
    }
}

/// Bytes of a row of values, and a sixteenth of those of a tile of keys.
#[inline(always)]
pub(super) const fn row_bytes<E: Element>(dim: usize) -> usize {
    if E::HAS_SCALES { dim / SCALED * (SCALED + 2) } else { E::BYTES * dim }
}

#[inline(always)]
unsafe fn scale_at(from: *const u8) -> f32 {
    f16::from_le_bytes(from.cast::<[u8; 2]>().read()).to_f32()
}

/// Scores of `R` queries `[R, dim]` with `T` tiles, into rows of `stride`.
///
/// # Safety
/// There must be so many tiles, and the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn score<S: Simd, E: Element, const R: usize, const T: usize>(
    queries: &[f32],
    dim: usize,
    keys: *const u8,
    scores: &mut [f32],
    stride: usize,
) {
    let queries: [*const f32; R] = std::array::from_fn(|r| queries[r * dim..][..dim].as_ptr());
    assert!(scores.len() >= (R - 1) * stride + T * TILE, "room for the scores");
    let scores = scores.as_mut_ptr();
    let tiles: [*const u8; T] = std::array::from_fn(|t| keys.add(t * TILE * row_bytes::<E>(dim)));
    for part in 0..TILE / S::LANES {
        let lane = part * S::LANES;
        let mut sums = [[S::splat(0.0); T]; R];
        if E::HAS_SCALES {
            for block in 0..dim / SCALED {
                let start = block * (SCALED + 2) * TILE;
                let mut own = [[S::splat(0.0); T]; R];
                for d in 0..SCALED {
                    let at = start + d * TILE + lane;
                    add_products::<S, E, R, T>(&mut own, &queries, block * SCALED + d, &tiles, at);
                }
                let at = start + SCALED * TILE + 2 * lane;
                let scales: [S::F; T] = std::array::from_fn(|t| S::load_f16(tiles[t].add(at)));
                for (sums, own) in sums.iter_mut().zip(&own) {
                    for ((sum, &own), &scale) in sums.iter_mut().zip(own).zip(&scales) {
                        *sum = S::mul_add(own, scale, *sum);
                    }
                }
            }
        } else {
            for d in 0..dim {
                let at = (d * TILE + lane) * E::BYTES;
                add_products::<S, E, R, T>(&mut sums, &queries, d, &tiles, at);
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (t, &sum) in sums.iter().enumerate() {
                S::store_f32(scores.add(r * stride + t * TILE + lane), sum);
            }
        }
    }
}

#[inline(always)]
unsafe fn add_products<S: Simd, E: Element, const R: usize, const T: usize>(
    sums: &mut [[S::F; T]; R],
    queries: &[*const f32; R],
    d: usize,
    tiles: &[*const u8; T],
    at: usize,
) {
    let keys: [S::F; T] = std::array::from_fn(|t| E::load::<S>(tiles[t].add(at)));
    for (sums, query) in sums.iter_mut().zip(queries) {
        let query = S::splat(*query.add(d));
        for (sum, &key) in sums.iter_mut().zip(&keys) {
            *sum = S::mul_add(query, key, *sum);
        }
    }
}

/// Weights of some positions, and their values.
#[derive(Clone, Copy)]
pub(super) struct Weighted<'a> {
    /// Rows of weights, `stride` apart.
    pub(super) weights: &'a [f32],
    pub(super) stride: usize,
    pub(super) count: usize,
    /// Rows of values.
    pub(super) values: *const u8,
    pub(super) dim: usize,
}

/// Adds to each of the `R` rows of `sums` the values, weighted by that row's weights.
///
/// # Safety
/// There must be so many rows of values, and the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd, E: Element, const R: usize>(
    input: Weighted<'_>,
    sums: [&mut [f32]; R],
) {
    assert!(input.weights.len() >= (R - 1) * input.stride + input.count, "rows of weights");
    let sums: [*mut f32; R] = sums.map(|sums| sums[..input.dim].as_mut_ptr());
    let mut first = 0;
    while first < input.dim {
        let left = (input.dim - first) / S::LANES;
        // Vectors that share a load of the weight must share a scale, too.
        if S::VALUE_VECTORS == 4 && !E::HAS_SCALES && left >= 4 {
            weigh_vectors::<S, E, R, 4>(input, &sums, first);
            first += 4 * S::LANES;
        } else if S::VALUE_VECTORS >= 2 && left >= 2 {
            weigh_vectors::<S, E, R, 2>(input, &sums, first);
            first += 2 * S::LANES;
        } else {
            weigh_vectors::<S, E, R, 1>(input, &sums, first);
            first += S::LANES;
        }
    }
}

#[inline(always)]
unsafe fn weigh_vectors<S: Simd, E: Element, const R: usize, const V: usize>(
    Weighted { weights, stride, count, values, dim }: Weighted<'_>,
    sums: &[*mut f32; R],
    first: usize,
) {
    let weights = weights.as_ptr();
    let mut totals: [[S::F; V]; R] = std::array::from_fn(|r| {
        std::array::from_fn(|v| S::load_f32(sums[r].add(first + v * S::LANES)))
    });
    let block = first / SCALED * (SCALED + 2);
    let start = if E::HAS_SCALES { block + first % SCALED } else { first * E::BYTES };
    for position in 0..count {
        let row = values.add(position * row_bytes::<E>(dim));
        let values: [S::F; V] =
            std::array::from_fn(|v| E::load::<S>(row.add(start + v * S::LANES * E::BYTES)));
        let scale = if E::HAS_SCALES { scale_at(row.add(block + SCALED)) } else { 1.0 };
        for (r, totals) in totals.iter_mut().enumerate() {
            let weight = *weights.add(r * stride + position);
            let weight = S::splat(if E::HAS_SCALES { weight * scale } else { weight });
            for (total, &value) in totals.iter_mut().zip(&values) {
                *total = S::mul_add(weight, value, *total);
            }
        }
    }
    for (sums, totals) in sums.iter().zip(&totals) {
        for (v, &total) in totals.iter().enumerate() {
            S::store_f32(sums.add(first + v * S::LANES), total);
        }
    }
}

/// A tile of keys as F32.
///
/// # Safety
/// The tile must be there, and the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn expand_keys<S: Simd, E: Element>(
    keys: *const u8,
    dim: usize,
    out: &mut [f32],
) {
    let out = out[..dim * TILE].as_mut_ptr();
    for d in 0..dim {
        for part in 0..TILE / S::LANES {
            let lane = part * S::LANES;
            let value = if E::HAS_SCALES {
                let block = keys.add(d / SCALED * (SCALED + 2) * TILE);
                let scale = S::load_f16(block.add(SCALED * TILE + 2 * lane));
                S::mul(scale, E::load::<S>(block.add(d % SCALED * TILE + lane)))
            } else {
                E::load::<S>(keys.add((d * TILE + lane) * E::BYTES))
            };
            S::store_f32(out.add(d * TILE + lane), value);
        }
    }
}

/// A row of values as F32.
///
/// # Safety
/// The row must be there, and the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn expand_values<S: Simd, E: Element>(
    row: *const u8,
    dim: usize,
    out: &mut [f32],
) {
    let out = out[..dim].as_mut_ptr();
    for d in (0..dim).step_by(S::LANES) {
        let value = if E::HAS_SCALES {
            let block = row.add(d / SCALED * (SCALED + 2));
            let scale = S::splat(scale_at(block.add(SCALED)));
            S::mul(scale, E::load::<S>(block.add(d % SCALED)))
        } else {
            E::load::<S>(row.add(d * E::BYTES))
        };
        S::store_f32(out.add(d), value);
    }
}
