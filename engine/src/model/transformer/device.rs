//! The forward pass out of candle's tensors: on a CUDA device, and on processors that there are no
//! kernels for.

use candle_core::{Device, Result, Tensor};

use crate::model::attention::causal_attention;
use crate::model::config::ModelConfig;
use crate::model::kv_cache::DeviceKv;
use crate::model::linear::Linear;
use crate::model::load::Loader;
use crate::model::ops;
use crate::model::transformer::Logits;

/// The weights.
#[derive(Debug)]
pub(super) struct DeviceModel {
    device: Device,
    embeddings: Linear,
    layers: Vec<Layer>,
    output_norm: Tensor,
    /// `None` where the embedding matrix is used again.
    output: Option<Linear>,
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
}

impl DeviceModel {
    pub(super) fn load(
        loader: &mut Loader,
        config: &ModelConfig,
        device: &Device,
    ) -> anyhow::Result<Self> {
        let embeddings = loader.linear(device, "token_embd", config.vocab, config.hidden)?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            layers.push(Layer::load(loader, config, device, index)?);
        }
        let output_norm = loader.tensor(device, "output_norm.weight", &[config.hidden])?;
        let output = if loader.has("output.weight") {
            Some(loader.linear(device, "output", config.vocab, config.hidden)?)
        } else {
            None
        };
        let device = device.clone();
        Ok(Self { device, embeddings, layers, output_norm, output, rope: None })
    }

    /// Takes the rotation's tables, `[positions, head_dim / 2]`.
    pub(super) fn set_rope(
        &mut self,
        config: &ModelConfig,
        (cos, sin): (Vec<f32>, Vec<f32>),
    ) -> Result<()> {
        let half = config.head_dim / 2;
        let shape = (cos.len() / half, half);
        self.rope = Some(RopeTables {
            cos: Tensor::from_vec(cos, shape, &self.device)?,
            sin: Tensor::from_vec(sin, shape, &self.device)?,
        });
        Ok(())
    }

    /// Runs `tokens`, whose positions follow the `filled` ones of the cache.
    pub(super) fn forward(
        &self,
        config: &ModelConfig,
        tokens: &[u32],
        cache: &DeviceKv,
        filled: usize,
        logits: Logits,
    ) -> Result<Option<Tensor>> {
        let rope = self.rope.as_ref().expect("whoever made the cache set the tables");
        let cos = rope.cos.narrow(0, filled, tokens.len())?;
        let sin = rope.sin.narrow(0, filled, tokens.len())?;
        let ids = Tensor::new(tokens, &self.device)?;
        let mut xs = self.embeddings.embed(&ids)?;
        for (index, layer) in self.layers.iter().enumerate() {
            xs = layer.forward(config, index, &xs, (&cos, &sin), cache, filled)?;
        }
        match logits {
            Logits::Skip => Ok(None),
            Logits::Last => {
                let last = xs.narrow(0, tokens.len() - 1, 1)?;
                let last = ops::rms_norm(&last, &self.output_norm, config.rms_eps)?;
                let output = self.output.as_ref().unwrap_or(&self.embeddings);
                Ok(Some(output.forward(&last)?.squeeze(0)?))
            }
        }
    }
}

impl Layer {
    fn load(
        loader: &mut Loader,
        config: &ModelConfig,
        device: &Device,
        index: usize,
    ) -> anyhow::Result<Self> {
        let name = |suffix: &str| format!("blk.{index}.{suffix}");
        let (hidden, ffn) = (config.hidden, config.ffn);
        let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let head_norm = |suffix: &str| -> anyhow::Result<Option<Tensor>> {
            let name = name(suffix);
            if !loader.has(&name) {
                return Ok(None);
            }
            Ok(Some(loader.tensor(device, &name, &[config.head_dim])?))
        };
        let (q_norm, k_norm) = (head_norm("attn_q_norm.weight")?, head_norm("attn_k_norm.weight")?);
        Ok(Self {
            q_norm,
            k_norm,
            attention_norm: loader.tensor(device, &name("attn_norm.weight"), &[hidden])?,
            q: loader.linear(device, &name("attn_q"), q, hidden)?,
            k: loader.linear(device, &name("attn_k"), kv, hidden)?,
            v: loader.linear(device, &name("attn_v"), kv, hidden)?,
            attention_output: loader.linear(device, &name("attn_output"), hidden, q)?,
            ffn_norm: loader.tensor(device, &name("ffn_norm.weight"), &[hidden])?,
            gate: loader.linear(device, &name("ffn_gate"), ffn, hidden)?,
            up: loader.linear(device, &name("ffn_up"), ffn, hidden)?,
            down: loader.linear(device, &name("ffn_down"), hidden, ffn)?,
        })
    }

    fn forward(
        &self,
        config: &ModelConfig,
        index: usize,
        xs: &Tensor,
        rope: (&Tensor, &Tensor),
        cache: &DeviceKv,
        filled: usize,
    ) -> Result<Tensor> {
        let normed = ops::rms_norm(xs, &self.attention_norm, config.rms_eps)?;
        let xs = (xs + self.attention(config, index, &normed, rope, cache, filled)?)?;
        let normed = ops::rms_norm(&xs, &self.ffn_norm, config.rms_eps)?;
        let (gate, up) = (self.gate.forward(&normed)?, self.up.forward(&normed)?);
        let gated = ops::silu_mul(&gate, &up)?;
        xs + self.down.forward(&gated)?
    }

    fn attention(
        &self,
        config: &ModelConfig,
        index: usize,
        xs: &Tensor,
        (cos, sin): (&Tensor, &Tensor),
        cache: &DeviceKv,
        filled: usize,
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
        let q = rotate(heads(self.q.forward(xs)?, config.heads)?, &self.q_norm)?;
        let k = rotate(heads(self.k.forward(xs)?, config.kv_heads)?, &self.k_norm)?;
        let v = heads(self.v.forward(xs)?, config.kv_heads)?;
        let kv = cache.append(index, filled, &k, &v)?;
        self.attention_output.forward(&causal_attention(&q, &kv)?)
    }
}
