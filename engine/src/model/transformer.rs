//! The forward pass: embeddings, layers, output, in the order of computation.
//!
//! It is written twice: over slices, with this crate's kernels, on the processor; over candle's
//! tensors on a device.

use std::path::Path;

use candle_core::{Device, Result, Tensor, bail};
use rotation::Rotations;

use super::config::ModelConfig;
use super::gguf::Gguf;
use super::kv_cache::{KvCache, KvType, Store};
use super::load::Loader;
use super::simd::Kernels;

mod device;
mod host;
mod rotation;

/// Whether the processor is of a kind that the kernels are made for. Others take candle's.
pub(super) const HAS_KERNELS: bool = cfg!(target_arch = "x86_64");

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
    rotations: Rotations,
    /// Positions that the rotations are prepared for.
    positions: usize,
    weights: Weights,
}

#[derive(Debug)]
enum Weights {
    Host(host::HostModel),
    Device(device::DeviceModel),
}

impl Transformer {
    /// Reads the weights of `path`, whose header is `gguf`, for the fastest kernels that there are.
    ///
    /// # Errors
    /// A tensor is missing, has another shape than the metadata say or a type that the device has no
    /// kernels for, or cannot be read; a tensor that nothing uses.
    pub fn load(gguf: &Gguf, path: &Path, device: &Device) -> anyhow::Result<Self> {
        Self::load_for(gguf, path, device, Kernels::detect())
    }

    /// [`Transformer::load`] for the given kernels of the processor.
    ///
    /// # Errors
    /// As there.
    pub fn load_for(
        gguf: &Gguf,
        path: &Path,
        device: &Device,
        kernels: Kernels,
    ) -> anyhow::Result<Self> {
        let config = ModelConfig::parse(gguf)?;
        let mut loader = Loader::open(gguf, path)?;
        let weights = if device.is_cpu() && HAS_KERNELS {
            Weights::Host(host::HostModel::load(&mut loader, &config, kernels)?)
        } else if let Some(what) = config.beyond_candle() {
            anyhow::bail!(
                "{what} needs this crate's kernels, which are for x86-64 processors: candle's \
                 products, which other devices take, run llama, qwen2 and qwen3 without it"
            );
        } else {
            Weights::Device(device::DeviceModel::load(&mut loader, &config, device)?)
        };
        let rotations = Rotations::load(&loader, &config)?;
        loader.check_all_used(config.layers)?;
        Ok(Self { config, device: device.clone(), rotations, positions: 0, weights })
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device that the weights are on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernels that run: [`Kernels::name`], or `candle` where candle's do.
    pub fn kernels(&self) -> &'static str {
        match &self.weights {
            Weights::Host(model) => model.kernels().name(),
            Weights::Device(_) => "candle",
        }
    }

    /// Tokens of a prefill forward where nobody says how many: 512, or as many as keep the activations
    /// on the processor within 48 MiB, but 64 at least.
    pub fn prefill_chunk(&self) -> usize {
        match &self.weights {
            Weights::Host(model) => model.prefill_chunk(&self.config),
            Weights::Device(_) => 512,
        }
    }

    /// A cache for `capacity` positions, of the type that is the device's default; prepares the
    /// rotations for as many. Models with factors for long contexts take them from the first cache
    /// on that has room for one.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new_cache(&mut self, capacity: usize) -> Result<KvCache> {
        self.new_cache_of(capacity, KvType::default_for(&self.device))
    }

    /// [`Transformer::new_cache`] with keys and values of the given type.
    ///
    /// # Errors
    /// Those of the device; a type that it does not take.
    pub fn new_cache_of(&mut self, capacity: usize, kv_type: KvType) -> Result<KvCache> {
        if self.positions < capacity {
            let mut tables = self.rotations.tables(capacity);
            match &mut self.weights {
                Weights::Host(model) => model.set_rope(tables),
                Weights::Device(model) => model.set_rope(&self.config, tables.swap_remove(0))?,
            }
            self.positions = capacity;
        }
        match &self.weights {
            Weights::Host(_) => Ok(KvCache::on_host(&self.config, capacity, kv_type)),
            Weights::Device(_) if kv_type == KvType::F32 => {
                KvCache::on_device(&self.config, capacity, &self.device)
            }
            Weights::Device(_) => {
                bail!(
                    "a KV cache of type {} needs this crate's kernels, which candle's products \
                       do not take; type f32 runs",
                    kv_type.name()
                )
            }
        }
    }

    /// Runs `tokens`, which follow what the cache holds, and adds them to it. Returns the logits
    /// `[vocab]` in F32 where they are asked for.
    ///
    /// # Errors
    /// No tokens, an id beyond the vocabulary, a full cache; a hidden state that is not finite; those
    /// of the device.
    pub fn forward(
        &self,
        tokens: &[u32],
        cache: &mut KvCache,
        logits: Logits,
    ) -> Result<Option<Tensor>> {
        match &self.weights {
            Weights::Host(_) => {
                let mut out = Vec::new();
                self.forward_batch(&[tokens], &mut [cache], logits, &mut out)?;
                match logits {
                    Logits::Skip => Ok(None),
                    Logits::Last => Ok(Some(Tensor::new(out, &self.device)?)),
                }
            }
            Weights::Device(model) => {
                self.check(tokens, cache)?;
                let filled = cache.len();
                let Store::Device(store) = &cache.store else {
                    bail!("the cache was not made by this model");
                };
                let logits = model.forward(&self.config, tokens, store, filled, logits)?;
                cache.advance(tokens.len());
                Ok(logits)
            }
        }
    }

    /// [`Transformer::forward`] of several sequences together: the tokens of each follow what its
    /// cache holds. The logits of each sequence's last token replace what is in `out`, `vocab` of them
    /// after each other.
    ///
    /// # Errors
    /// As there.
    pub fn forward_batch(
        &self,
        tokens: &[&[u32]],
        caches: &mut [&mut KvCache],
        logits: Logits,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        if tokens.len() != caches.len() {
            bail!("{} sequences do not fit {} caches", tokens.len(), caches.len());
        }
        for (tokens, cache) in tokens.iter().zip(caches.iter()) {
            self.check(tokens, cache)?;
        }
        out.clear();
        match &self.weights {
            Weights::Host(model) => {
                model.forward(&self.config, tokens, caches, logits, out)?;
                for (tokens, cache) in tokens.iter().zip(caches) {
                    cache.advance(tokens.len());
                }
            }
            Weights::Device(_) => {
                for (tokens, cache) in tokens.iter().zip(caches) {
                    if let Some(logits) = self.forward(tokens, cache, logits)? {
                        out.extend(logits.to_vec1::<f32>()?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a cache can take these tokens.
    fn check(&self, tokens: &[u32], cache: &KvCache) -> Result<()> {
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
        if filled > self.positions {
            bail!("the cache was not made by this model");
        }
        Ok(())
    }
}
