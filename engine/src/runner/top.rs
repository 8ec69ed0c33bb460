//! The likeliest tokens of each choice, for the report: kept between the measured times.

use formats::cell_report::TopToken;

use crate::decode::{Pass, StepObserver};

/// Passes everything on, and keeps the likeliest tokens of the measured pass.
pub(super) struct TopObserver<'a> {
    inner: &'a mut dyn StepObserver,
    count: usize,
    top: Vec<Vec<TopToken>>,
}

impl<'a> TopObserver<'a> {
    /// Keeps `count` of each choice; 0 is none.
    pub(super) fn new(inner: &'a mut dyn StepObserver, count: usize) -> Self {
        Self { inner, count, top: Vec::new() }
    }

    pub(super) fn finish(self) -> Vec<Vec<TopToken>> {
        self.top
    }
}

impl StepObserver for TopObserver<'_> {
    fn before_pass(&mut self, pass: Pass) {
        self.top.clear();
        self.inner.before_pass(pass);
    }

    fn before_decode_step(&mut self) {
        self.inner.before_decode_step();
    }

    fn before_forward(&mut self, seq_len: usize) {
        self.inner.before_forward(seq_len);
    }

    fn after_choice(&mut self, logits: &[f32]) {
        if self.count > 0 {
            self.top.push(choose_top(logits, self.count));
        }
        self.inner.after_choice(logits);
    }

    fn after_decode_step(&mut self, step: usize) {
        self.inner.after_decode_step(step);
    }
}

/// The likeliest tokens, the first of equals first.
fn choose_top(logits: &[f32], count: usize) -> Vec<TopToken> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - max).exp()).sum();
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    ids.truncate(count);
    let of = |id: usize| TopToken {
        id: id as u32,
        logit: logits[id],
        log_probability: (f64::from(logits[id] - max) - sum.ln()) as f32,
    };
    ids.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_tokens_come_first_with_their_probabilities() {
        let top = choose_top(&[0.0, 2.0, 1.0, 2.0], 3);
        assert_eq!(top.iter().map(|top| top.id).collect::<Vec<_>>(), [1, 3, 2]);
        // e² / (1 + 2e² + e) is 0.3995.
        let exact = 2f64.exp() / (1.0 + 2.0 * 2f64.exp() + 1f64.exp());
        assert!((f64::from(top[0].log_probability) - exact.ln()).abs() < 1e-6, "{top:?}");
        assert_eq!(top[2].logit, 1.0);
    }
}
