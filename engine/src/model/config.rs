//! The shape of a model, out of a GGUF header's metadata, checked so that the rest can rely on it.

pub use formats::geometry::Architecture;

use super::gguf::{Gguf, GgufError};
use super::rope::RopeScaling;

/// Which two elements of a head a rotation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeLayout {
    /// Elements 2i and 2i+1.
    Pairs,
    /// Elements i and i + half.
    Halves,
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Which layers it is made of.
    pub architecture: Architecture,
    /// `general.name`, where the file has one.
    pub name: Option<String>,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Number of tokens.
    pub vocab: usize,
    /// Longest context, in tokens.
    pub context: usize,
    /// Added to the mean square under the root of every norm.
    pub rms_eps: f32,
    /// Base of the rotary embedding.
    pub rope_base: f32,
    /// How the rotary embedding is stretched.
    pub rope_scaling: RopeScaling,
}

impl ModelConfig {
    /// Reads and checks the metadata of a header.
    ///
    /// # Errors
    /// The key that is missing or wrong; an unsupported architecture or rope scaling, with a list
    /// of what is supported.
    pub fn parse(gguf: &Gguf) -> Result<Self, GgufError> {
        const ARCHITECTURE: &str = "general.architecture";
        let name = gguf
            .opt_str(ARCHITECTURE)?
            .ok_or_else(|| GgufError::MissingKey { key: ARCHITECTURE.to_owned() })?;
        let architecture = Architecture::parse(name)
            .map_err(|what| GgufError::BadKey { key: ARCHITECTURE.to_owned(), what })?;
        let key = |suffix: &str| format!("{}.{suffix}", architecture.name());
        // Every dimension is held to the file below or by the tensors' shapes, so that no number
        // from the metadata alone decides an allocation.
        let size = |suffix: &str| -> Result<usize, GgufError> {
            check_size(&key(suffix), gguf.need_u64(&key(suffix))?)
        };
        let opt_size = |suffix: &str| -> Result<Option<usize>, GgufError> {
            gguf.opt_u64(&key(suffix))?.map(|value| check_size(&key(suffix), value)).transpose()
        };

        let hidden = size("embedding_length")?;
        let heads = size("attention.head_count")?;
        let kv_heads = opt_size("attention.head_count_kv")?.unwrap_or(heads);
        let bad = |suffix: &str, what: String| GgufError::BadKey { key: key(suffix), what };
        if !heads.is_multiple_of(kv_heads) {
            let what = format!("is {kv_heads}, which does not divide the {heads} query heads");
            return Err(bad("attention.head_count_kv", what));
        }
        let head_dim = match opt_size("attention.key_length")? {
            Some(head_dim) => head_dim,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                let what = format!("is {heads}, which does not divide the width {hidden}");
                return Err(bad("attention.head_count", what));
            }
        };
        if let Some(value_length) = opt_size("attention.value_length")?
            && value_length != head_dim
        {
            let what = format!("is {value_length}, but keys have {head_dim}: not supported");
            return Err(bad("attention.value_length", what));
        }
        if !head_dim.is_multiple_of(2) {
            return Err(bad("attention.key_length", format!("is {head_dim}, which is odd")));
        }
        if let Some(rotated) = opt_size("rope.dimension_count")?
            && rotated != head_dim
        {
            let what = format!("is {rotated}, but heads have {head_dim}: not supported");
            return Err(bad("rope.dimension_count", what));
        }
        let embeddings = gguf.tensor("token_embd.weight")?;
        let &[vocab, _] = embeddings.dims.as_slice() else {
            let what = format!("tensor `token_embd.weight` has dimensions {:?}", embeddings.dims);
            return Err(GgufError::Corrupt { what, offset: embeddings.offset });
        };
        let positive = |suffix: &str, default: f64| -> Result<f32, GgufError> {
            let value = gguf.opt_f64(&key(suffix))?.unwrap_or(default);
            let fits = value.is_finite() && value > 0.0 && (value as f32).is_finite();
            fits.then_some(value as f32)
                .ok_or_else(|| bad(suffix, format!("must be a positive number, is {value}")))
        };
        let context = size("context_length")?;
        Ok(Self {
            architecture,
            name: gguf.opt_str("general.name")?.map(str::to_owned),
            layers: size("block_count")?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            ffn: size("feed_forward_length")?,
            vocab,
            context,
            rms_eps: positive("attention.layer_norm_rms_epsilon", 1e-5)?,
            rope_base: positive("rope.freq_base", 10_000.0)?,
            rope_scaling: RopeScaling::parse(gguf, architecture.name(), context)?,
        })
    }

    /// Which elements of a head are rotated together. GGUF files of `llama` have the rows of query
    /// and key permuted for neighbouring pairs; the others keep the two halves.
    pub fn rope_layout(&self) -> RopeLayout {
        match self.architecture {
            Architecture::Llama => RopeLayout::Pairs,
            Architecture::Qwen2 | Architecture::Qwen3 => RopeLayout::Halves,
        }
    }

    /// Query heads for each key head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

/// Sizes from metadata are whole numbers from 1 to 2³¹.
fn check_size(key: &str, value: u64) -> Result<usize, GgufError> {
    match usize::try_from(value) {
        Ok(size) if (1..=1 << 31).contains(&size) => Ok(size),
        _ => Err(GgufError::BadKey {
            key: key.to_owned(),
            what: format!("must be from 1 to 2147483648, is {value}"),
        }),
    }
}
