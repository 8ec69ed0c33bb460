//! The phases of a layer with experts: each row is routed, rows are gathered by expert, so that an
//! expert's matrices are read once for all of its rows, and what the experts give is added up by row.
//!
//! A pair is one row with one of its experts; a row has as many as are used.

use std::ops::Range;

use super::{GROUP, QUANTISED, STRIP, Step, padded};
use crate::model::config::ModelConfig;
use crate::model::elementwise::activate_mul;
use crate::model::linear::{Inputs, Matrix, Output, Quantised, quantise};
use crate::model::par::{Share, part};
use crate::model::transformer::host::Experts;

/// A pair.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Route {
    expert: usize,
    weight: f32,
    /// Its place among all pairs, by expert.
    at: usize,
}

/// The buffers of all layers with experts; empty where there are none.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    scores: Vec<f32>,
    /// Row-major, the best expert of a row first.
    routes: Vec<Route>,
    /// Factor on the shared expert, for each row.
    shared: Vec<f32>,
    /// The experts that have rows, with their places among the pairs, then empty ones.
    active: Vec<(usize, Range<usize>)>,
    /// Of pairs, by expert.
    gathered: Vec<f32>,
    bytes: Vec<Quantised>,
    gate: Vec<f32>,
    up: Vec<f32>,
    gated_bytes: Vec<Quantised>,
    out: Vec<f32>,
}

/// The buffers, as threads write them.
pub(super) struct Shares<'a> {
    scores: Share<'a, f32>,
    routes: Share<'a, Route>,
    shared: Share<'a, f32>,
    active: Share<'a, (usize, Range<usize>)>,
    gathered: Share<'a, f32>,
    bytes: Share<'a, Quantised>,
    gate: Share<'a, f32>,
    up: Share<'a, f32>,
    gated_bytes: Share<'a, Quantised>,
    out: Share<'a, f32>,
}

impl Buffers {
    pub(super) fn new(config: &ModelConfig, rows: usize) -> Self {
        let Some(experts) = &config.experts else { return Self::default() };
        let pairs = rows * experts.used;
        let (hidden, ffn) = (padded(config.hidden), padded(experts.ffn));
        Self {
            scores: vec![0.0; rows * padded(experts.count)],
            routes: vec![Route::default(); pairs],
            shared: vec![0.0; rows],
            active: vec![(0, 0..0); experts.count.min(pairs)],
            gathered: vec![0.0; pairs * hidden],
            bytes: vec![Quantised::default(); pairs * (config.hidden / QUANTISED)],
            gate: vec![0.0; pairs * ffn],
            up: vec![0.0; pairs * ffn],
            gated_bytes: vec![Quantised::default(); pairs * (experts.ffn / QUANTISED)],
            out: vec![0.0; pairs * hidden],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let floats = [&self.scores, &self.shared, &self.gathered, &self.gate, &self.up, &self.out];
        floats.iter().map(|floats| size_of_val(floats.as_slice())).sum::<usize>()
            + size_of_val(self.bytes.as_slice())
            + size_of_val(self.gated_bytes.as_slice())
            + size_of_val(self.routes.as_slice())
            + size_of_val(self.active.as_slice())
    }

    pub(super) fn share(&mut self) -> Shares<'_> {
        Shares {
            scores: Share::new(&mut self.scores),
            routes: Share::new(&mut self.routes),
            shared: Share::new(&mut self.shared),
            active: Share::new(&mut self.active),
            gathered: Share::new(&mut self.gathered),
            bytes: Share::new(&mut self.bytes),
            gate: Share::new(&mut self.gate),
            up: Share::new(&mut self.up),
            gated_bytes: Share::new(&mut self.gated_bytes),
            out: Share::new(&mut self.out),
        }
    }
}

impl Step<'_> {
    fn used(&self) -> usize {
        self.config.experts.as_ref().map_or(0, |experts| experts.used)
    }

    /// Experts that can have rows.
    fn most_active(&self) -> usize {
        let count = self.config.experts.as_ref().map_or(0, |experts| experts.count);
        count.min(self.rows.len() * self.used())
    }

    /// Strips that the matrices of one expert are cut into.
    fn expert_strips(&self, groups: usize) -> usize {
        groups.div_ceil(STRIP)
    }

    /// Items of a phase in which each expert that has rows multiplies matrices of `groups` groups.
    pub(super) fn expert_items(&self, groups: usize) -> usize {
        self.most_active() * self.expert_strips(groups)
    }

    /// Chooses the experts of rows, and the factor on the shared one.
    pub(super) unsafe fn route(
        &self,
        shares: &super::Shares<'_>,
        experts: &Experts,
        rows: Range<usize>,
    ) {
        let Some(config) = &self.config.experts else { return };
        let (hidden, stride) = (self.config.hidden, padded(self.config.hidden));
        let (blocks, width) = (hidden / QUANTISED, padded(config.count));
        for row in rows {
            // SAFETY: an item has rows of its own, and nobody writes the norm.
            let (normed, scores, routes, shared) = unsafe {
                let floats = shares.normed.read(row * stride..(row + 1) * stride);
                let bytes = shares.bytes.read(row * blocks..(row + 1) * blocks);
                let inputs = Inputs { rows: 1, floats, stride, bytes };
                let out = Output::new(shares.experts.scores, width, row * width, false);
                experts.router.multiply(0..experts.router.groups(), &inputs, &out);
                (
                    &floats[..hidden],
                    shares.experts.scores.part(row * width..row * width + config.count),
                    shares.experts.routes.part(row * config.used..(row + 1) * config.used),
                    &mut shares.experts.shared.part(row..row + 1)[0],
                )
            };
            softmax(scores);
            choose(scores, routes);
            if config.normalised {
                // The bound is llama.cpp's.
                let sum: f32 = routes.iter().map(|route| route.weight).sum();
                let sum = if sum < 6.103_515_6e-5 { 6.103_515_6e-5 } else { sum };
                routes.iter_mut().for_each(|route| route.weight /= sum);
            }
            routes.iter_mut().for_each(|route| route.weight *= config.scale);
            *shared = match &experts.shared_gate {
                Some(gate) => {
                    let score: f32 = gate.iter().zip(normed).map(|(gate, x)| gate * x).sum();
                    1.0 / (1.0 + (-score).exp())
                }
                None => 1.0,
            };
        }
    }

    /// Gives every pair its place, by expert.
    pub(super) unsafe fn sort(&self, shares: &super::Shares<'_>) {
        // SAFETY: the phase has one item.
        let (routes, active) = unsafe {
            let pairs = self.rows.len() * self.used();
            (
                shares.experts.routes.part(0..pairs),
                shares.experts.active.part(0..self.most_active()),
            )
        };
        // Experts in the order in which they come up, with their numbers of rows: few, so a search
        // through them costs less than a table of all.
        let mut known = 0;
        for route in routes.iter() {
            let found = active[..known].iter().position(|entry| entry.0 == route.expert);
            let index = found.unwrap_or_else(|| {
                active[known] = (route.expert, 0..0);
                known += 1;
                known - 1
            });
            active[index].1.end += 1;
        }
        let mut start = 0;
        for entry in &mut active[..known] {
            let count = entry.1.end;
            // The end moves back up as places are given.
            entry.1 = start..start;
            start += count;
        }
        active[known..].fill((0, 0..0));
        for route in routes {
            if let Some(entry) = active[..known].iter_mut().find(|entry| entry.0 == route.expert) {
                route.at = entry.1.end;
                entry.1.end += 1;
            }
        }
    }

    /// Copies rows of the norm to their places.
    pub(super) unsafe fn gather(&self, shares: &super::Shares<'_>, rows: Range<usize>) {
        let stride = padded(self.config.hidden);
        let (blocks, used) = (self.config.hidden / QUANTISED, self.used());
        for row in rows {
            // SAFETY: places are those of one pair each, and nobody writes the norm.
            unsafe {
                for route in shares.experts.routes.read(row * used..(row + 1) * used) {
                    let to = route.at * stride..(route.at + 1) * stride;
                    let from = shares.normed.read(row * stride..(row + 1) * stride);
                    shares.experts.gathered.part(to).copy_from_slice(from);
                    let to = route.at * blocks..(route.at + 1) * blocks;
                    let from = shares.bytes.read(row * blocks..(row + 1) * blocks);
                    shares.experts.bytes.part(to).copy_from_slice(from);
                }
            }
        }
    }

    /// The expert of an item, its pairs and the groups of its matrices.
    unsafe fn expert_of(
        &self,
        shares: &super::Shares<'_>,
        item: usize,
        groups: usize,
    ) -> Option<(usize, Range<usize>, Range<usize>)> {
        let strips = self.expert_strips(groups);
        let index = item / strips;
        // SAFETY: nobody writes the order.
        let (expert, pairs) = unsafe { &shares.experts.active.read(index..index + 1)[0] };
        let groups = part(groups, item % strips, strips);
        (!pairs.is_empty()).then(|| (*expert, pairs.clone(), groups))
    }

    /// Some groups of an expert's gate and up, and their gated product in the place of the gate.
    pub(super) unsafe fn expert_gate_up(
        &self,
        shares: &super::Shares<'_>,
        experts: &Experts,
        item: usize,
    ) {
        let (stride, blocks) = (padded(self.config.hidden), self.config.hidden / QUANTISED);
        let groups = experts.each[0].gate.groups();
        // SAFETY: an item has groups of its own, and nobody writes what was gathered.
        unsafe {
            let Some((expert, pairs, groups)) = self.expert_of(shares, item, groups) else {
                return;
            };
            let expert = &experts.each[expert];
            let width = expert.gate.padded_rows();
            let inputs = Inputs {
                rows: pairs.len(),
                floats: shares.experts.gathered.read(pairs.start * stride..pairs.end * stride),
                stride,
                bytes: shares.experts.bytes.read(pairs.start * blocks..pairs.end * blocks),
            };
            let (gate, up) = (shares.experts.gate, shares.experts.up);
            multiply(&expert.gate, groups.clone(), &inputs, (gate, width, pairs.start));
            multiply(&expert.up, groups.clone(), &inputs, (up, width, pairs.start));
            for pair in pairs {
                let own = pair * width + groups.start * GROUP..pair * width + groups.end * GROUP;
                let activation = self.config.architecture.activation;
                let gate = gate.part(own.clone());
                activate_mul(self.model.kernels, activation, gate, up.read(own));
            }
        }
    }

    pub(super) unsafe fn quantise_experts(
        &self,
        shares: &super::Shares<'_>,
        experts: &Experts,
        rows: Range<usize>,
    ) {
        let down = &experts.each[0].down;
        if !experts.each.iter().any(|expert| expert.down.takes_bytes()) {
            return;
        }
        let (width, stride) = (down.columns(), padded(down.columns()));
        let blocks = width / QUANTISED;
        // Whichever pairs these are, each is one item's.
        for pair in rows.start * self.used()..rows.end * self.used() {
            // SAFETY: an item has pairs of its own, and nobody writes the gated product.
            let (from, bytes) = unsafe {
                let from = shares.experts.gate.read(pair * stride..pair * stride + width);
                (from, shares.experts.gated_bytes.part(pair * blocks..(pair + 1) * blocks))
            };
            quantise(self.model.kernels, from, bytes);
        }
    }

    /// Some groups of an expert's last matrix.
    pub(super) unsafe fn expert_down(
        &self,
        shares: &super::Shares<'_>,
        experts: &Experts,
        item: usize,
    ) {
        let down = &experts.each[0].down;
        let (stride, blocks) = (padded(down.columns()), down.columns() / QUANTISED);
        // SAFETY: an item has groups of its own, and nobody writes the gated product.
        unsafe {
            let Some((expert, pairs, groups)) = self.expert_of(shares, item, down.groups()) else {
                return;
            };
            let inputs = Inputs {
                rows: pairs.len(),
                floats: shares.experts.gate.read(pairs.start * stride..pairs.end * stride),
                stride,
                bytes: shares.experts.gated_bytes.read(pairs.start * blocks..pairs.end * blocks),
            };
            let to = (shares.experts.out, padded(self.config.hidden), pairs.start);
            multiply(&experts.each[expert].down, groups, &inputs, to);
        }
    }

    /// What all experts of a row give together; `branch` has what the shared one does.
    pub(super) unsafe fn combine(
        &self,
        shares: &super::Shares<'_>,
        row: usize,
        experts: &Experts,
        branch: &mut [f32],
    ) {
        let (stride, used) = (padded(self.config.hidden), self.used());
        let has_shared = self.config.experts.as_ref().is_some_and(|experts| experts.shared);
        // SAFETY: nobody writes what the experts gave.
        let (routes, shared, out) = unsafe {
            (
                shares.experts.routes.read(row * used..(row + 1) * used),
                shares.experts.shared.read(row..row + 1)[0],
                shares.experts.out.all(),
            )
        };
        if !has_shared {
            branch.fill(0.0);
        } else if experts.shared_gate.is_some() {
            branch.iter_mut().for_each(|x| *x *= shared);
        }
        for route in routes {
            let from = &out[route.at * stride..];
            branch.iter_mut().zip(from).for_each(|(sum, x)| *sum += route.weight * x);
        }
    }
}

/// Products of an expert's rows with some groups of a matrix, to the pairs from `first` on of rows
/// `stride` apart.
///
/// # Safety
/// Nobody else uses these columns of these pairs.
unsafe fn multiply(
    matrix: &Matrix,
    groups: Range<usize>,
    inputs: &Inputs<'_>,
    (out, stride, first): (Share<'_, f32>, usize, usize),
) {
    // SAFETY: as the caller vouches.
    let out = unsafe { Output::new(out, stride, first * stride + groups.start * GROUP, false) };
    matrix.multiply(groups, inputs, &out);
}

fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - max).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// The experts with the largest weights, the largest first; the first of equals, and what is no number
/// last.
fn choose(weights: &[f32], routes: &mut [Route]) {
    for chosen in 0..routes.len() {
        let (taken, rest) = routes.split_at_mut(chosen);
        let mut best: Option<usize> = None;
        for expert in 0..weights.len() {
            if taken.iter().any(|route| route.expert == expert) {
                continue;
            }
            let better = |best: usize| {
                weights[expert] > weights[best]
                    || weights[best].is_nan() && !weights[expert].is_nan()
            };
            if best.is_none_or(better) {
                best = Some(expert);
            }
        }
        let expert = best.unwrap_or(0);
        rest[0] = Route { expert, weight: weights[expert], at: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_experts_are_chosen_once_each() {
        let mut routes = [Route::default(); 3];
        choose(&[0.1, 0.4, 0.1, 0.4], &mut routes);
        assert_eq!(routes.map(|route| route.expert), [1, 3, 0]);
        choose(&[f32::NAN, 0.4, f32::NAN, 0.1], &mut routes);
        assert_eq!(routes.map(|route| route.expert), [1, 3, 0]);
        assert!(routes[2].weight.is_nan());
    }

    #[test]
    fn weights_of_all_experts_add_up() {
        let mut scores = [1.0, 2.0, 3.0];
        softmax(&mut scores);
        assert!((scores.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((scores[2] / scores[1] - 1f32.exp()).abs() < 1e-5);
    }
}
