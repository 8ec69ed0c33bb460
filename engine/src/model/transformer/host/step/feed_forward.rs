//! The phases of a feed-forward without experts.

use super::{FeedForward, GROUP, Layer, Shares, Step, SubLayer, multiply, padded};
use crate::model::elementwise::activate_mul;
use crate::model::linear::{QUANTISED, quantise};
use crate::model::par::part;

impl Step<'_> {
    /// Some groups of gate and up, and their gated product in the place of the gate.
    pub(super) unsafe fn gate_up(&self, shares: &Shares<'_>, ffn: &FeedForward, item: usize) {
        let (groups, rows) = (ffn.gate.weight.groups(), self.rows.len());
        let range = part(groups, item, self.strip_items(groups, rows));
        let width = padded(self.config.ffn);
        // SAFETY: an item has groups of its own, and nobody writes the norm.
        unsafe {
            let stride = padded(self.config.hidden);
            let inputs = Self::inputs(shares, &shares.normed, stride, rows);
            let at = (width, 0);
            multiply(&ffn.gate, range.clone(), &inputs, &shares.gate, at, false);
            multiply(&ffn.up, range.clone(), &inputs, &shares.up, at, false);
            for row in 0..rows {
                let own = row * width + range.start * GROUP..row * width + range.end * GROUP;
                let gate = shares.gate.part(own.clone());
                let activation = self.config.architecture.activation;
                activate_mul(self.model.kernels, activation, gate, shares.up.read(own));
            }
        }
    }

    pub(super) unsafe fn quantise_gated(
        &self,
        shares: &Shares<'_>,
        ffn: &FeedForward,
        rows: std::ops::Range<usize>,
    ) {
        if !ffn.down.weight.takes_bytes() {
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

    pub(super) unsafe fn down(
        &self,
        shares: &Shares<'_>,
        layer: &Layer,
        ffn: &FeedForward,
        item: usize,
    ) {
        // SAFETY: an item has groups of its own.
        unsafe {
            let branches = layer.branches(self.config, SubLayer::FeedForward);
            self.add_to_hidden(shares, &ffn.down, &shares.gate, branches, item);
        };
    }
}
