//! The weights of a layer on the processor, by what its architecture says they are.

use super::SubLayer;
use crate::model::architectures::{HeadNorms, Norms};
use crate::model::config::{ExpertConfig, ModelConfig};
use crate::model::linear::Matrix;
use crate::model::load::Loader;
use crate::model::simd::Kernels;

#[derive(Debug)]
pub(super) struct Layer {
    pub(super) attention_norm: Option<Vec<f32>>,
    pub(super) q: Projection,
    pub(super) k: Projection,
    pub(super) v: Projection,
    /// Of a head's width, or of all heads together.
    pub(super) q_norm: Option<Vec<f32>>,
    pub(super) k_norm: Option<Vec<f32>>,
    pub(super) attention_output: Projection,
    pub(super) attention_post_norm: Option<Vec<f32>>,
    pub(super) ffn_norm: Option<Vec<f32>>,
    /// What every token goes through.
    pub(super) ffn: Option<FeedForward>,
    pub(super) experts: Option<Experts>,
    pub(super) ffn_post_norm: Option<Vec<f32>>,
}

#[derive(Debug)]
pub(super) struct FeedForward {
    pub(super) gate: Projection,
    pub(super) up: Projection,
    pub(super) down: Projection,
}

#[derive(Debug)]
pub(super) struct Experts {
    /// `[experts, hidden]`.
    pub(super) router: Matrix,
    /// Of the sigmoid that the shared expert is behind.
    pub(super) shared_gate: Option<Vec<f32>>,
    pub(super) each: Vec<Expert>,
}

#[derive(Debug)]
pub(super) struct Expert {
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
}

/// A matrix, and what is added to its products.
#[derive(Debug)]
pub(super) struct Projection {
    pub(super) weight: Matrix,
    pub(super) bias: Option<Vec<f32>>,
}

/// Reads the tensors of one layer.
struct Tensors<'a, 'f> {
    loader: &'a Loader<'f>,
    config: &'a ModelConfig,
    kernels: Kernels,
    layer: usize,
}

impl Tensors<'_, '_> {
    fn name(&self, suffix: &str) -> String {
        format!("blk.{}.{suffix}", self.layer)
    }

    fn norm(&self, suffix: &str, width: usize) -> anyhow::Result<Vec<f32>> {
        self.loader.dense(&self.name(&format!("{suffix}.weight")), width)
    }

    /// `NAME.weight` `[rows, columns]`, with `NAME.bias` `[rows]` where the file has one.
    fn projection(&self, suffix: &str, rows: usize, columns: usize) -> anyhow::Result<Projection> {
        self.rows_of(suffix, rows, 0..rows, columns)
    }

    /// Some rows of a projection of `all` rows.
    fn rows_of(
        &self,
        suffix: &str,
        all: usize,
        rows: std::ops::Range<usize>,
        columns: usize,
    ) -> anyhow::Result<Projection> {
        let name = self.name(&format!("{suffix}.weight"));
        let weight = self.loader.matrix_part(&name, &[all, columns], rows.clone(), self.kernels)?;
        let bias = self.name(&format!("{suffix}.bias"));
        let bias = self.loader.has(&bias).then(|| self.loader.dense_part(&bias, all, rows));
        Ok(Projection { weight, bias: bias.transpose()? })
    }

    /// Query, key and value, which may be one matrix.
    fn qkv(&self) -> anyhow::Result<[Projection; 3]> {
        let (config, kv_heads) = (self.config, self.config.each_layer[self.layer].kv_heads);
        let (q, kv) = (config.heads * config.head_dim, kv_heads * config.head_dim);
        if !self.loader.has(&self.name("attn_qkv.weight")) {
            return Ok([
                self.projection("attn_q", q, config.hidden)?,
                self.projection("attn_k", kv, config.hidden)?,
                self.projection("attn_v", kv, config.hidden)?,
            ]);
        }
        let rows = |rows| self.rows_of("attn_qkv", q + 2 * kv, rows, config.hidden);
        Ok([rows(0..q)?, rows(q..q + kv)?, rows(q + kv..q + 2 * kv)?])
    }

    fn feed_forward(&self, end: &str) -> anyhow::Result<FeedForward> {
        let (hidden, ffn) = (self.config.hidden, self.config.ffn);
        let named = |what: &str| format!("ffn_{what}{end}");
        let (gate, up) = if self.config.architecture.fused_gate {
            let rows = |rows| self.rows_of(&named("up"), 2 * ffn, rows, hidden);
            (rows(0..ffn)?, rows(ffn..2 * ffn)?)
        } else {
            let rows = |what: &str| self.projection(&named(what), ffn, hidden);
            (rows("gate")?, rows("up")?)
        };
        Ok(FeedForward { gate, up, down: self.projection(&named("down"), hidden, ffn)? })
    }

    fn experts(&self, experts: &ExpertConfig) -> anyhow::Result<Experts> {
        let (hidden, ffn, count) = (self.config.hidden, experts.ffn, experts.count);
        // One tensor has the matrices of all experts, or each has its own, as in files of early 2024.
        let matrix = |what: &str, expert: usize, rows: usize, columns: usize| {
            let together = self.name(&format!("ffn_{what}_exps.weight"));
            let own = self.name(&format!("ffn_{what}.{expert}.weight"));
            if self.loader.has(&own) && !self.loader.has(&together) {
                return self.loader.matrix(&own, (rows, columns), self.kernels);
            }
            let (dims, first) = ([count, rows, columns], expert * rows);
            self.loader.matrix_part(&together, &dims, first..first + rows, self.kernels)
        };
        let each = (0..count).map(|expert| {
            anyhow::Ok(Expert {
                gate: matrix("gate", expert, ffn, hidden)?,
                up: matrix("up", expert, ffn, hidden)?,
                down: matrix("down", expert, hidden, ffn)?,
            })
        });
        let shared_gate = self.name("ffn_gate_inp_shexp.weight");
        let shared_gate = (experts.shared && self.loader.has(&shared_gate))
            .then(|| self.loader.dense(&shared_gate, hidden))
            .transpose()?;
        let router = self.name("ffn_gate_inp.weight");
        let router = self.loader.matrix(&router, (count, hidden), self.kernels)?;
        Ok(Experts { router, shared_gate, each: each.collect::<anyhow::Result<_>>()? })
    }
}

impl Layer {
    /// Whether something is done to what a sub-layer gives before it is added to the hidden state.
    pub(super) fn branches(&self, config: &ModelConfig, part: SubLayer) -> bool {
        let (norm, experts) = match part {
            SubLayer::Attention => (&self.attention_post_norm, false),
            SubLayer::FeedForward => (&self.ffn_post_norm, self.experts.is_some()),
        };
        norm.is_some() || experts || config.scales.residual != 1.0
    }

    pub(super) fn load(
        loader: &Loader<'_>,
        config: &ModelConfig,
        kernels: Kernels,
        layer: usize,
    ) -> anyhow::Result<Self> {
        let tensors = Tensors { loader, config, kernels, layer };
        let architecture = config.architecture;
        let before = architecture.norms != Norms::After;
        let after = architecture.norms != Norms::Before;
        let norm = |wanted: bool, suffix: &str| {
            wanted.then(|| tensors.norm(suffix, config.hidden)).transpose()
        };
        let head_norm = |suffix: &str, heads: usize| {
            let width = match architecture.head_norms {
                HeadNorms::None => return Ok(None),
                HeadNorms::EachHead => config.head_dim,
                HeadNorms::WholeRow => heads * config.head_dim,
            };
            tensors.norm(suffix, width).map(Some)
        };
        let attention_norm = norm(before, "attn_norm")?;
        let [q, k, v] = tensors.qkv()?;
        let ffn = match &config.experts {
            None => Some(tensors.feed_forward("")?),
            Some(experts) if experts.shared => Some(tensors.feed_forward("_shexp")?),
            Some(_) => None,
        };
        Ok(Self {
            attention_norm,
            q,
            k,
            v,
            q_norm: head_norm("attn_q_norm", config.heads)?,
            k_norm: head_norm("attn_k_norm", config.each_layer[layer].kv_heads)?,
            attention_output: tensors.projection(
                "attn_output",
                config.hidden,
                config.heads * config.head_dim,
            )?,
            attention_post_norm: norm(after, "post_attention_norm")?,
            ffn_norm: norm(before, "ffn_norm")?,
            ffn,
            experts: config.experts.as_ref().map(|experts| tensors.experts(experts)).transpose()?,
            ffn_post_norm: norm(after, "post_ffw_norm")?,
        })
    }
}
