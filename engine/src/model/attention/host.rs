//! Attention on the processor, in one pass over keys and values as the cache has them.
//!
//! Scores of 16 positions are a vector, so a query's element is multiplied by a whole vector and
//! nothing is ever summed across one. Softmax is computed block by block with a running maximum, so
//! the scores of a block are all that is ever held. Blocks depend on the context alone, so any number
//! of threads gives the same bits.

use std::ops::Range;

use crate::model::kv_cache::{LayerKv, TILE};
use crate::model::par::Share;
use crate::model::simd::{Kernels, dispatch};

mod decode;
mod prefill;
mod softmax;
mod tiles;

/// Positions of a block in prefill, and in decode at short contexts.
const BLOCK: usize = 64;
/// Positions of a block in decode, at most.
const MAX_DECODE_BLOCK: usize = 4 * BLOCK;
/// Tokens of a job in prefill.
const JOB_TOKENS: usize = 16;

/// What the attention of one model looks like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model) struct Heads {
    pub(in crate::model) heads: usize,
    pub(in crate::model) kv_heads: usize,
    pub(in crate::model) head_dim: usize,
    /// A head's elements in queries and cache, filled up with zeros.
    pub(in crate::model) dim: usize,
    /// Positions that a token sees, its own included; `usize::MAX` is all.
    pub(in crate::model) window: usize,
    /// Scores are bent to stay between `-cap` and `cap`; 0 is no cap.
    pub(in crate::model) cap: f32,
}

impl Heads {
    /// Query heads for each key head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The first position that the token at `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    /// Elements of a row of queries.
    pub(in crate::model) fn query_row(&self) -> usize {
        self.heads * self.dim
    }
}

/// Rows of one segment.
#[derive(Debug)]
pub(in crate::model) struct SegmentRows {
    pub(in crate::model) index: usize,
    pub(in crate::model) rows: Range<usize>,
}

/// Some rows of queries: the positions at the end of one sequence.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// First of its rows among all.
    row: usize,
    rows: usize,
    /// Positions that the last of them sees.
    context: usize,
    /// In decode, where the first block begins.
    first: usize,
    /// Elements of the partial results before its own.
    partials: usize,
}

/// How the attention of all segments is cut into jobs. The same for every layer.
#[derive(Debug)]
pub(in crate::model) struct Plan {
    heads: Heads,
    segments: Vec<Segment>,
    jobs: Vec<Job>,
    partials: usize,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    segment: usize,
    head: usize,
    /// The block of positions in decode, that of tokens in prefill.
    block: usize,
}

/// Positions of a block in decode, of so many that are seen.
fn decode_block(span: usize) -> usize {
    if span <= 8 * BLOCK { BLOCK } else { MAX_DECODE_BLOCK }
}

impl Plan {
    /// Plans for segments of so many rows each, with so many positions before.
    pub(in crate::model) fn new(
        heads: Heads,
        sequences: impl Iterator<Item = (usize, usize)>,
    ) -> Self {
        let mut plan = Self { heads, segments: Vec::new(), jobs: Vec::new(), partials: 0 };
        let mut row = 0;
        for (rows, past) in sequences {
            let context = past + rows;
            let segment = plan.segments.len();
            let first = heads.first_seen(past) / TILE * TILE;
            let blocks = if rows == 1 {
                (context - first).div_ceil(decode_block(context - first))
            } else {
                rows.div_ceil(JOB_TOKENS)
            };
            let jobs = (0..heads.kv_heads)
                .flat_map(|head| (0..blocks).map(move |block| Job { segment, head, block }));
            plan.jobs.extend(jobs);
            plan.segments.push(Segment { row, rows, context, first, partials: plan.partials });
            if rows == 1 {
                plan.partials += heads.heads * blocks * decode::partial(&heads);
            }
            row += rows;
        }
        plan
    }

    pub(in crate::model) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    pub(in crate::model) fn heads(&self) -> Heads {
        self.heads
    }

    /// The segment that a job belongs to.
    pub(in crate::model) fn segment_of(&self, job: usize) -> usize {
        self.jobs[job].segment
    }

    /// The last row of each segment.
    pub(in crate::model) fn last_rows(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().map(|segment| segment.row + segment.rows - 1)
    }

    /// Rows of a range, by the segments that they belong to.
    pub(in crate::model) fn segments_of(
        &self,
        rows: Range<usize>,
    ) -> impl Iterator<Item = SegmentRows> {
        self.segments.iter().enumerate().filter_map(move |(index, segment)| {
            let own = rows.start.max(segment.row)..rows.end.min(segment.row + segment.rows);
            (!own.is_empty()).then_some(SegmentRows { index, rows: own })
        })
    }

    /// Elements of the partial results that jobs write and [`Plan::finish`] reads.
    pub(in crate::model) fn partials(&self) -> usize {
        self.partials
    }

    /// Does a job, over its segment's cache. `queries` are rows of [`Heads::query_row`] elements,
    /// already scaled; `out` gets rows `stride` apart, but where a segment has one row, whose partial
    /// results are merged by [`Plan::finish`].
    ///
    /// # Safety
    /// Nobody else writes keys, values, queries, or what this job writes.
    pub(in crate::model) unsafe fn run(
        &self,
        kernels: Kernels,
        job: usize,
        kv: LayerKv<'_>,
        queries: &[f32],
        partials: &Share<'_, f32>,
        (out, stride): (&Share<'_, f32>, usize),
    ) {
        let job = self.jobs[job];
        let segment = self.segments[job.segment];
        let heads = self.heads;
        let width = heads.group() * heads.dim;
        if segment.rows == 1 {
            let span = segment.context - segment.first;
            let block = decode_block(span);
            let blocks = span.div_ceil(block);
            let size = heads.group() * decode::partial(&heads);
            let start = segment.partials + (job.head * blocks + job.block) * size;
            let first = segment.first + job.block * block;
            // SAFETY: jobs have partial results of their own, and nobody writes the cache, as the
            // caller vouches.
            unsafe {
                dispatch(
                    kernels,
                    decode::Block {
                        heads,
                        kv,
                        head: job.head,
                        first,
                        count: block.min(segment.context - first),
                        hidden: heads.first_seen(segment.context - 1).saturating_sub(first),
                        queries: &queries[segment.row * heads.query_row() + job.head * width..]
                            [..width],
                        out: partials.part(start..start + size),
                    },
                );
            }
        } else {
            let first = job.block * JOB_TOKENS;
            let tokens = JOB_TOKENS.min(segment.rows - first);
            let row = segment.row + first;
            let queries = &queries[row * heads.query_row()..][..tokens * heads.query_row()];
            dispatch(
                kernels,
                prefill::Tokens {
                    heads,
                    kv,
                    head: job.head,
                    past: segment.context - segment.rows + first,
                    tokens,
                    queries,
                    out: *out,
                    row,
                    stride,
                },
            );
        }
    }

    /// Merges the partial results of a segment of one row into that row, `out`; other segments need
    /// nothing.
    pub(in crate::model) fn finish(
        &self,
        kernels: Kernels,
        segment: usize,
        partials: &[f32],
        out: &mut [f32],
    ) {
        let (heads, segment) = (self.heads, &self.segments[segment]);
        if segment.rows != 1 {
            return;
        }
        let span = segment.context - segment.first;
        let blocks = span.div_ceil(decode_block(span));
        let partial = decode::partial(&heads);
        for (index, out) in out.chunks_exact_mut(heads.head_dim).take(heads.heads).enumerate() {
            let (head, query) = (index / heads.group(), index % heads.group());
            let start = segment.partials + (head * blocks * heads.group() + query) * partial;
            let step = heads.group() * partial;
            let blocks = (0..blocks).map(|block| &partials[start + block * step..][..partial]);
            decode::merge(kernels, blocks, out);
        }
    }
}

#[cfg(test)]
mod tests;
