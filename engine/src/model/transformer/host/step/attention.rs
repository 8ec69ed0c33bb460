//! The phases of attention: projections, rotation, scores, and what goes back to the hidden state.

use super::{GROUP, Layer, Shares, Step, SubLayer, attended_width, multiply, padded, qkv_width};
use crate::model::elementwise::{rms_norm_head, rotate};
use crate::model::linear::{QUANTISED, quantise};
use crate::model::par::part;

impl Step<'_> {
    pub(super) unsafe fn qkv(&self, shares: &Shares<'_>, layer: &Layer, item: usize) {
        let projections = [&layer.q, &layer.k, &layer.v];
        let groups = projections.iter().map(|projection| projection.weight.groups()).sum();
        let rows = self.rows.len();
        let range = part(groups, item, self.strip_items(groups, rows));
        // SAFETY: an item has groups of its own, and nobody writes the norm.
        unsafe {
            let stride = padded(self.config.hidden);
            let inputs = Self::inputs(shares, &shares.normed, stride, rows);
            let (mut before, width) = (0, qkv_width(self.config));
            for projection in projections {
                let count = projection.weight.groups();
                let own = range.start.clamp(before, before + count) - before
                    ..range.end.clamp(before, before + count) - before;
                multiply(projection, own, &inputs, &shares.qkv, (width, before * GROUP), false);
                before += count;
            }
        }
    }

    /// Rotates queries and keys; queries go where attention reads them, keys and values into the
    /// cache.
    pub(super) unsafe fn rotate(
        &self,
        shares: &Shares<'_>,
        layer: &Layer,
        index: usize,
        rows: std::ops::Range<usize>,
    ) {
        let (config, heads) = (self.config, self.plan(index).heads());
        let (dim, half) = (config.head_dim, config.rotated / 2);
        let scale = config.scales.attention;
        let rope = config.each_layer[index].rope.map(|rope| &self.model.ropes[rope]);
        let layout = config.rope_layout();
        let kernels = self.model.kernels;
        let width = qkv_width(self.config);
        for segment in self.plans[0].segments_of(rows.clone()) {
            let kv = self.kv[segment.index * config.layers + index];
            for row in segment.rows {
                let position = self.rows[row].1;
                // SAFETY: an item has rows of its own.
                let (all, queries) = unsafe {
                    let query_row = heads.query_row();
                    let queries = shares.queries.part(row * query_row..(row + 1) * query_row);
                    (shares.qkv.part(row * width..(row + 1) * width), queries)
                };
                let norm = |row: &mut [f32], weight: &Option<Vec<f32>>| {
                    if let Some(weight) = weight.as_ref().filter(|weight| weight.len() == row.len())
                    {
                        rms_norm_head(kernels, row, weight, config.rms_eps);
                    }
                };
                let turn = |head: &mut [f32], weight: &Option<Vec<f32>>| {
                    norm(head, weight);
                    if let Some((cos, sin)) = rope {
                        let at = position * half..(position + 1) * half;
                        rotate(layout, &mut head[..2 * half], &cos[at.clone()], &sin[at]);
                    }
                };
                let (q, rest) = all.split_at_mut(padded(heads.heads * dim));
                let (k, v) = rest.split_at_mut(padded(heads.kv_heads * dim));
                // One head is whole in itself.
                if heads.heads > 1 {
                    norm(&mut q[..heads.heads * dim], &layer.q_norm);
                }
                if heads.kv_heads > 1 {
                    norm(&mut k[..heads.kv_heads * dim], &layer.k_norm);
                }
                let from = q.chunks_exact_mut(dim).take(heads.heads);
                for (head, to) in from.zip(queries.chunks_exact_mut(heads.dim)) {
                    turn(head, &layer.q_norm);
                    for (to, &from) in to.iter_mut().zip(&*head) {
                        *to = from * scale;
                    }
                }
                let keys = k.chunks_exact_mut(dim).take(heads.kv_heads);
                for (head, (key, value)) in keys.zip(v.chunks_exact(dim)).enumerate() {
                    turn(key, &layer.k_norm);
                    // SAFETY: a position of a sequence is one row, which is this item's.
                    unsafe { kv.write(kernels, head, position, key, value) };
                }
            }
        }
    }

    pub(super) unsafe fn attend(&self, shares: &Shares<'_>, index: usize, item: usize) {
        let plan = self.plan(index);
        let kv = self.kv[plan.segment_of(item) * self.config.layers + index];
        let stride = padded(attended_width(self.config));
        // SAFETY: jobs write results of their own, and nobody writes queries and cache.
        unsafe {
            let queries = shares.queries.all();
            let (partials, out) = (&shares.partials, &shares.attended);
            plan.run(self.model.kernels, item, kv, queries, partials, (out, stride));
        }
    }

    pub(super) unsafe fn finish_attention(
        &self,
        shares: &Shares<'_>,
        layer: &Layer,
        index: usize,
        rows: std::ops::Range<usize>,
    ) {
        let width = attended_width(self.config);
        let stride = padded(width);
        let (kernels, plan) = (self.model.kernels, self.plan(index));
        for segment in plan.segments_of(rows) {
            for row in segment.rows {
                // SAFETY: an item has rows of its own, and nobody writes partial results.
                let (out, partials) = unsafe {
                    let out = shares.attended.part(row * stride..row * stride + width);
                    (out, shares.partials.all())
                };
                plan.finish(kernels, segment.index, partials, out);
                if layer.attention_output.weight.takes_bytes() {
                    let blocks = width / QUANTISED;
                    // SAFETY: as above.
                    let bytes = unsafe { shares.bytes.part(row * blocks..(row + 1) * blocks) };
                    quantise(kernels, out, bytes);
                }
            }
        }
    }

    pub(super) unsafe fn attention_output(&self, shares: &Shares<'_>, layer: &Layer, item: usize) {
        // SAFETY: an item has groups of its own.
        unsafe {
            let branches = layer.branches(self.config, SubLayer::Attention);
            self.add_to_hidden(shares, &layer.attention_output, &shares.attended, branches, item);
        };
    }
}
