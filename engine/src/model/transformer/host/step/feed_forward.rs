//! The phases of a feed-forward without experts.

use super::{
    FeedForward, GROUP, Layer, PREFILL_ROWS, STRIP, Shares, Step, SubLayer, multiply, multiply_to,
    padded,
};
use crate::model::elementwise::activate_mul;
use crate::model::linear::{Inputs, QUANTISED, quantise};
use crate::model::par::{Share, part};

/// Rows of prefill whose part of up is held at once.
const BLOCK_ROWS: usize = 32;

impl Step<'_> {
    /// Some groups of gate and up, and their gated product in the place of the gate.
    pub(super) unsafe fn gate_up(&self, shares: &Shares<'_>, ffn: &FeedForward, item: usize) {
        let (groups, rows) = (ffn.gate.weight.groups(), self.rows.len());
        if rows >= PREFILL_ROWS {
            let range = part(groups, item, self.strip_items(groups, rows));
            // SAFETY: as the caller vouches.
            return unsafe { self.gate_up_in_blocks(shares, ffn, &range) };
        }
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

    /// The same in prefill, some rows at a time: their part of up is small enough to stay near, and needs
    /// no buffer of the size of the gate's.
    unsafe fn gate_up_in_blocks(
        &self,
        shares: &Shares<'_>,
        ffn: &FeedForward,
        range: &std::ops::Range<usize>,
    ) {
        let (rows, width) = (self.rows.len(), padded(self.config.ffn));
        let (stride, blocks) = (padded(self.config.hidden), self.config.hidden / QUANTISED);
        let strip = range.len() * GROUP;
        let mut up = [0.0; BLOCK_ROWS * STRIP * GROUP];
        for start in (0..rows).step_by(BLOCK_ROWS) {
            let end = rows.min(start + BLOCK_ROWS);
            let up = &mut up[..(end - start) * strip];
            // SAFETY: an item has groups of its own, and nobody writes the norm.
            unsafe {
                let inputs = Inputs {
                    rows: end - start,
                    floats: shares.normed.read(start * stride..end * stride),
                    stride,
                    bytes: shares.bytes.read(start * blocks..end * blocks),
                };
                let at = (width, start * width);
                multiply(&ffn.gate, range.clone(), &inputs, &shares.gate, at, false);
                let to = Share::new(&mut *up);
                multiply_to(&ffn.up, range.clone(), &inputs, &to, (strip, 0), false);
                for (row, up) in (start..end).zip(up.chunks_exact(strip)) {
                    let first = row * width + range.start * GROUP;
                    let gate = shares.gate.part(first..first + strip);
                    let activation = self.config.architecture.activation;
                    activate_mul(self.model.kernels, activation, gate, up);
                }
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
