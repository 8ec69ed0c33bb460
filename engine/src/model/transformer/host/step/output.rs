//! The logits.

use super::{GROUP, Norm, Shares, Step, SubLayer, padded};
use crate::model::elementwise::soft_cap;
use crate::model::linear::Output;
use crate::model::par::part;

impl Step<'_> {
    /// The norm of each sequence's last row, then some groups of the output matrix.
    pub(super) unsafe fn output(&self, shares: &Shares<'_>, phase: usize, item: usize) {
        let matrix = self.model.output.as_ref().unwrap_or(&self.model.embeddings);
        let place = 2 * self.model.layers.len();
        // SAFETY: the first phase has one item; an item of the second has groups of its own.
        unsafe {
            if phase == 0 {
                let before = self.model.layers.last();
                let norm = Norm {
                    before: before.map(|layer| (layer, SubLayer::FeedForward)),
                    weight: Some(&self.model.output_norm),
                    place,
                    bytes: matrix.takes_bytes(),
                };
                for (to, last) in self.plans[0].last_rows().enumerate() {
                    self.norm_row(shares, last, to, &norm);
                }
                return;
            }
            let stride = padded(self.config.hidden);
            let inputs = Self::inputs(shares, &shares.normed, stride, self.wanted);
            let groups = matrix.groups();
            let range = part(groups, item, self.strip_items(groups, self.wanted));
            let first = range.start * GROUP;
            let out = Output::new(self.logits, matrix.padded_rows(), first, false);
            matrix.multiply(range.clone(), &inputs, &out);
            self.finish_logits(matrix.padded_rows(), range);
        }
    }

    /// Bias, scale and cap of some groups of logits.
    pub(super) unsafe fn finish_logits(&self, stride: usize, groups: std::ops::Range<usize>) {
        let scales = &self.config.scales;
        for row in 0..self.wanted {
            let own = row * stride + groups.start * GROUP..row * stride + groups.end * GROUP;
            // SAFETY: an item has groups of its own.
            let logits = unsafe { self.logits.part(own) };
            if let Some(bias) = &self.model.output_bias {
                let bias = &bias[groups.start * GROUP..];
                logits.iter_mut().zip(bias).for_each(|(logit, bias)| *logit += bias);
            }
            if scales.logits != 1.0 {
                logits.iter_mut().for_each(|logit| *logit *= scales.logits);
            }
            soft_cap(self.model.kernels, logits, scales.logit_cap);
        }
    }
}
