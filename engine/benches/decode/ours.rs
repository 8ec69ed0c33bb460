//! Arc.

use std::path::Path;
use std::time::Instant;

use candle_core::Device;
use engine::decode::{NoObserver, Pass, Request, generate};
use engine::model::gguf::Gguf;
use engine::model::{KvCache, Logits, Transformer};

use crate::Contestant;

pub(crate) struct Ours {
    model: Transformer,
    cache: KvCache,
    bytes: u64,
}

impl Ours {
    pub(crate) fn load(path: &Path, capacity: usize) -> anyhow::Result<Self> {
        let (gguf, _) = Gguf::read(path)?;
        let mut model = Transformer::load(&gguf, path, &Device::Cpu)?;
        let cache = model.new_cache(capacity)?;
        let tied = !gguf.tensors.contains_key("output.weight");
        let embeddings = gguf.tensor("token_embd.weight")?.bytes;
        let bytes = gguf.weight_bytes() - if tied { 0 } else { embeddings };
        Ok(Self { model, cache, bytes })
    }

    pub(crate) fn kernels(&self) -> &'static str {
        self.model.kernels()
    }

    pub(crate) fn weight_bytes_per_token(&self) -> u64 {
        self.bytes
    }
}

/// The same ids for every implementation.
pub(crate) fn prompt(tokens: usize) -> Vec<u32> {
    (0..tokens as u32).map(|index| (index * 7919 + 13) % 9000).collect()
}

impl Contestant for Ours {
    fn name(&self) -> &'static str {
        "Arc"
    }

    fn prefill(&mut self, tokens: usize) -> anyhow::Result<f64> {
        let prompt = prompt(tokens);
        let prefill_chunk = self.model.prefill_chunk();
        let request = Request { prompt: &prompt, max_tokens: 1, prefill_chunk, stop: &[] };
        let done =
            generate(&self.model, &mut self.cache, &request, Pass::Measured, &mut NoObserver)?;
        Ok(tokens as f64 / done.prefill.as_secs_f64())
    }

    fn fill(&mut self, kv: usize) -> anyhow::Result<()> {
        self.prefill(kv).map(|_| ())
    }

    fn decode(&mut self, _kv: usize, steps: usize) -> anyhow::Result<f64> {
        let start = Instant::now();
        let (mut token, mut logits) = (1, Vec::new());
        for _ in 0..steps {
            let cache = &mut self.cache;
            self.model.forward_batch(&[&[token]], &mut [cache], Logits::Last, &mut logits)?;
            token = argmax(&logits);
        }
        Ok(steps as f64 / start.elapsed().as_secs_f64())
    }
}

pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(index, _)| index as u32)
}
