//! Attention on the processor, over keys in tiles of 16 positions.
//!
//! Scores of 16 positions are one vector, so a query's element is multiplied by a whole vector and
//! nothing is ever summed across one. Softmax is computed block by block with a running maximum, so
//! the scores of a block are all that is ever held.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, bail};

use crate::model::kv_cache::TILE;
use crate::model::ops::f32_slice;
use crate::model::par;

/// Positions of a block in prefill.
const BLOCK: usize = 4 * TILE;
/// Positions of a block in decode, at most.
const MAX_DECODE_BLOCK: usize = 4 * BLOCK;
/// Tokens of a job in prefill.
const JOB_TOKENS: usize = 16;
/// Rows that the kernels of prefill take at once.
const ROWS: usize = 4;

/// [`super::causal_attention`] over the first `context` positions.
pub(super) struct TiledAttention {
    pub(super) context: usize,
}

/// One layer's cache as slices.
#[derive(Clone, Copy)]
struct Cache<'a> {
    /// `[kv_heads, tiles, head_dim, 16]`.
    keys: &'a [f32],
    /// `[kv_heads, capacity, head_dim]`.
    values: &'a [f32],
    tiles: usize,
    capacity: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl<'a> Cache<'a> {
    /// Tile number `tile` of a head, `[head_dim, 16]`.
    fn tile(&self, head: usize, tile: usize) -> &'a [f32] {
        let size = self.head_dim * TILE;
        &self.keys[(head * self.tiles + tile) * size..][..size]
    }

    /// The values of `count` positions of a head.
    fn values(&self, head: usize, first: usize, count: usize) -> &'a [f32] {
        let start = (head * self.capacity + first) * self.head_dim;
        &self.values[start..][..count * self.head_dim]
    }
}

impl CustomOp3 for TiledAttention {
    fn name(&self) -> &'static str {
        "arc-tiled-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        keys: &CpuStorage,
        keys_layout: &Layout,
        values: &CpuStorage,
        values_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (tokens, heads, head_dim) = q_layout.shape().dims3()?;
        let (kv_heads, tiles, key_dim, _) = keys_layout.shape().dims4()?;
        let (value_heads, capacity, value_dim) = values_layout.shape().dims3()?;
        if (key_dim, value_dim, value_heads) != (head_dim, head_dim, kv_heads)
            || !heads.is_multiple_of(kv_heads)
            || self.context > capacity.min(tiles * TILE)
            || tokens > self.context
        {
            bail!(
                "queries {:?}, keys {:?} and values {:?} do not fit",
                q_layout.dims(),
                keys_layout.dims(),
                values_layout.dims()
            );
        }
        let cache = Cache {
            keys: f32_slice(keys, keys_layout)?,
            values: f32_slice(values, values_layout)?,
            tiles,
            capacity,
            kv_heads,
            head_dim,
        };
        let scale = 1.0 / (head_dim as f32).sqrt();
        let q: Vec<f32> = f32_slice(q, q_layout)?.iter().map(|value| value * scale).collect();
        let mut out = vec![0f32; q.len()];
        if tokens == 1 {
            decode(&q, &cache, self.context, &mut out);
        } else {
            prefill(&q, tokens, &cache, self.context, &mut out);
        }
        Ok((CpuStorage::F32(out), Shape::from((tokens, heads * head_dim))))
    }
}

/// Each job takes a block of positions of one key head; the results are merged afterwards. Blocks
/// depend on the context alone, so any number of threads gives the same bits.
fn decode(q: &[f32], cache: &Cache, context: usize, out: &mut [f32]) {
    let head_dim = cache.head_dim;
    let group_width = q.len() / cache.kv_heads;
    let block = if context <= 8 * BLOCK { BLOCK } else { MAX_DECODE_BLOCK };
    let blocks = context.div_ceil(block);
    // For each query of the group: the weighted sum of values, the maximum, the sum of weights.
    let partial = head_dim + 2;
    let job = group_width / head_dim * partial;
    let mut partials = vec![0f32; cache.kv_heads * blocks * job];
    par::for_each_chunk(&mut partials, job, q.len() * context, |index, results| {
        let (head, first) = (index / blocks, index % blocks * block);
        let count = block.min(context - first);
        let mut scores = [0f32; MAX_DECODE_BLOCK];
        let queries = q[head * group_width..][..group_width].chunks_exact(head_dim);
        for (query, result) in queries.zip(results.chunks_exact_mut(partial)) {
            let (sum, rest) = result.split_at_mut(head_dim);
            score_block::<1>(query, cache, head, first, count, &mut scores, MAX_DECODE_BLOCK);
            let scores = &mut scores[..count];
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores.iter_mut().for_each(|score| *score = par::exp(*score - max));
            rest[0] = max;
            rest[1] = scores.iter().sum();
            let values = cache.values(head, first, count);
            if head_dim.is_multiple_of(64) {
                weigh_values::<1, 64>(scores, count, values, sum, head_dim);
            } else {
                weigh_values::<1, 16>(scores, count, values, sum, head_dim);
            }
        }
    });
    for (index, out) in out.chunks_exact_mut(head_dim).enumerate() {
        let head = index * head_dim / group_width;
        let query = index * head_dim % group_width / head_dim;
        let of = |block: usize| {
            let start = (head * blocks + block) * job + query * partial;
            partials[start..][..partial].split_at(head_dim)
        };
        let max = (0..blocks).map(|block| of(block).1[0]).fold(f32::NEG_INFINITY, f32::max);
        let mut total = 0.0;
        for block in 0..blocks {
            let (sum, rest) = of(block);
            let weight = par::exp(rest[0] - max);
            total = par::mul_add(weight, rest[1], total);
            for (out, &value) in out.iter_mut().zip(sum) {
                *out = par::mul_add(weight, value, *out);
            }
        }
        let inverse = total.recip();
        out.iter_mut().for_each(|value| *value *= inverse);
    }
}

/// Each job takes some tokens, all heads, and walks the blocks of positions that they see.
fn prefill(q: &[f32], tokens: usize, cache: &Cache, context: usize, out: &mut [f32]) {
    let head_dim = cache.head_dim;
    let row = q.len() / tokens;
    let width = row / cache.kv_heads;
    let group = width / head_dim;
    let past = context - tokens;
    par::for_each_chunk(out, JOB_TOKENS * row, q.len() * context, |index, out| {
        let first_token = index * JOB_TOKENS;
        let tokens = out.len() / row;
        let q = &q[first_token * row..][..out.len()];
        // Rows are (token, query of the group), filled up to a multiple of the kernels' height.
        let rows = tokens * group;
        let padded = rows.next_multiple_of(ROWS);
        let mut queries = vec![0f32; padded * head_dim];
        let mut scores = vec![0f32; padded * BLOCK];
        let mut sums = vec![0f32; padded * head_dim];
        let mut softmax = vec![(f32::NEG_INFINITY, 0f32); rows];
        let seen_by_last = past + first_token + tokens;
        for head in 0..cache.kv_heads {
            for (token, queries) in queries.chunks_exact_mut(width).take(tokens).enumerate() {
                queries.copy_from_slice(&q[token * row + head * width..][..width]);
            }
            sums.fill(0.0);
            softmax.fill((f32::NEG_INFINITY, 0.0));
            for first in (0..seen_by_last).step_by(BLOCK) {
                let count = BLOCK.min(seen_by_last - first);
                let chunks = queries.chunks_exact(ROWS * head_dim);
                for (queries, scores) in chunks.zip(scores.chunks_exact_mut(ROWS * BLOCK)) {
                    score_block::<ROWS>(queries, cache, head, first, count, scores, BLOCK);
                }
                for (r, state) in softmax.iter_mut().enumerate() {
                    let seen = (past + first_token + r / group + 1).saturating_sub(first);
                    let scores = &mut scores[r * BLOCK..][..BLOCK];
                    let sum = &mut sums[r * head_dim..][..head_dim];
                    update_softmax(scores, seen.min(count), state, sum);
                }
                let values = cache.values(head, first, count);
                let chunks = scores.chunks_exact(ROWS * BLOCK);
                for (weights, sums) in chunks.zip(sums.chunks_exact_mut(ROWS * head_dim)) {
                    weigh_values::<ROWS, 16>(weights, count, values, sums, head_dim);
                }
            }
            for (r, &(_, total)) in softmax.iter().enumerate() {
                let (token, query) = (r / group, r % group);
                let out = &mut out[token * row + head * width + query * head_dim..][..head_dim];
                let inverse = total.recip();
                for (out, &sum) in out.iter_mut().zip(&sums[r * head_dim..]) {
                    *out = sum * inverse;
                }
            }
        }
    });
}

/// Turns the first `seen` scores of a block into weights relative to the running maximum, the rest
/// into 0, and rescales what was summed under the older maximum.
fn update_softmax(scores: &mut [f32], seen: usize, state: &mut (f32, f32), sum: &mut [f32]) {
    let (visible, hidden) = scores.split_at_mut(seen);
    hidden.fill(0.0);
    if visible.is_empty() {
        return;
    }
    let (old, total) = *state;
    let max = visible.iter().copied().fold(old, f32::max);
    if max > old {
        let rescale = par::exp(old - max);
        state.1 = total * rescale;
        sum.iter_mut().for_each(|value| *value *= rescale);
        state.0 = max;
    }
    visible.iter_mut().for_each(|score| *score = par::exp(*score - max));
    state.1 += visible.iter().sum::<f32>();
}

/// Scores of `R` queries `[R, head_dim]` over `count` positions from `first` on, a multiple of 16,
/// into rows of `stride`. The last tile is scored whole, whatever its unfilled positions hold.
fn score_block<const R: usize>(
    queries: &[f32],
    cache: &Cache,
    head: usize,
    first: usize,
    count: usize,
    scores: &mut [f32],
    stride: usize,
) {
    let (mut tile, last) = (first / TILE, (first + count).div_ceil(TILE));
    let mut at = 0;
    while tile < last {
        // Four sums of 16 in flight either way: more of them leave the registers, which made this
        // eight times slower.
        if R == 1 && last - tile >= 4 {
            let tiles = [0, 1, 2, 3].map(|next| cache.tile(head, tile + next));
            score_tiles::<R, 4>(queries, tiles, cache.head_dim, &mut scores[at..], stride);
            tile += 4;
            at += 4 * TILE;
        } else {
            let tiles = [cache.tile(head, tile)];
            score_tiles::<R, 1>(queries, tiles, cache.head_dim, &mut scores[at..], stride);
            tile += 1;
            at += TILE;
        }
    }
}

#[inline(always)]
fn score_tiles<const R: usize, const T: usize>(
    queries: &[f32],
    tiles: [&[f32]; T],
    head_dim: usize,
    scores: &mut [f32],
    stride: usize,
) {
    let mut sums = [[[0f32; TILE]; T]; R];
    let rows: [&[f32]; R] = std::array::from_fn(|r| &queries[r * head_dim..][..head_dim]);
    let tiles: [&[[f32; TILE]]; T] = tiles.map(|tile| &tile.as_chunks::<TILE>().0[..head_dim]);
    for d in 0..head_dim {
        for (sums, row) in sums.iter_mut().zip(&rows) {
            for (sums, tile) in sums.iter_mut().zip(&tiles) {
                for (sum, &key) in sums.iter_mut().zip(&tile[d]) {
                    *sum = par::mul_add(row[d], key, *sum);
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (t, sums) in sums.iter().enumerate() {
            scores[r * stride + t * TILE..][..TILE].copy_from_slice(sums);
        }
    }
}

/// Adds to `sums` `[R, head_dim]` the first `count` rows of `values`, weighted by each row of
/// `weights` `[R, stride]`, where the stride is the length over `R`. `L` lanes at a time.
fn weigh_values<const R: usize, const L: usize>(
    weights: &[f32],
    count: usize,
    values: &[f32],
    sums: &mut [f32],
    head_dim: usize,
) {
    let stride = weights.len() / R;
    let weights: [&[f32]; R] = std::array::from_fn(|r| &weights[r * stride..][..count]);
    for lane in (0..head_dim).step_by(L) {
        let mut sum = [[0f32; L]; R];
        for position in 0..count {
            let values: &[f32; L] =
                values[position * head_dim + lane..].first_chunk().expect("whole rows of lanes");
            for (sum, weights) in sum.iter_mut().zip(&weights) {
                for (sum, &value) in sum.iter_mut().zip(values) {
                    *sum = par::mul_add(weights[position], value, *sum);
                }
            }
        }
        for (r, sum) in sum.iter().enumerate() {
            for (total, &sum) in sums[r * head_dim + lane..].iter_mut().zip(sum) {
                *total += sum;
            }
        }
    }
}
