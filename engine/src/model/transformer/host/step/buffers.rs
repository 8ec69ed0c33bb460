//! The buffers of a forward, and how threads share them.

use super::experts;
use crate::model::linear::Quantised;
use crate::model::par::Share;

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

impl Buffers {
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
