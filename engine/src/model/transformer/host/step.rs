//! One forward as phases: what each does, on which buffers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{HostModel, Layer, Projection};
use crate::model::attention::host::{Heads, Plan};
use crate::model::config::ModelConfig;
use crate::model::elementwise::{rms_norm, rms_norm_head, rotate, silu_mul};
use crate::model::kv_cache::{HostKv, LayerKv};
use crate::model::linear::{GROUP, Inputs, Output, QUANTISED, Quantised, quantise};
use crate::model::par::{self, Share, part};

/// Groups of rows of a matrix that an item of prefill multiplies, so that the activations of some
/// rows are still in the nearest cache for the next group.
const STRIP: usize = 4;
/// Rows of activations from which the work is cut as in prefill.
const PREFILL_ROWS: usize = 16;

/// The phases of a layer, in order.
const PHASES: usize = 10;

/// What is computed, and for whom.
pub(super) struct Step<'a> {
    model: &'a HostModel,
    config: &'a ModelConfig,
    plan: Plan,
    /// Token and position of each row.
    rows: Vec<(u32, usize)>,
    /// The cache of each layer of each sequence: sequence-major.
    kv: Vec<LayerKv<'a>>,
    logits: Share<'a, f32>,
    /// Rows of logits; 0 where none are asked for.
    wanted: usize,
    /// The earliest place at which something was not finite: layer times 2, plus 1 after attention.
    trouble: AtomicUsize,
    threads: usize,
}

/// Where something stopped being finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Embeddings,
    Attention(usize),
    FeedForward(usize),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embeddings => write!(f, "it began in the embeddings"),
            Self::Attention(layer) => write!(f, "it began in the attention of layer {layer}"),
            Self::FeedForward(layer) => write!(f, "it began in the feed-forward of layer {layer}"),
        }
    }
}

/// The buffers of a forward; rows follow each other.
#[derive(Debug)]
pub(super) struct Buffers {
    hidden: Vec<f32>,
    normed: Vec<f32>,
    bytes: Vec<Quantised>,
    qkv: Vec<f32>,
    queries: Vec<f32>,
    partials: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

/// The buffers, as threads write them.
pub(super) struct Shares<'a> {
    hidden: Share<'a, f32>,
    normed: Share<'a, f32>,
    bytes: Share<'a, Quantised>,
    qkv: Share<'a, f32>,
    queries: Share<'a, f32>,
    partials: Share<'a, f32>,
    attended: Share<'a, f32>,
    gate: Share<'a, f32>,
    up: Share<'a, f32>,
}

impl Buffers {
    pub(super) fn share(&mut self) -> Shares<'_> {
        Shares {
            hidden: Share::new(&mut self.hidden),
            normed: Share::new(&mut self.normed),
            bytes: Share::new(&mut self.bytes),
            qkv: Share::new(&mut self.qkv),
            queries: Share::new(&mut self.queries),
            partials: Share::new(&mut self.partials),
            attended: Share::new(&mut self.attended),
            gate: Share::new(&mut self.gate),
            up: Share::new(&mut self.up),
        }
    }
}

/// Elements of a row of so many, filled up to whole groups.
fn padded(width: usize) -> usize {
    width.next_multiple_of(GROUP)
}

impl<'a> Step<'a> {
    /// A step of these tokens, of sequences with so many positions before.
    pub(super) fn new(
        model: &'a HostModel,
        config: &'a ModelConfig,
        heads: Heads,
        tokens: &[&[u32]],
        lens: &[usize],
        stores: &'a mut [&mut HostKv],
        logits: &'a mut [f32],
    ) -> Self {
        let lengths = tokens.iter().map(|tokens| tokens.len());
        let plan = Plan::new(heads, lengths.zip(lens.iter().copied()));
        let mut rows = Vec::with_capacity(tokens.iter().map(|tokens| tokens.len()).sum());
        for (tokens, &len) in tokens.iter().zip(lens) {
            rows.extend(tokens.iter().zip(len..).map(|(&token, position)| (token, position)));
        }
        let mut kv = Vec::with_capacity(stores.len() * config.layers);
        for store in stores {
            kv.extend(store.layers());
        }
        Self {
            model,
            config,
            plan,
            rows,
            kv,
            wanted: if logits.is_empty() { 0 } else { tokens.len() },
            logits: Share::new(logits),
            trouble: AtomicUsize::new(usize::MAX),
            threads: par::threads(),
        }
    }

    pub(super) fn buffers(&self) -> Buffers {
        let (rows, config) = (self.rows.len(), self.config);
        let (hidden, ffn) = (padded(config.hidden), padded(config.ffn));
        let heads = self.heads();
        let widest = config.hidden.max(config.ffn).max(self.attended_width());
        Buffers {
            hidden: vec![0.0; rows * hidden],
            normed: vec![0.0; rows * hidden],
            bytes: vec![Quantised::default(); rows * widest.div_ceil(QUANTISED)],
            qkv: vec![0.0; rows * self.qkv_width()],
            queries: vec![0.0; rows * heads.query_row()],
            partials: vec![0.0; self.plan.partials()],
            attended: vec![0.0; rows * padded(self.attended_width())],
            gate: vec![0.0; rows * ffn],
            up: vec![0.0; rows * ffn],
        }
    }

    fn heads(&self) -> Heads {
        self.plan.heads()
    }

    /// Elements of a row that attention gives.
    fn attended_width(&self) -> usize {
        self.config.heads * self.config.head_dim
    }

    /// Elements of a row of queries, keys and values, each filled up to whole groups.
    fn qkv_width(&self) -> usize {
        padded(self.attended_width()) + 2 * padded(self.config.kv_heads * self.config.head_dim)
    }

    /// Items that work on rows is cut into.
    fn row_items(&self, rows: usize) -> usize {
        rows.min(4 * self.threads)
    }

    /// Items that work on groups of rows of matrices is cut into.
    fn strip_items(&self, groups: usize, rows: usize) -> usize {
        let items = if rows < PREFILL_ROWS { 4 * self.threads } else { groups.div_ceil(STRIP) };
        items.min(groups)
    }

    /// Items of each phase.
    pub(super) fn phases(&self) -> Vec<usize> {
        let rows = self.rows.len();
        let mut phases = Vec::with_capacity(3 + PHASES * self.model.layers.len());
        let by_rows = self.row_items(rows);
        phases.push(by_rows);
        for layer in &self.model.layers {
            let strips = |groups: usize| self.strip_items(groups, rows);
            let groups = |projection: &Projection| projection.weight.groups();
            let qkv = groups(&layer.q) + groups(&layer.k) + groups(&layer.v);
            phases.extend([
                by_rows,
                strips(qkv),
                by_rows,
                self.plan.jobs(),
                by_rows,
                strips(groups(&layer.attention_output)),
                by_rows,
                strips(groups(&layer.gate)),
                by_rows,
                strips(groups(&layer.down)),
            ]);
        }
        if self.wanted > 0 {
            let output = self.model.output.as_ref().unwrap_or(&self.model.embeddings);
            phases.extend([1, self.strip_items(output.groups(), self.wanted)]);
        }
        phases
    }

    /// What was not finite first.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        match self.trouble.load(Ordering::Relaxed) {
            usize::MAX => None,
            0 => Some(Trouble::Embeddings),
            place if place % 2 == 1 => Some(Trouble::Attention(place / 2)),
            place => Some(Trouble::FeedForward(place / 2 - 1)),
        }
    }

    /// Does an item of a phase.
    ///
    /// # Safety
    /// Each item of each phase runs once, and none before all of the phases before are done.
    pub(super) unsafe fn run(&self, shares: &Shares<'_>, phase: usize, item: usize) {
        let (rows, layers) = (self.rows.len(), self.model.layers.len());
        let of_rows = part(rows, item, self.row_items(rows));
        let layer_of = |phase: usize| (phase / PHASES, phase % PHASES);
        // SAFETY: within a phase, items write rows or groups of their own, and read only what
        // earlier phases have written.
        unsafe {
            match phase.checked_sub(1).map(layer_of) {
                None => self.embed(shares, of_rows),
                Some((index, phase)) if index == layers => self.output(shares, phase, item),
                Some((index, phase)) => {
                    let layer = &self.model.layers[index];
                    match phase {
                        0 => self.norm(shares, of_rows, &layer.attention_norm, 2 * index, true),
                        1 => self.qkv(shares, layer, item),
                        2 => self.rotate(shares, layer, index, of_rows),
                        3 => self.attend(shares, index, item),
                        4 => self.finish_attention(shares, layer, of_rows),
                        5 => self.attention_output(shares, layer, item),
                        6 => self.norm(shares, of_rows, &layer.ffn_norm, 2 * index + 1, true),
                        7 => self.gate_up(shares, layer, item),
                        8 => self.quantise_gated(shares, layer, of_rows),
                        _ => self.down(shares, layer, item),
                    }
                }
            }
        }
    }

    unsafe fn embed(&self, shares: &Shares<'_>, rows: std::ops::Range<usize>) {
        let stride = padded(self.config.hidden);
        for row in rows {
            // SAFETY: an item has rows of its own.
            let out = unsafe { shares.hidden.part(row * stride..(row + 1) * stride) };
            self.model.embeddings.row(self.rows[row].0 as usize, out);
        }
    }

    /// The norm of rows of the hidden state, in floats and in bytes.
    unsafe fn norm(
        &self,
        shares: &Shares<'_>,
        rows: std::ops::Range<usize>,
        weight: &[f32],
        place: usize,
        bytes: bool,
    ) {
        for row in rows {
            // SAFETY: an item has rows of its own.
            unsafe { self.norm_row(shares, row, row, weight, place, bytes) };
        }
    }

    /// The norm of row `from` of the hidden state, as row `to`.
    unsafe fn norm_row(
        &self,
        shares: &Shares<'_>,
        from: usize,
        to: usize,
        weight: &[f32],
        place: usize,
        bytes: bool,
    ) {
        let (width, stride) = (self.config.hidden, padded(self.config.hidden));
        let (kernels, eps) = (self.model.kernels, self.config.rms_eps);
        // SAFETY: an item has rows of its own.
        let (x, out) = unsafe {
            let from = from * stride;
            (
                shares.hidden.read(from..from + width),
                shares.normed.part(to * stride..(to + 1) * stride),
            )
        };
        if !rms_norm(kernels, x, weight, eps, &mut out[..width]) {
            self.trouble.fetch_min(place, Ordering::Relaxed);
        }
        if bytes && width.is_multiple_of(QUANTISED) {
            let blocks = width / QUANTISED;
            // SAFETY: as above.
            let bytes = unsafe { shares.bytes.part(to * blocks..(to + 1) * blocks) };
            quantise(kernels, &out[..width], bytes);
        }
    }

    /// What `rows` rows of floats, and of bytes, are to a matrix.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    unsafe fn inputs<'s>(
        shares: &Shares<'s>,
        floats: &Share<'s, f32>,
        stride: usize,
        rows: usize,
    ) -> Inputs<'s> {
        // SAFETY: as the caller vouches.
        unsafe { Inputs { rows, floats: floats.all(), stride, bytes: shares.bytes.all() } }
    }

    unsafe fn qkv(&self, shares: &Shares<'_>, layer: &Layer, item: usize) {
        let projections = [&layer.q, &layer.k, &layer.v];
        let groups = projections.iter().map(|projection| projection.weight.groups()).sum();
        let rows = self.rows.len();
        let range = part(groups, item, self.strip_items(groups, rows));
        // SAFETY: an item has groups of its own, and nobody writes the norm.
        unsafe {
            let stride = padded(self.config.hidden);
            let inputs = Self::inputs(shares, &shares.normed, stride, rows);
            let (mut before, width) = (0, self.qkv_width());
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
    unsafe fn rotate(
        &self,
        shares: &Shares<'_>,
        layer: &Layer,
        index: usize,
        rows: std::ops::Range<usize>,
    ) {
        let (config, heads) = (self.config, self.heads());
        let (dim, half) = (config.head_dim, config.head_dim / 2);
        let scale = 1.0 / (dim as f32).sqrt();
        let layout = config.rope_layout();
        let kernels = self.model.kernels;
        let width = self.qkv_width();
        for segment in self.plan.segments_of(rows.clone()) {
            let kv = self.kv[segment.index * config.layers + index];
            for row in segment.rows {
                let position = self.rows[row].1;
                let cos = &self.model.cos[position * half..][..half];
                let sin = &self.model.sin[position * half..][..half];
                // SAFETY: an item has rows of its own.
                let (all, queries) = unsafe {
                    let query_row = heads.query_row();
                    let queries = shares.queries.part(row * query_row..(row + 1) * query_row);
                    (shares.qkv.part(row * width..(row + 1) * width), queries)
                };
                let turn = |head: &mut [f32], norm: &Option<Vec<f32>>| {
                    if let Some(weight) = norm {
                        rms_norm_head(kernels, head, weight, config.rms_eps);
                    }
                    rotate(layout, head, cos, sin);
                };
                let (q, rest) = all.split_at_mut(padded(heads.heads * dim));
                let (k, v) = rest.split_at_mut(padded(heads.kv_heads * dim));
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

    unsafe fn attend(&self, shares: &Shares<'_>, index: usize, item: usize) {
        let kv = self.kv[self.plan.segment_of(item) * self.config.layers + index];
        let stride = padded(self.attended_width());
        // SAFETY: jobs write results of their own, and nobody writes queries and cache.
        unsafe {
            let queries = shares.queries.all();
            let (partials, out) = (&shares.partials, &shares.attended);
            self.plan.run(self.model.kernels, item, kv, queries, partials, (out, stride));
        }
    }

    unsafe fn finish_attention(
        &self,
        shares: &Shares<'_>,
        layer: &Layer,
        rows: std::ops::Range<usize>,
    ) {
        let width = self.attended_width();
        let stride = padded(width);
        let kernels = self.model.kernels;
        for segment in self.plan.segments_of(rows) {
            for row in segment.rows {
                // SAFETY: an item has rows of its own, and nobody writes partial results.
                let (out, partials) = unsafe {
                    let out = shares.attended.part(row * stride..row * stride + width);
                    (out, shares.partials.all())
                };
                self.plan.finish(kernels, segment.index, partials, out);
                if layer.attention_output.weight.takes_bytes() {
                    let blocks = width / QUANTISED;
                    // SAFETY: as above.
                    let bytes = unsafe { shares.bytes.part(row * blocks..(row + 1) * blocks) };
                    quantise(kernels, out, bytes);
                }
            }
        }
    }

    unsafe fn attention_output(&self, shares: &Shares<'_>, layer: &Layer, item: usize) {
        // SAFETY: an item has groups of its own.
        unsafe { self.add_to_hidden(shares, &layer.attention_output, &shares.attended, item) };
    }

    unsafe fn down(&self, shares: &Shares<'_>, layer: &Layer, item: usize) {
        // SAFETY: an item has groups of its own.
        unsafe { self.add_to_hidden(shares, &layer.down, &shares.gate, item) };
    }

    unsafe fn add_to_hidden<'s>(
        &self,
        shares: &Shares<'s>,
        projection: &Projection,
        from: &Share<'s, f32>,
        item: usize,
    ) {
        let (groups, rows) = (projection.weight.groups(), self.rows.len());
        let range = part(groups, item, self.strip_items(groups, rows));
        let stride = padded(projection.weight.columns());
        // SAFETY: an item has groups of its own, and nobody writes the input.
        unsafe {
            let inputs = Self::inputs(shares, from, stride, rows);
            let width = padded(self.config.hidden);
            multiply(projection, range, &inputs, &shares.hidden, (width, 0), true);
        }
    }

    /// Some groups of gate and up, and their gated product in the place of the gate.
    unsafe fn gate_up(&self, shares: &Shares<'_>, layer: &Layer, item: usize) {
        let (groups, rows) = (layer.gate.weight.groups(), self.rows.len());
        let range = part(groups, item, self.strip_items(groups, rows));
        let width = padded(self.config.ffn);
        // SAFETY: an item has groups of its own, and nobody writes the norm.
        unsafe {
            let stride = padded(self.config.hidden);
            let inputs = Self::inputs(shares, &shares.normed, stride, rows);
            let at = (width, 0);
            multiply(&layer.gate, range.clone(), &inputs, &shares.gate, at, false);
            multiply(&layer.up, range.clone(), &inputs, &shares.up, at, false);
            for row in 0..rows {
                let own = row * width + range.start * GROUP..row * width + range.end * GROUP;
                let gate = shares.gate.part(own.clone());
                silu_mul(self.model.kernels, gate, shares.up.read(own));
            }
        }
    }

    unsafe fn quantise_gated(
        &self,
        shares: &Shares<'_>,
        layer: &Layer,
        rows: std::ops::Range<usize>,
    ) {
        if !layer.down.weight.takes_bytes() {
            return;
        }
        let (width, stride) = (self.config.ffn, padded(self.config.ffn));
        let blocks = width / QUANTISED;
        for row in rows {
            // SAFETY: an item has rows of its own, and nobody writes the gated product.
            let (from, bytes) = unsafe {
                let from = shares.gate.read(row * stride..row * stride + width);
                (from, shares.bytes.part(row * blocks..(row + 1) * blocks))
            };
            quantise(self.model.kernels, from, bytes);
        }
    }

    /// The norm of each sequence's last row, then some groups of the output matrix.
    unsafe fn output(&self, shares: &Shares<'_>, phase: usize, item: usize) {
        let matrix = self.model.output.as_ref().unwrap_or(&self.model.embeddings);
        let place = 2 * self.model.layers.len();
        // SAFETY: the first phase has one item; an item of the second has groups of its own.
        unsafe {
            if phase == 0 {
                for (to, last) in self.plan.last_rows().enumerate() {
                    let weight = &self.model.output_norm;
                    self.norm_row(shares, last, to, weight, place, matrix.takes_bytes());
                }
                return;
            }
            let stride = padded(self.config.hidden);
            let inputs = Self::inputs(shares, &shares.normed, stride, self.wanted);
            let groups = matrix.groups();
            let range = part(groups, item, self.strip_items(groups, self.wanted));
            let first = range.start * GROUP;
            let out = Output::new(self.logits, matrix.padded_rows(), first, false);
            matrix.multiply(range, &inputs, &out);
        }
    }
}

/// Products of all rows with some groups of a matrix, to columns from `at.1` on of rows `at.0` apart,
/// replacing what is there or adding to it; then the bias.
///
/// # Safety
/// Nobody else uses these columns.
unsafe fn multiply(
    projection: &Projection,
    groups: std::ops::Range<usize>,
    inputs: &Inputs<'_>,
    out: &Share<'_, f32>,
    (stride, column): (usize, usize),
    add: bool,
) {
    if groups.is_empty() {
        return;
    }
    let first = column + groups.start * GROUP;
    // SAFETY: as the caller vouches.
    let output = unsafe { Output::new(*out, stride, first, add) };
    projection.weight.multiply(groups.clone(), inputs, &output);
    if let Some(bias) = &projection.bias {
        let bias = &bias[groups.start * GROUP..bias.len().min(groups.end * GROUP)];
        for row in 0..inputs.rows {
            let start = row * stride + first;
            // SAFETY: as the caller vouches.
            let out = unsafe { out.part(start..start + bias.len()) };
            out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
        }
    }
}
