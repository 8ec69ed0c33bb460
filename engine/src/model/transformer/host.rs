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
use crate::model::transformer::rotation::Tables;

mod layer;
mod step;

use layer::{Experts, FeedForward, Layer, Projection};
use step::{Phase, Step};

/// The weights.
#[derive(Debug)]
pub(super) struct HostModel {
    kernels: Kernels,
    embeddings: Matrix,
    layers: Vec<Layer>,
    output_norm: Vec<f32>,
    /// `None` where the embedding matrix is used again.
    output: Option<Matrix>,
    output_bias: Option<Vec<f32>>,
    /// One for each of [`ModelConfig::ropes`].
    ropes: Vec<Tables>,
    /// Shapes of attention that layers have, without the padding that depends on the cache.
    shapes: Vec<Heads>,
    /// Which of them each layer has.
    shape_of: Vec<usize>,
    /// What is done in which layer, in order.
    schedule: Vec<(usize, Phase)>,
}

/// A layer's part of the residual stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubLayer {
    Attention,
    FeedForward,
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
        let output_bias = loader.has("output.bias");
        let output_bias = output_bias.then(|| loader.dense("output.bias", config.vocab));
        let (mut shapes, mut shape_of) = (Vec::new(), Vec::new());
        for layer in &config.each_layer {
            let shape = Heads {
                heads: config.heads,
                kv_heads: layer.kv_heads,
                head_dim: config.head_dim,
                dim: config.head_dim,
                window: layer.window.unwrap_or(usize::MAX),
                cap: config.scales.score_cap,
            };
            let known = shapes.iter().position(|known| *known == shape);
            shape_of.push(known.unwrap_or_else(|| {
                shapes.push(shape);
                shapes.len() - 1
            }));
        }
        let schedule = step::plan(&layers);
        Ok(Self {
            kernels,
            embeddings,
            layers,
            output_norm,
            output,
            output_bias: output_bias.transpose()?,
            ropes: Vec::new(),
            shapes,
            shape_of,
            schedule,
        })
    }

    pub(super) fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Tokens that prefill takes at once where nobody says how many.
    pub(super) fn prefill_chunk(&self, config: &ModelConfig) -> usize {
        step::prefill_chunk(self, config)
    }

    /// Takes the tables of all rotations.
    pub(super) fn set_rope(&mut self, tables: Vec<Tables>) {
        self.ropes = tables;
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
        let dim = padded_dim(config.head_dim, kv_type);
        let output = self.output.as_ref().unwrap_or(&self.embeddings);
        let wanted = if logits == Logits::Last { tokens.len() } else { 0 };
        out.resize(wanted * output.padded_rows(), 0.0);
        let step = Step::new(self, config, dim, tokens, &lens, &mut stores, out);
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
