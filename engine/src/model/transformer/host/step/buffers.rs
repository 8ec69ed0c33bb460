//! The buffers of a forward, and how threads share them.

use super::{PREFILL_ROWS, experts};
use crate::model::config::ModelConfig;
use crate::model::kv_cache::{KvType, padded_dim};
use crate::model::linear::{GROUP, QUANTISED, Quantised};
use crate::model::par::Share;
use crate::model::transformer::host::{HostModel, Layer, SubLayer};

/// Bytes of activations that prefill may hold where nobody says how many tokens it takes at once.
const ACTIVATIONS: usize = 48 << 20;
/// Tokens that it takes then at most, and at least: the weights are read once for all of them.
const CHUNK: std::ops::RangeInclusive<usize> = 64..=512;

/// The buffers of a forward; rows follow each other.
#[derive(Debug)]
pub(in crate::model::transformer::host) struct Buffers {
    pub(super) hidden: Vec<f32>,
    pub(super) normed: Vec<f32>,
    pub(super) bytes: Vec<Quantised>,
    pub(super) qkv: Vec<f32>,
    pub(super) queries: Vec<f32>,
    pub(super) partials: Vec<f32>,
    pub(super) attended: Vec<f32>,
    pub(super) gate: Vec<f32>,
    pub(super) up: Vec<f32>,
    /// What a sub-layer gives, where something is done to it before it is added to the hidden state.
    pub(super) branch: Vec<f32>,
    pub(super) experts: experts::Buffers,
}

/// The buffers, as threads write them.
pub(in crate::model::transformer::host) struct Shares<'a> {
    pub(super) hidden: Share<'a, f32>,
    pub(super) normed: Share<'a, f32>,
    pub(super) bytes: Share<'a, Quantised>,
    pub(super) qkv: Share<'a, f32>,
    pub(super) queries: Share<'a, f32>,
    pub(super) partials: Share<'a, f32>,
    pub(super) attended: Share<'a, f32>,
    pub(super) gate: Share<'a, f32>,
    pub(super) up: Share<'a, f32>,
    pub(super) branch: Share<'a, f32>,
    pub(super) experts: experts::Shares<'a>,
}

/// Elements of a row of so many, filled up to whole groups.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(GROUP)
}

/// Elements of a row that attention gives.
pub(super) fn attended_width(config: &ModelConfig) -> usize {
    config.heads * config.head_dim
}

/// Elements of a row of queries, keys and values, each filled up to whole groups.
pub(super) fn qkv_width(config: &ModelConfig) -> usize {
    padded(attended_width(config)) + 2 * padded(config.kv_heads * config.head_dim)
}

/// Tokens that prefill takes at once where nobody says how many: the largest power of two whose
/// activations are within [`ACTIVATIONS`].
pub(in crate::model::transformer::host) fn prefill_chunk(
    model: &HostModel,
    config: &ModelConfig,
) -> usize {
    let dim = padded_dim(config.head_dim, KvType::Q8_0);
    let row = Buffers::new(model, config, dim, PREFILL_ROWS, 0).bytes() / PREFILL_ROWS;
    let fits = |tokens: &usize| tokens * row <= ACTIVATIONS;
    let halves = std::iter::successors(Some(*CHUNK.end()), |tokens| Some(tokens / 2));
    halves.take_while(|tokens| CHUNK.contains(tokens)).find(fits).unwrap_or(*CHUNK.start())
}

impl Buffers {
    /// The buffers of so many rows, for caches whose heads have `dim` elements, with so many partial
    /// results of attention.
    pub(super) fn new(
        model: &HostModel,
        config: &ModelConfig,
        dim: usize,
        rows: usize,
        partials: usize,
    ) -> Self {
        let (hidden, ffn) = (padded(config.hidden), padded(config.ffn));
        let widest = config.hidden.max(config.ffn).max(attended_width(config));
        let parts = [SubLayer::Attention, SubLayer::FeedForward];
        let branches = |layer: &Layer| parts.into_iter().any(|part| layer.branches(config, part));
        let branch = if model.layers.iter().any(branches) { rows * hidden } else { 0 };
        Self {
            hidden: vec![0.0; rows * hidden],
            normed: vec![0.0; rows * hidden],
            bytes: vec![Quantised::default(); rows * widest.div_ceil(QUANTISED)],
            qkv: vec![0.0; rows * qkv_width(config)],
            queries: vec![0.0; rows * config.heads * dim],
            partials: vec![0.0; partials],
            attended: vec![0.0; rows * padded(attended_width(config))],
            gate: vec![0.0; rows * ffn],
            // In prefill each item has room of its own for what it needs.
            up: vec![0.0; if rows < PREFILL_ROWS { rows * ffn } else { 0 }],
            branch: vec![0.0; branch],
            experts: experts::Buffers::new(config, rows),
        }
    }

    /// Bytes of all of them.
    fn bytes(&self) -> usize {
        let Self { hidden, normed, bytes, qkv, queries, partials, .. } = self;
        let Self { attended, gate, up, branch, experts, .. } = self;
        let floats = [hidden, normed, qkv, queries, partials, attended, gate, up, branch];
        floats.iter().map(|floats| size_of_val(floats.as_slice())).sum::<usize>()
            + size_of_val(bytes.as_slice())
            + experts.bytes()
    }

    pub(in crate::model::transformer::host) fn share(&mut self) -> Shares<'_> {
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
            branch: Share::new(&mut self.branch),
            experts: self.experts.share(),
        }
    }
}
