//! Synthetic models as `bench-configs/models/NAME.toml` describes them.
//!
//! Geometry, not weights, decides speed and memory, so a model of any size can be measured without a
//! download. A description is parsed and checked here, and the size of its weights computed; the
//! engine writes the file, the workflow asks only how large it will be.

use serde::Deserialize;

/// The architectures that the engine implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama, and what shares its layers: SmolLM2, Mistral, Llama 2 and 3.
    Llama,
    /// Qwen2 and Qwen2.5: biases on query, key and value.
    Qwen2,
    /// Qwen3: norms on each query and key head.
    Qwen3,
}

impl Architecture {
    /// All of them, in the order in which messages list them.
    pub const ALL: [Self; 3] = [Self::Llama, Self::Qwen2, Self::Qwen3];

    /// The name in a description, and in a GGUF file's `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// The architecture of that name.
    ///
    /// # Errors
    /// A text that names `name` and lists what is supported.
    pub fn parse(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("architecture `{name}` is not supported; supported: {names}")
        })
    }
}

/// The types that a synthetic model's matrices can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are GGML's")]
pub enum Quantisation {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl Quantisation {
    /// All of them, in the order in which messages list them.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Name, weights of a block and bytes of a block, from the block layouts of GGML.
    fn layout(self) -> (&'static str, usize, usize) {
        match self {
            Self::F32 => ("f32", 1, 4),
            Self::F16 => ("f16", 1, 2),
            Self::BF16 => ("bf16", 1, 2),
            Self::Q4_0 => ("q4_0", 32, 18),
            Self::Q4_1 => ("q4_1", 32, 20),
            Self::Q5_0 => ("q5_0", 32, 22),
            Self::Q5_1 => ("q5_1", 32, 24),
            Self::Q8_0 => ("q8_0", 32, 34),
            Self::Q2K => ("q2_k", 256, 84),
            Self::Q3K => ("q3_k", 256, 110),
            Self::Q4K => ("q4_k", 256, 144),
            Self::Q5K => ("q5_k", 256, 176),
            Self::Q6K => ("q6_k", 256, 210),
        }
    }

    /// The name in a description, in lower case.
    pub fn name(self) -> &'static str {
        self.layout().0
    }

    /// How many weights a block holds.
    pub fn block_weights(self) -> usize {
        self.layout().1
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.layout().2
    }

    /// Ignores case.
    fn parse(name: &str) -> Result<Self, String> {
        let name = name.to_ascii_lowercase();
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{name}` is not supported; supported: {names}")
        })
    }
}

/// A checked description. Lengths count elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry {
    /// Decides which tensors a layer has.
    pub architecture: Architecture,
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
    /// Number of tokens in the vocabulary.
    pub vocab: usize,
    /// Longest context, in tokens.
    pub context: usize,
    /// Type of the matrices; norms and biases are F32. Every row is a whole number of its blocks.
    pub quantisation: Quantisation,
    /// Seed of the weights.
    pub seed: u64,
    /// Whether the output matrix is the embedding matrix.
    pub tied_embeddings: bool,
    /// Base of the rotary embedding.
    pub rope_base: f64,
    /// Added to the mean square under the root of every norm.
    pub rms_eps: f64,
}

/// Why a description was refused.
#[derive(Debug, thiserror::Error)]
pub enum GeometryError {
    /// It is not TOML, a key is missing, or a value has the wrong type.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A key that means nothing.
    #[error("unknown key `{key}`; the nearest known one is `{nearest}`")]
    UnknownKey {
        /// As it stands in the description.
        key: String,
        /// The known key that it resembles most.
        nearest: &'static str,
    },
    /// A value that cannot be.
    #[error("`{key}`: {what}")]
    Value {
        /// Whose value it is.
        key: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

const KEYS: [&str; 14] = [
    "architecture",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "vocab",
    "context",
    "quantisation",
    "seed",
    "tied_embeddings",
    "rope_base",
    "rms_eps",
];

/// A description as it stands in the file.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
struct RawGeometry {
    architecture: String,
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: Option<usize>,
    ffn: usize,
    vocab: usize,
    context: usize,
    quantisation: String,
    seed: u64,
    #[serde(default)]
    tied_embeddings: bool,
    rope_base: Option<f64>,
    rms_eps: Option<f64>,
}

/// What a size may be at most: far above any model, and small enough that no product of three
/// overflows.
const MAX_SIZE: usize = 1 << 24;
const MAX_HEAD_DIM: usize = 1 << 16;

impl Geometry {
    /// Parses and checks a description.
    ///
    /// # Errors
    /// The key that is unknown, missing or wrong, and why.
    pub fn parse(text: &str) -> Result<Self, GeometryError> {
        let table: toml::Table = text.parse()?;
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(GeometryError::UnknownKey { key: key.clone(), nearest: nearest_key(key) });
        }
        Self::check(toml::from_str(text)?)
    }

    fn check(raw: RawGeometry) -> Result<Self, GeometryError> {
        let refused = |key, what| GeometryError::Value { key, what };
        for (key, value) in [
            ("layers", raw.layers),
            ("hidden", raw.hidden),
            ("heads", raw.heads),
            ("kv_heads", raw.kv_heads),
            ("ffn", raw.ffn),
            ("vocab", raw.vocab),
            ("context", raw.context),
        ] {
            if value == 0 || value > MAX_SIZE {
                return Err(refused(key, format!("must be from 1 to {MAX_SIZE}, is {value}")));
            }
        }
        let architecture =
            Architecture::parse(&raw.architecture).map_err(|what| refused("architecture", what))?;
        let quantisation =
            Quantisation::parse(&raw.quantisation).map_err(|what| refused("quantisation", what))?;
        let head_dim = match raw.head_dim {
            Some(head_dim) => head_dim,
            None if raw.hidden.is_multiple_of(raw.heads) => raw.hidden / raw.heads,
            None => {
                let what = format!("does not divide hidden {}; give `head_dim`", raw.hidden);
                return Err(refused("heads", what));
            }
        };
        if head_dim == 0 || !head_dim.is_multiple_of(2) || head_dim > MAX_HEAD_DIM {
            let what = format!("must be even and from 2 to {MAX_HEAD_DIM}, is {head_dim}");
            return Err(refused("head_dim", what));
        }
        if !raw.heads.is_multiple_of(raw.kv_heads) {
            return Err(refused("kv_heads", format!("must divide heads {}", raw.heads)));
        }
        let block = quantisation.block_weights();
        for (key, row) in
            [("hidden", raw.hidden), ("ffn", raw.ffn), ("heads", raw.heads * head_dim)]
        {
            if !row.is_multiple_of(block) {
                let name = quantisation.name();
                let what =
                    format!("a row of {row} is not a whole number of {name}'s blocks of {block}");
                return Err(refused(key, what));
            }
        }
        let positive = |key, value: Option<f64>, default: f64| {
            let value = value.unwrap_or(default);
            // The engine computes in F32.
            let fits = value > 0.0 && value as f32 > 0.0 && (value as f32).is_finite();
            let what = || format!("must be a positive number, is {value}");
            if fits { Ok(value) } else { Err(refused(key, what())) }
        };
        Ok(Self {
            architecture,
            layers: raw.layers,
            hidden: raw.hidden,
            heads: raw.heads,
            kv_heads: raw.kv_heads,
            head_dim,
            ffn: raw.ffn,
            vocab: raw.vocab,
            context: raw.context,
            quantisation,
            seed: raw.seed,
            tied_embeddings: raw.tied_embeddings,
            rope_base: positive("rope_base", raw.rope_base, 10_000.0)?,
            rms_eps: positive("rms_eps", raw.rms_eps, 1e-5)?,
        })
    }

    /// Bytes of all tensors: matrices in their type, norms and biases in F32. `u64::MAX` for a
    /// description whose size no `u64` holds.
    pub fn weight_bytes(&self) -> u64 {
        let wide = |size: usize| size as u128;
        let (hidden, layers) = (wide(self.hidden), wide(self.layers));
        let q = wide(self.heads * self.head_dim);
        let kv = wide(self.kv_heads * self.head_dim);
        let vectors_of_attention = match self.architecture {
            Architecture::Llama => 0,
            Architecture::Qwen2 => q + 2 * kv,
            Architecture::Qwen3 => 2 * wide(self.head_dim),
        };
        let embeddings = if self.tied_embeddings { 1 } else { 2 };
        let matrix_rows_of_layer = 2 * (q + kv) + 3 * wide(self.ffn);
        let matrices = hidden * (embeddings * wide(self.vocab) + layers * matrix_rows_of_layer);
        let vectors = layers * (2 * hidden + vectors_of_attention) + hidden;
        let bytes = matrices / wide(self.quantisation.block_weights())
            * wide(self.quantisation.block_bytes())
            + vectors * size_of::<f32>() as u128;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

fn nearest_key(key: &str) -> &'static str {
    let score = |known: &&'static str| (strsim::jaro_winkler(key, known) * 1e6) as u64;
    KEYS.into_iter().max_by_key(score).unwrap_or(KEYS[0])
}

#[cfg(test)]
mod tests;
