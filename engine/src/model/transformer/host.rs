//! The forward pass on the processor, with this crate's kernels.
//!
//! A forward is one region of [`par`]: its phases are the steps of all layers, so threads are woken
//! once a forward, and wait for each other only where a step needs the whole of the one before. Its
//! buffers are allocated once a forward; nothing is allocated by a step of a layer in decode.

use candle_core::{Result, bail};

use crate::model::attention::host::Heads;
use crate::model::config::ModelConfig;
use crate::model::kv_cache::{KvCache, Store, padded_dim};
use crate::model::linear::Matrix;
use crate::model::load::Loader;
use crate::model::par;
use crate::model::simd::Kernels;
use crate::model::transformer::Logits;

mod step;

use step::Step;

/// The weights.
#[derive(Debug)]
pub(super) struct HostModel {
    kernels: Kernels,
    embeddings: Matrix,
    layers: Vec<Layer>,
    output_norm: Vec<f32>,
    /// `None` where the embedding matrix is used again.
    output: Option<Matrix>,
    /// `[positions, head_dim / 2]`.
    cos: Vec<f32>,
    sin: Vec<f32>,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Vec<f32>,
    q: Projection,
    k: Projection,
    v: Projection,
    q_norm: Option<Vec<f32>>,
    k_norm: Option<Vec<f32>>,
    attention_output: Projection,
    ffn_norm: Vec<f32>,
    gate: Projection,
    up: Projection,
    down: Projection,
}

/// A matrix, and what is added to its products.
#[derive(Debug)]
struct Projection {
    weight: Matrix,
    bias: Option<Vec<f32>>,
}

impl Projection {
    /// `NAME.weight` `[rows, columns]`, with `NAME.bias` `[rows]` where the file has one.
    fn load(
        loader: &Loader,
        name: &str,
        (rows, columns): (usize, usize),
        kernels: Kernels,
    ) -> anyhow::Result<Self> {
        let weight = loader.matrix(&format!("{name}.weight"), (rows, columns), kernels)?;
        let bias = format!("{name}.bias");
        let bias = if loader.has(&bias) { Some(loader.dense(&bias, rows)?) } else { None };
        Ok(Self { weight, bias })
    }
}

impl Layer {
    fn load(
        loader: &Loader,
        config: &ModelConfig,
        kernels: Kernels,
        index: usize,
    ) -> anyhow::Result<Self> {
        let name = |suffix: &str| format!("blk.{index}.{suffix}");
        let (hidden, ffn) = (config.hidden, config.ffn);
        let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let head_norm = |suffix: &str| -> anyhow::Result<Option<Vec<f32>>> {
            let name = name(suffix);
            if !loader.has(&name) {
                return Ok(None);
            }
            Ok(Some(loader.dense(&name, config.head_dim)?))
        };
        let projection = |suffix: &str, rows: usize, columns: usize| {
            Projection::load(loader, &name(suffix), (rows, columns), kernels)
        };
        Ok(Self {
            attention_norm: loader.dense(&name("attn_norm.weight"), hidden)?,
            q: projection("attn_q", q, hidden)?,
            k: projection("attn_k", kv, hidden)?,
            v: projection("attn_v", kv, hidden)?,
            q_norm: head_norm("attn_q_norm.weight")?,
            k_norm: head_norm("attn_k_norm.weight")?,
            attention_output: projection("attn_output", hidden, q)?,
            ffn_norm: loader.dense(&name("ffn_norm.weight"), hidden)?,
            gate: projection("ffn_gate", ffn, hidden)?,
            up: projection("ffn_up", ffn, hidden)?,
            down: projection("ffn_down", hidden, ffn)?,
        })
    }
}

impl HostModel {
    pub(super) fn load(
        loader: &mut Loader,
        config: &ModelConfig,
        kernels: Kernels,
    ) -> anyhow::Result<Self> {
        let shape = (config.vocab, config.hidden);
        let embeddings = loader.matrix("token_embd.weight", shape, kernels)?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            layers.push(Layer::load(loader, config, kernels, index)?);
        }
        let output_norm = loader.dense("output_norm.weight", config.hidden)?;
        let output = if loader.has("output.weight") {
            Some(loader.matrix("output.weight", shape, kernels)?)
        } else {
            None
        };
        let (cos, sin) = (Vec::new(), Vec::new());
        Ok(Self { kernels, embeddings, layers, output_norm, output, cos, sin })
    }

    pub(super) fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Takes the rotation's tables, `[positions, head_dim / 2]`.
    pub(super) fn set_rope(&mut self, (cos, sin): (Vec<f32>, Vec<f32>)) {
        (self.cos, self.sin) = (cos, sin);
    }

    /// Runs the tokens of each sequence, whose positions follow the filled ones of its cache, and
    /// gives the logits of each sequence's last token.
    pub(super) fn forward(
        &self,
        config: &ModelConfig,
        tokens: &[&[u32]],
        caches: &mut [&mut KvCache],
        logits: Logits,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let mut lens = Vec::with_capacity(caches.len());
        let mut stores = Vec::with_capacity(caches.len());
        for cache in caches.iter_mut() {
            lens.push(cache.len());
            match &mut cache.store {
                Store::Host(store) => stores.push(store),
                Store::Device(_) => bail!("the cache was not made by this model"),
            }
        }
        let kv_type = stores[0].kv_type;
        if stores.iter().any(|store| store.kv_type != kv_type) {
            bail!("sequences that run together need caches of one type");
        }
        let heads = Heads {
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            dim: padded_dim(config.head_dim, kv_type),
        };
        let output = self.output.as_ref().unwrap_or(&self.embeddings);
        let wanted = if logits == Logits::Last { tokens.len() } else { 0 };
        out.resize(wanted * output.padded_rows(), 0.0);
        let step = Step::new(self, config, heads, tokens, &lens, &mut stores, out);
        let mut buffers = step.buffers();
        let shares = buffers.share();
        // SAFETY: the phases of a step are made for running in this order, each as a whole.
        par::run(&step.phases(), &|phase, item| unsafe { step.run(&shares, phase, item) });
        let trouble = step.trouble();
        drop(step);
        if let Some(trouble) = trouble {
            bail!("the hidden state is not finite: {trouble}");
        }
        let (padded, vocab) = (output.padded_rows(), config.vocab);
        if padded != vocab {
            for sequence in 0..wanted {
                out.copy_within(sequence * padded..sequence * padded + vocab, sequence * vocab);
            }
            out.truncate(wanted * vocab);
        }
        Ok(())
    }
}
