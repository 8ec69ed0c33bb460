//! Attention of many tokens: some tokens and one key head at a time, over the blocks of positions
//! that they see.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use super::softmax::{exp_of, greatest, weights_of};
use super::tiles::{
    self, Element, F16, F32, Q8_0, Weighted, expand_keys, expand_values, row_bytes,
};
use super::{BLOCK, Heads};
use crate::model::kv_cache::{KvType, LayerKv, TILE};
use crate::model::par::Share;
use crate::model::simd::{Kernel, Simd, bend};

/// Rows that the kernels take at once.
const ROWS: usize = 4;

/// Some tokens of a sequence and the queries of one key head.
pub(super) struct Tokens<'a> {
    pub(super) heads: Heads,
    pub(super) kv: LayerKv<'a>,
    pub(super) head: usize,
    /// Positions before the first token.
    pub(super) past: usize,
    pub(super) tokens: usize,
    /// The tokens' rows of queries, of all heads.
    pub(super) queries: &'a [f32],
    pub(super) out: Share<'a, f32>,
    /// The first token's row of `out`.
    pub(super) row: usize,
    pub(super) stride: usize,
}

impl Kernel for Tokens<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        match self.kv.kv_type {
            KvType::F32 => self.over::<S, F32>(),
            KvType::F16 => self.over::<S, F16>(),
            KvType::Q8_0 => self.over::<S, Q8_0>(),
        }
    }
}

impl Tokens<'_> {
    #[inline(always)]
    unsafe fn over<S: Simd, E: Element>(self) {
        let Heads { head_dim, dim, .. } = self.heads;
        let group = self.heads.group();
        // Rows are (token, query of the group), filled up to a multiple of the kernels' height.
        let rows = self.tokens * group;
        let padded = rows.next_multiple_of(ROWS);
        let mut queries = vec![0f32; padded * dim];
        for (token, to) in queries.chunks_exact_mut(group * dim).take(self.tokens).enumerate() {
            let from = token * self.heads.query_row() + self.head * group * dim;
            to.copy_from_slice(&self.queries[from..][..group * dim]);
        }
        let mut scores = [0f32; ROWS * BLOCK];
        let mut sums = vec![0f32; padded * dim];
        let mut state = vec![(f32::NEG_INFINITY, 0f32); padded];
        let (mut keys, mut values) = (vec![0f32; BLOCK * dim], vec![0f32; BLOCK * dim]);
        let seen_by_last = self.past + self.tokens;
        let start = self.heads.first_seen(self.past) / BLOCK * BLOCK;
        for first in (start..seen_by_last).step_by(BLOCK) {
            let count = BLOCK.min(seen_by_last - first);
            let block_tiles = count.div_ceil(TILE);
            let from = self.kv.keys(self.head, first / TILE, block_tiles);
            let from = from.chunks_exact(row_bytes::<E>(dim) * TILE);
            for (tile, to) in from.zip(keys.chunks_exact_mut(TILE * dim)) {
                expand_keys::<S, E>(tile.as_ptr(), dim, to);
            }
            let from = self.kv.values(self.head, first, count);
            let from = from.chunks_exact(row_bytes::<E>(dim));
            for (row, to) in from.zip(values.chunks_exact_mut(dim)) {
                expand_values::<S, E>(row.as_ptr(), dim, to);
            }
            for r in (0..padded).step_by(ROWS) {
                let queries = &queries[r * dim..][..ROWS * dim];
                score_block::<S>(queries, dim, &keys, block_tiles, &mut scores);
                for (index, scores) in scores.chunks_exact_mut(BLOCK).enumerate() {
                    let token = ((r + index) / group).min(self.tokens - 1);
                    let position = self.past + token;
                    let seen = (position + 1).saturating_sub(first).min(count);
                    let hidden = self.heads.first_seen(position).saturating_sub(first).min(seen);
                    bend::<S>(scores, self.heads.cap);
                    let sum = &mut sums[(r + index) * dim..][..dim];
                    update_softmax::<S>(scores, hidden..seen, &mut state[r + index], sum);
                }
                let mut sums = sums[r * dim..][..ROWS * dim].chunks_exact_mut(dim);
                let sums = std::array::from_fn(|_| sums.next().expect("ROWS rows"));
                let (weights, values) = (&scores[..], values.as_ptr().cast());
                let input = Weighted { weights, stride: BLOCK, count, values, dim };
                tiles::weigh::<S, F32, ROWS>(input, sums);
            }
        }
        for (r, &(_, total)) in state.iter().enumerate().take(rows) {
            let (token, query) = (r / group, r % group);
            let start = (self.row + token) * self.stride + (self.head * group + query) * head_dim;
            let out = self.out.part(start..start + head_dim);
            let inverse = total.recip();
            for (out, &sum) in out.iter_mut().zip(&sums[r * dim..]) {
                *out = sum * inverse;
            }
        }
    }
}

/// Scores of four queries with the tiles of a block, in F32.
#[inline(always)]
unsafe fn score_block<S: Simd>(
    queries: &[f32],
    dim: usize,
    keys: &[f32],
    block_tiles: usize,
    scores: &mut [f32],
) {
    let mut tile = 0;
    while tile < block_tiles {
        let keys = keys[tile * TILE * dim..].as_ptr().cast();
        let scores = &mut scores[tile * TILE..];
        // As many sums as half of the registers hold.
        if S::LANES == 16 && block_tiles - tile >= 4 {
            tiles::score::<S, F32, ROWS, 4>(queries, dim, keys, scores, BLOCK);
            tile += 4;
        } else if block_tiles - tile >= 2 {
            tiles::score::<S, F32, ROWS, 2>(queries, dim, keys, scores, BLOCK);
            tile += 2;
        } else {
            tiles::score::<S, F32, ROWS, 1>(queries, dim, keys, scores, BLOCK);
            tile += 1;
        }
    }
}

/// Turns the scores of the positions of a block that are `seen` into weights relative to the running maximum, the rest
/// into 0, and rescales what was summed under the older maximum.
#[inline(always)]
unsafe fn update_softmax<S: Simd>(
    scores: &mut [f32],
    seen: std::ops::Range<usize>,
    state: &mut (f32, f32),
    sum: &mut [f32],
) {
    if seen.is_empty() {
        scores.fill(0.0);
        return;
    }
    let whole = seen.end.next_multiple_of(TILE);
    scores[whole..].fill(0.0);
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..whole].fill(f32::NEG_INFINITY);
    let (old, total) = *state;
    let max = greatest::<S>(&scores[..whole], old);
    if max > old {
        let rescale = exp_of::<S>(old - max);
        state.1 = total * rescale;
        sum.iter_mut().for_each(|value| *value *= rescale);
        state.0 = max;
    }
    state.1 += weights_of::<S>(&mut scores[..whole], max);
    scores[..seen.start].fill(0.0);
    scores[seen.end..whole].fill(0.0);
}
