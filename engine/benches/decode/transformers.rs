//! candle-transformers' quantised Llama.

use std::path::Path;
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

use crate::Contestant;
use crate::ours::{argmax, prompt};

pub(crate) struct Transformers {
    model: ModelWeights,
    position: usize,
}

impl Transformers {
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let mut file = std::fs::File::open(path)?;
        let content = Content::read(&mut file)?;
        let model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
        Ok(Self { model, position: 0 })
    }

    fn forward(&mut self, tokens: &[u32]) -> anyhow::Result<u32> {
        let input = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        let logits = self.model.forward(&input, self.position)?.squeeze(0)?;
        self.position += tokens.len();
        Ok(argmax(&logits.to_vec1::<f32>()?))
    }
}

impl Contestant for Transformers {
    fn name(&self) -> &'static str {
        "candle-transformers"
    }

    fn prefill(&mut self, tokens: usize) -> anyhow::Result<f64> {
        let prompt = prompt(tokens);
        // From position 0 on, the model begins a new cache.
        self.position = 0;
        let start = Instant::now();
        self.forward(&prompt)?;
        Ok(tokens as f64 / start.elapsed().as_secs_f64())
    }

    fn fill(&mut self, kv: usize) -> anyhow::Result<()> {
        self.prefill(kv).map(|_| ())
    }

    fn decode(&mut self, _kv: usize, steps: usize) -> anyhow::Result<f64> {
        let start = Instant::now();
        let mut token = 1;
        for _ in 0..steps {
            token = self.forward(&[token])?;
        }
        Ok(steps as f64 / start.elapsed().as_secs_f64())
    }
}
