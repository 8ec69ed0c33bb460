//! The forward pass: embeddings, layers, output, in the order of computation.

use std::path::Path;

use anyhow::Context as _;
use candle_core::{Device, Result, Tensor, bail};

use super::attention::causal_attention;
use super::config::ModelConfig;
use super::gguf::Gguf;
use super::kv_cache::KvCache;
use super::linear::Linear;
use super::load::Loader;
use super::ops;
use super::rope::{RopeFrequencies, plan_frequencies};

/// Which logits a forward computes: the output matrix is the largest, and a chunk of a prompt that
/// is not its last needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// None.
    Skip,
    /// Those of the last token.
    Last,
}

/// A model on a device.
#[derive(Debug)]
pub struct Transformer {
    config: ModelConfig,
    device: Device,
    embeddings: Linear,
    layers: Vec<Layer>,
    output_norm: Tensor,
    /// `None` where the embedding matrix is used again.
    output: Option<Linear>,
    frequencies: RopeFrequencies,
    rope: Option<RopeTables>,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Tensor,
    q: Linear,
    k: Linear,
    v: Linear,
    q_norm: Option<Tensor>,
    k_norm: Option<Tensor>,
    attention_output: Linear,
    ffn_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// Cosine and sine for the positions that the cache has room for.
#[derive(Debug)]
struct RopeTables {
    cos: Tensor,
    sin: Tensor,
    positions: usize,
}

impl Transformer {
    /// Reads the weights of `path`, whose header is `gguf`.
    ///
    /// # Errors
    /// A tensor is missing, has another shape than the metadata say, or cannot be read.
    pub fn load(gguf: &Gguf, path: &Path, device: &Device) -> anyhow::Result<Self> {
        let config = ModelConfig::parse(gguf)?;
        let file = std::fs::File::open(path)
            .with_context(|| format!("cannot open the model `{}`", path.display()))?;
        let mut loader = Loader::new(gguf, file, device);
        let embeddings = loader.linear("token_embd", config.vocab, config.hidden)?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            layers.push(Layer::load(&mut loader, &config, index)?);
        }
        let output_norm = loader.dense("output_norm.weight", &[config.hidden])?;
        let output = if loader.has("output.weight") {
            Some(loader.linear("output", config.vocab, config.hidden)?)
        } else {
            None
        };
        let factors = if loader.has("rope_freqs.weight") {
            let factors = loader.dense("rope_freqs.weight", &[config.head_dim / 2])?;
            factors.to_vec1::<f32>()?
        } else {
            Vec::new()
        };
        let frequencies = plan_frequencies(
            config.head_dim,
            f64::from(config.rope_base),
            config.rope_scaling,
            &factors,
        );
        let device = device.clone();
        Ok(Self {
            config,
            device,
            embeddings,
            layers,
            output_norm,
            output,
            frequencies,
            rope: None,
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device that the weights are on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A cache for `capacity` positions; prepares the rotation for as many.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new_cache(&mut self, capacity: usize) -> Result<KvCache> {
        if self.rope.as_ref().is_none_or(|tables| tables.positions < capacity) {
            let (cos, sin) = self.frequencies.tables(capacity);
            let shape = (capacity, self.config.head_dim / 2);
            self.rope = Some(RopeTables {
                cos: Tensor::from_vec(cos, shape, &self.device)?,
                sin: Tensor::from_vec(sin, shape, &self.device)?,
                positions: capacity,
            });
        }
        KvCache::new(&self.config, capacity, &self.device)
    }

    /// Runs `tokens`, which follow what the cache holds, and adds them to it. Returns the logits
    /// `[vocab]` in F32 where they are asked for.
    ///
    /// # Errors
    /// No tokens, an id beyond the vocabulary, a full cache; those of the device.
    pub fn forward(
        &self,
        tokens: &[u32],
        cache: &mut KvCache,
        logits: Logits,
    ) -> Result<Option<Tensor>> {
        let Some(&largest) = tokens.iter().max() else {
            bail!("a forward needs at least one token");
        };
        if largest as usize >= self.config.vocab {
            bail!("token {largest} is beyond the vocabulary of {}", self.config.vocab);
        }
        let filled = cache.len() + tokens.len();
        if filled > cache.capacity() {
            bail!("the KV cache has room for {}, not for {filled}", cache.capacity());
        }
        let Some(rope) = &self.rope else {
            bail!("the cache was not made by this model");
        };
        let cos = rope.cos.narrow(0, cache.len(), tokens.len())?;
        let sin = rope.sin.narrow(0, cache.len(), tokens.len())?;
        let ids = Tensor::new(tokens, &self.device)?;
        let mut xs = self.embeddings.embed(&ids)?;
        for (index, layer) in self.layers.iter().enumerate() {
            xs = layer.forward(&self.config, index, &xs, (&cos, &sin), cache)?;
        }
        cache.advance(tokens.len());
        match logits {
            Logits::Skip => Ok(None),
            Logits::Last => {
                let last = xs.narrow(0, tokens.len() - 1, 1)?;
                let last = ops::rms_norm(&last, &self.output_norm, self.config.rms_eps)?;
                let output = self.output.as_ref().unwrap_or(&self.embeddings);
                Ok(Some(output.forward(&last)?.squeeze(0)?))
            }
        }
    }
}

impl Layer {
    fn load(loader: &mut Loader, config: &ModelConfig, index: usize) -> anyhow::Result<Self> {
        let name = |suffix: &str| format!("blk.{index}.{suffix}");
        let (hidden, ffn) = (config.hidden, config.ffn);
        let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let mut head_norm = |suffix: &str| -> anyhow::Result<Option<Tensor>> {
            let name = name(suffix);
            if !loader.has(&name) {
                return Ok(None);
            }
            Ok(Some(loader.dense(&name, &[config.head_dim])?))
        };
        let (q_norm, k_norm) = (head_norm("attn_q_norm.weight")?, head_norm("attn_k_norm.weight")?);
        Ok(Self {
            q_norm,
            k_norm,
            attention_norm: loader.dense(&name("attn_norm.weight"), &[hidden])?,
            q: loader.linear(&name("attn_q"), q, hidden)?,
            k: loader.linear(&name("attn_k"), kv, hidden)?,
            v: loader.linear(&name("attn_v"), kv, hidden)?,
            attention_output: loader.linear(&name("attn_output"), hidden, q)?,
            ffn_norm: loader.dense(&name("ffn_norm.weight"), &[hidden])?,
            gate: loader.linear(&name("ffn_gate"), ffn, hidden)?,
            up: loader.linear(&name("ffn_up"), ffn, hidden)?,
            down: loader.linear(&name("ffn_down"), hidden, ffn)?,
        })
    }

    fn forward(
        &self,
        config: &ModelConfig,
        index: usize,
        xs: &Tensor,
        rope: (&Tensor, &Tensor),
        cache: &mut KvCache,
    ) -> Result<Tensor> {
        let normed = ops::rms_norm(xs, &self.attention_norm, config.rms_eps)?;
        let xs = (xs + self.attention(config, index, &normed, rope, cache)?)?;
        let normed = ops::rms_norm(&xs, &self.ffn_norm, config.rms_eps)?;
        let [gate, up] = Linear::forward_all([&self.gate, &self.up], &normed)?;
        let gated = ops::silu_mul(&gate, &up)?;
        xs + self.down.forward(&gated)?
    }

    fn attention(
        &self,
        config: &ModelConfig,
        index: usize,
        xs: &Tensor,
        (cos, sin): (&Tensor, &Tensor),
        cache: &mut KvCache,
    ) -> Result<Tensor> {
        let tokens = xs.dim(0)?;
        let heads = |xs: Tensor, count: usize| xs.reshape((tokens, count, config.head_dim));
        let rotate = |xs: Tensor, norm: &Option<Tensor>| -> Result<Tensor> {
            let xs = match norm {
                Some(weight) => ops::rms_norm(&xs, weight, config.rms_eps)?,
                None => xs,
            };
            ops::rope(&xs, cos, sin, config.rope_layout())
        };
        let [q, k, v] = Linear::forward_all([&self.q, &self.k, &self.v], xs)?;
        let q = rotate(heads(q, config.heads)?, &self.q_norm)?;
        let k = rotate(heads(k, config.kv_heads)?, &self.k_norm)?;
        let v = heads(v, config.kv_heads)?;
        let kv = cache.append(index, &k, &v)?;
        self.attention_output.forward(&causal_attention(&q, &kv)?)
    }
}
