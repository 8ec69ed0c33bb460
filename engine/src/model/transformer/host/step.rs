//! One forward as phases: what each does, on which buffers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use buffers::{Buffers, Shares, attended_width, padded, qkv_width};

use super::{FeedForward, HostModel, Layer, Projection, SubLayer};
use crate::model::attention::host::{Heads, Plan};
use crate::model::config::ModelConfig;
use crate::model::elementwise::{is_finite, rms_norm, rms_norm_head};
use crate::model::kv_cache::{HostKv, LayerKv};
use crate::model::linear::{GROUP, Inputs, Output, QUANTISED, quantise};
use crate::model::par::{self, Share, part};

mod attention;
mod buffers;
mod experts;
mod feed_forward;
mod output;

pub(super) use buffers::prefill_chunk;

/// Groups of rows of a matrix that an item of prefill multiplies, so that the activations of some
/// rows are still in the nearest cache for the next group.
const STRIP: usize = 4;
/// Rows of activations from which the work is cut as in prefill.
const PREFILL_ROWS: usize = 16;

/// A phase of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    AttentionNorm,
    Qkv,
    Rotate,
    Attend,
    FinishAttention,
    AttentionOutput,
    FeedForwardNorm,
    GateUp,
    QuantiseGated,
    Down,
    Route,
    Sort,
    Gather,
    ExpertGateUp,
    QuantiseExperts,
    ExpertDown,
}

/// The phases of all layers, in order.
pub(super) fn plan(layers: &[Layer]) -> Vec<(usize, Phase)> {
    use Phase as P;
    let mut schedule = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let mut add =
            |phases: &[Phase]| schedule.extend(phases.iter().map(|&phase| (index, phase)));
        add(&[P::AttentionNorm, P::Qkv, P::Rotate, P::Attend, P::FinishAttention]);
        add(&[P::AttentionOutput, P::FeedForwardNorm]);
        if layer.ffn.is_some() {
            add(&[P::GateUp, P::QuantiseGated, P::Down]);
        }
        if layer.experts.is_some() {
            add(&[P::Route, P::Sort, P::Gather, P::ExpertGateUp, P::QuantiseExperts]);
            add(&[P::ExpertDown]);
        }
    }
    schedule
}

/// What is computed, and for whom.
pub(super) struct Step<'a> {
    model: &'a HostModel,
    config: &'a ModelConfig,
    /// One for each shape of attention.
    plans: Vec<Plan>,
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

impl<'a> Step<'a> {
    /// A step of these tokens, of sequences with so many positions before, whose caches hold heads of
    /// `dim` elements.
    pub(super) fn new(
        model: &'a HostModel,
        config: &'a ModelConfig,
        dim: usize,
        tokens: &[&[u32]],
        lens: &[usize],
        stores: &'a mut [&mut HostKv],
        logits: &'a mut [f32],
    ) -> Self {
        let plans = model.shapes.iter().map(|&shape| {
            let lengths = tokens.iter().map(|tokens| tokens.len());
            Plan::new(Heads { dim, ..shape }, lengths.zip(lens.iter().copied()))
        });
        let plans = plans.collect();
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
            plans,
            rows,
            kv,
            wanted: if logits.is_empty() { 0 } else { tokens.len() },
            logits: Share::new(logits),
            trouble: AtomicUsize::new(usize::MAX),
            threads: par::threads(),
        }
    }

    pub(super) fn buffers(&self) -> Buffers {
        let partials = self.plans.iter().map(Plan::partials).max().unwrap_or(0);
        let dim = self.plans[0].heads().dim;
        Buffers::new(self.model, self.config, dim, self.rows.len(), partials)
    }

    /// The plan of a layer's attention.
    fn plan(&self, layer: usize) -> &Plan {
        &self.plans[self.model.shape_of[layer]]
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
        let mut phases = Vec::with_capacity(3 + self.model.schedule.len());
        let by_rows = self.row_items(rows);
        phases.push(by_rows);
        phases.extend(self.model.schedule.iter().map(|&(index, phase)| {
            let layer = &self.model.layers[index];
            let strips = |groups: usize| self.strip_items(groups, rows);
            let groups = |projection: &Projection| projection.weight.groups();
            match (phase, &layer.ffn, &layer.experts) {
                (Phase::Qkv, ..) => strips(groups(&layer.q) + groups(&layer.k) + groups(&layer.v)),
                (Phase::Attend, ..) => self.plan(index).jobs(),
                (Phase::AttentionOutput, ..) => strips(groups(&layer.attention_output)),
                (Phase::GateUp, Some(ffn), _) => strips(groups(&ffn.gate)),
                (Phase::Down, Some(ffn), _) => strips(groups(&ffn.down)),
                (Phase::Sort, ..) => 1,
                (Phase::ExpertGateUp, _, Some(experts)) => {
                    self.expert_items(experts.each[0].gate.groups())
                }
                (Phase::ExpertDown, _, Some(experts)) => {
                    self.expert_items(experts.each[0].down.groups())
                }
                _ => by_rows,
            }
        }));
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
        let (rows, schedule) = (self.rows.len(), &self.model.schedule);
        let of_rows = part(rows, item, self.row_items(rows));
        // SAFETY: within a phase, items write rows or groups of their own, and read only what
        // earlier phases have written.
        unsafe {
            let Some(number) = phase.checked_sub(1) else { return self.embed(shares, of_rows) };
            let Some(&(index, phase)) = schedule.get(number) else {
                return self.output(shares, number - schedule.len(), item);
            };
            let layer = &self.model.layers[index];
            match (phase, &layer.ffn, &layer.experts) {
                (Phase::AttentionNorm, ..) => {
                    let before = index.checked_sub(1).map(|index| &self.model.layers[index]);
                    let norm = Norm {
                        before: before.map(|layer| (layer, SubLayer::FeedForward)),
                        weight: layer.attention_norm.as_deref(),
                        place: 2 * index,
                        bytes: true,
                    };
                    of_rows.for_each(|row| self.norm_row(shares, row, row, &norm));
                }
                (Phase::Qkv, ..) => self.qkv(shares, layer, item),
                (Phase::Rotate, ..) => self.rotate(shares, layer, index, of_rows),
                (Phase::Attend, ..) => self.attend(shares, index, item),
                (Phase::FinishAttention, ..) => {
                    self.finish_attention(shares, layer, index, of_rows);
                }
                (Phase::AttentionOutput, ..) => self.attention_output(shares, layer, item),
                (Phase::FeedForwardNorm, ..) => {
                    let norm = Norm {
                        before: Some((layer, SubLayer::Attention)),
                        weight: layer.ffn_norm.as_deref(),
                        place: 2 * index + 1,
                        bytes: true,
                    };
                    of_rows.for_each(|row| self.norm_row(shares, row, row, &norm));
                }
                (Phase::GateUp, Some(ffn), _) => self.gate_up(shares, ffn, item),
                (Phase::QuantiseGated, Some(ffn), _) => self.quantise_gated(shares, ffn, of_rows),
                (Phase::Down, Some(ffn), _) => self.down(shares, layer, ffn, item),
                (Phase::Route, _, Some(experts)) => self.route(shares, experts, of_rows),
                (Phase::Sort, _, Some(_)) => self.sort(shares),
                (Phase::Gather, _, Some(_)) => self.gather(shares, of_rows),
                (Phase::ExpertGateUp, _, Some(experts)) => {
                    self.expert_gate_up(shares, experts, item);
                }
                (Phase::QuantiseExperts, _, Some(experts)) => {
                    self.quantise_experts(shares, experts, of_rows);
                }
                (Phase::ExpertDown, _, Some(experts)) => self.expert_down(shares, experts, item),
                _ => unreachable!("phases are planned by what a layer has"),
            }
        }
    }

    unsafe fn embed(&self, shares: &Shares<'_>, rows: std::ops::Range<usize>) {
        let stride = padded(self.config.hidden);
        for row in rows {
            // SAFETY: an item has rows of its own.
            let out = unsafe { shares.hidden.part(row * stride..(row + 1) * stride) };
            self.model.embeddings.row(self.rows[row].0 as usize, out);
            let scale = self.config.scales.embedding;
            if scale != 1.0 {
                out.iter_mut().for_each(|x| *x *= scale);
            }
        }
    }

    /// Adds to a row of the hidden state what a sub-layer gave for it, where that waits in the branch
    /// or with the experts.
    unsafe fn settle(&self, shares: &Shares<'_>, row: usize, layer: &Layer, part: SubLayer) {
        if !layer.branches(self.config, part) {
            return;
        }
        let (width, stride) = (self.config.hidden, padded(self.config.hidden));
        let own = row * stride..row * stride + width;
        // SAFETY: an item has rows of its own.
        let (hidden, branch) =
            unsafe { (shares.hidden.part(own.clone()), shares.branch.part(own)) };
        let norm = match part {
            SubLayer::Attention => &layer.attention_post_norm,
            SubLayer::FeedForward => {
                if let Some(experts) = &layer.experts {
                    // SAFETY: as above, and nobody writes what the experts gave.
                    unsafe { self.combine(shares, row, experts, branch) };
                }
                &layer.ffn_post_norm
            }
        };
        if let Some(weight) = norm {
            rms_norm_head(self.model.kernels, branch, weight, self.config.rms_eps);
        }
        let scale = self.config.scales.residual;
        hidden.iter_mut().zip(branch).for_each(|(hidden, branch)| *hidden += scale * *branch);
    }

    /// The norm of row `from` of the hidden state, as row `to`, in floats and in bytes.
    unsafe fn norm_row(&self, shares: &Shares<'_>, from: usize, to: usize, norm: &Norm<'_>) {
        let (width, stride) = (self.config.hidden, padded(self.config.hidden));
        let (kernels, eps) = (self.model.kernels, self.config.rms_eps);
        // SAFETY: an item has rows of its own.
        let (x, out) = unsafe {
            if let Some((layer, part)) = norm.before {
                self.settle(shares, from, layer, part);
            }
            let from = from * stride;
            (
                shares.hidden.read(from..from + width),
                shares.normed.part(to * stride..(to + 1) * stride),
            )
        };
        let finite = match norm.weight {
            Some(weight) => rms_norm(kernels, x, weight, eps, &mut out[..width]),
            None => {
                out[..width].copy_from_slice(x);
                is_finite(kernels, x)
            }
        };
        if !finite {
            self.trouble.fetch_min(norm.place, Ordering::Relaxed);
        }
        if norm.bytes && width.is_multiple_of(QUANTISED) {
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

    /// Adds some groups of products to the hidden state, or puts them into the branch.
    unsafe fn add_to_hidden<'s>(
        &self,
        shares: &Shares<'s>,
        projection: &Projection,
        from: &Share<'s, f32>,
        branches: bool,
        item: usize,
    ) {
        let (groups, rows) = (projection.weight.groups(), self.rows.len());
        let range = part(groups, item, self.strip_items(groups, rows));
        let stride = padded(projection.weight.columns());
        // SAFETY: an item has groups of its own, and nobody writes the input.
        unsafe {
            let inputs = Self::inputs(shares, from, stride, rows);
            let width = padded(self.config.hidden);
            let to = if branches { &shares.branch } else { &shares.hidden };
            multiply(projection, range, &inputs, to, (width, 0), !branches);
        }
    }
}

/// A norm of rows of the hidden state.
struct Norm<'a> {
    /// The sub-layer whose part is to be in the hidden state.
    before: Option<(&'a Layer, SubLayer)>,
    /// `None` is no norm: the row as it is.
    weight: Option<&'a [f32]>,
    /// For [`Step::trouble`].
    place: usize,
    /// Whether matrices will want the row in bytes.
    bytes: bool,
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
    let first = column + groups.start * GROUP;
    // SAFETY: as the caller vouches.
    unsafe { multiply_to(projection, groups, inputs, out, (stride, first), add) }
}

/// The same, with the first group's products at element `at.1`.
///
/// # Safety
/// As there.
unsafe fn multiply_to(
    projection: &Projection,
    groups: std::ops::Range<usize>,
    inputs: &Inputs<'_>,
    out: &Share<'_, f32>,
    (stride, first): (usize, usize),
    add: bool,
) {
    if groups.is_empty() {
        return;
    }
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
