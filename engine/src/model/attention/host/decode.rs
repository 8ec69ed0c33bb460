//! Attention of one token: blocks of positions, each on its own, merged afterwards.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use super::softmax::{exp_of, greatest, weights_of};
use super::tiles::{Element, F16, F32, Q8_0, Weighted, row_bytes, score, weigh};
use super::{Heads, MAX_DECODE_BLOCK};
use crate::model::kv_cache::{KvType, LayerKv, TILE};
use crate::model::simd::{Kernel, Kernels, Simd, bend, dispatch};

/// Elements of the partial result of one query and one block: the weighted sum of values, then the
/// greatest score and the sum of weights.
pub(super) fn partial(heads: &Heads) -> usize {
    heads.dim + TILE
}

/// The queries of one key head over one block of positions.
pub(super) struct Block<'a> {
    pub(super) heads: Heads,
    pub(super) kv: LayerKv<'a>,
    pub(super) head: usize,
    pub(super) first: usize,
    pub(super) count: usize,
    /// Positions at the start of the block that lie before the window.
    pub(super) hidden: usize,
    pub(super) queries: &'a [f32],
    /// A partial result for each query.
    pub(super) out: &'a mut [f32],
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        match self.kv.kv_type {
            KvType::F32 => self.over::<S, F32>(),
            KvType::F16 => self.over::<S, F16>(),
            KvType::Q8_0 => self.over::<S, Q8_0>(),
        }
    }
}

impl Block<'_> {
    #[inline(always)]
    unsafe fn over<S: Simd, E: Element>(&mut self) {
        let (group, mut query) = (self.heads.group(), 0);
        while query < group {
            query += match group - query {
                1 => self.queries::<S, E, 1, 4>(query),
                2 => self.queries::<S, E, 2, 2>(query),
                3 => self.queries::<S, E, 3, 2>(query),
                _ => self.queries::<S, E, 4, 2>(query),
            };
        }
    }

    /// `R` queries from `query` on, scored with `T` tiles at a time. Returns `R`.
    #[inline(always)]
    unsafe fn queries<S: Simd, E: Element, const R: usize, const T: usize>(
        &mut self,
        query: usize,
    ) -> usize {
        let (dim, count) = (self.heads.dim, self.count);
        let queries = &self.queries[query * dim..][..R * dim];
        // The last tile is scored whole, whatever its unfilled positions hold.
        let tiles = count.div_ceil(TILE);
        let keys = self.kv.keys(self.head, self.first / TILE, tiles).as_ptr();
        let tile_bytes = row_bytes::<E>(dim) * TILE;
        let mut scores = [[0f32; MAX_DECODE_BLOCK]; R];
        let (flat, stride) = (scores.as_flattened_mut(), MAX_DECODE_BLOCK);
        let mut tile = 0;
        while tiles - tile >= T {
            let keys = keys.add(tile * tile_bytes);
            score::<S, E, R, T>(queries, dim, keys, &mut flat[tile * TILE..], stride);
            tile += T;
        }
        while tile < tiles {
            let keys = keys.add(tile * tile_bytes);
            score::<S, E, R, 1>(queries, dim, keys, &mut flat[tile * TILE..], stride);
            tile += 1;
        }
        let partial = partial(&self.heads);
        let mut outs = self.out[query * partial..][..R * partial].chunks_exact_mut(partial);
        let outs: [&mut [f32]; R] = std::array::from_fn(|_| outs.next().expect("R partials"));
        for (scores, out) in scores.iter_mut().zip(outs) {
            let scores = &mut scores[..tiles * TILE];
            bend::<S>(scores, self.heads.cap);
            scores[..self.hidden].fill(f32::NEG_INFINITY);
            scores[count..].fill(f32::NEG_INFINITY);
            let max = greatest::<S>(scores, f32::NEG_INFINITY);
            out[dim] = max;
            out[dim + 1] = weights_of::<S>(scores, max);
        }
        let values = self.kv.values(self.head, self.first, count).as_ptr();
        let weights = scores.as_flattened();
        let mut outs = self.out[query * partial..][..R * partial].chunks_exact_mut(partial);
        let sums = std::array::from_fn(|_| {
            let sums = &mut outs.next().expect("R partials")[..dim];
            sums.fill(0.0);
            sums
        });
        weigh::<S, E, R>(Weighted { weights, stride, count, values, dim }, sums);
        R
    }
}

/// Merges the partial results of one query over all blocks.
pub(super) fn merge<'a>(
    kernels: Kernels,
    blocks: impl Iterator<Item = &'a [f32]> + Clone,
    out: &mut [f32],
) {
    dispatch(kernels, Merge { blocks, out });
}

struct Merge<'a, I> {
    blocks: I,
    out: &'a mut [f32],
}

impl<'a, I: Iterator<Item = &'a [f32]> + Clone> Kernel for Merge<'_, I> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { blocks, out } = self;
        let state = |block: &[f32]| (block[block.len() - TILE], block[block.len() - TILE + 1]);
        let max = blocks.clone().map(|block| state(block).0).fold(f32::NEG_INFINITY, f32::max);
        out.fill(0.0);
        let mut total = 0.0;
        for block in blocks {
            let (own, sum) = state(block);
            let weight = exp_of::<S>(own - max);
            total += weight * sum;
            for (out, &value) in out.iter_mut().zip(block) {
                *out += weight * value;
            }
        }
        let inverse = total.recip();
        out.iter_mut().for_each(|value| *value *= inverse);
    }
}
