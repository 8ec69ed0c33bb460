//! Synthetic models as `bench-configs/models/NAME.toml` describes them: the pure part.
//!
//! Geometry, not weights, decides speed and memory, so a model of any size can be measured without
//! a download. Parses and checks a description and plans the tensors; writing the file is
//! [`super::synthetic`]'s part.

use candle_core::quantized::GgmlDType;
use serde::Deserialize;

use super::config::Architecture;
use super::gguf::{Array, TensorPlan, Value, tensor_type_id};

/// The types that weights of a synthetic model can have, by the name in the description.
const QUANTISATIONS: [(&str, GgmlDType); 13] = [
    ("f32", GgmlDType::F32),
    ("f16", GgmlDType::F16),
    ("bf16", GgmlDType::BF16),
    ("q4_0", GgmlDType::Q4_0),
    ("q4_1", GgmlDType::Q4_1),
    ("q5_0", GgmlDType::Q5_0),
    ("q5_1", GgmlDType::Q5_1),
    ("q8_0", GgmlDType::Q8_0),
    ("q2_k", GgmlDType::Q2K),
    ("q3_k", GgmlDType::Q3K),
    ("q4_k", GgmlDType::Q4K),
    ("q5_k", GgmlDType::Q5K),
    ("q6_k", GgmlDType::Q6K),
];

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

/// A checked description.
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry {
    /// Which layers the model is made of.
    pub architecture: Architecture,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Number of tokens.
    pub vocab: usize,
    /// Longest context, in tokens.
    pub context: usize,
    /// Type of the matrices; norms and biases are F32.
    pub quantisation: GgmlDType,
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
    /// It is no TOML, lacks a key, or a value has the wrong type.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// It has a key that means nothing.
    #[error("unknown key `{key}`; the nearest known one is `{nearest}`")]
    UnknownKey {
        /// The key.
        key: String,
        /// The known key that it resembles most.
        nearest: &'static str,
    },
    /// A value that cannot be.
    #[error("`{key}`: {what}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

impl Geometry {
    /// Parses and checks a description.
    ///
    /// # Errors
    /// The key that is unknown, missing or wrong, and why.
    pub fn parse(text: &str) -> Result<Self, GeometryError> {
        let table: toml::Table = text.parse()?;
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let score = |known: &&'static str| (strsim::jaro_winkler(key, known) * 1e6) as u64;
            let nearest = KEYS.into_iter().max_by_key(score).expect("there are known keys");
            return Err(GeometryError::UnknownKey { key: key.clone(), nearest });
        }
        let raw: RawGeometry = toml::from_str(text)?;
        let refuse = |key, what| Err(GeometryError::Value { key, what });
        for (key, value) in [
            ("layers", raw.layers),
            ("hidden", raw.hidden),
            ("heads", raw.heads),
            ("kv_heads", raw.kv_heads),
            ("ffn", raw.ffn),
            ("vocab", raw.vocab),
            ("context", raw.context),
        ] {
            if value == 0 || value > 1 << 24 {
                return refuse(key, format!("must be from 1 to 16777216, is {value}"));
            }
        }
        let architecture = match Architecture::parse(&raw.architecture) {
            Ok(architecture) => architecture,
            Err(what) => return refuse("architecture", what),
        };
        let name = raw.quantisation.to_ascii_lowercase();
        let Some(&(_, quantisation)) = QUANTISATIONS.iter().find(|entry| entry.0 == name) else {
            let known = QUANTISATIONS.map(|entry| entry.0).join(", ");
            return refuse(
                "quantisation",
                format!("`{name}` is not supported; supported: {known}"),
            );
        };
        let head_dim = match raw.head_dim {
            Some(head_dim) => head_dim,
            None if raw.hidden.is_multiple_of(raw.heads) => raw.hidden / raw.heads,
            None => {
                let what = format!("does not divide hidden {}; give `head_dim`", raw.hidden);
                return refuse("heads", what);
            }
        };
        if head_dim == 0 || !head_dim.is_multiple_of(2) || head_dim > 1 << 16 {
            return refuse("head_dim", format!("must be even and positive, is {head_dim}"));
        }
        if !raw.heads.is_multiple_of(raw.kv_heads) {
            return refuse("kv_heads", format!("must divide heads {}", raw.heads));
        }
        let block = quantisation.block_size();
        for (key, row) in
            [("hidden", raw.hidden), ("ffn", raw.ffn), ("heads", raw.heads * head_dim)]
        {
            if !row.is_multiple_of(block) {
                let what = format!("rows of {row} are no multiple of {name}'s block of {block}");
                return refuse(key, what);
            }
        }
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
            rope_base: raw.rope_base.unwrap_or(10_000.0),
            rms_eps: raw.rms_eps.unwrap_or(1e-5),
        })
    }

    /// The metadata of the file.
    pub fn plan_metadata(&self, name: &str) -> Vec<(String, Value)> {
        let arch = self.architecture.name();
        let number = |value: usize| Value::Unsigned(value as u64);
        let mut metadata = vec![
            ("general.architecture".to_owned(), Value::String(arch.to_owned())),
            ("general.name".to_owned(), Value::String(name.to_owned())),
            ("general.tags".to_owned(), Value::Array(Array::String(vec!["synthetic".to_owned()]))),
        ];
        let mut add = |suffix: &str, value| metadata.push((format!("{arch}.{suffix}"), value));
        add("block_count", number(self.layers));
        add("embedding_length", number(self.hidden));
        add("attention.head_count", number(self.heads));
        add("attention.head_count_kv", number(self.kv_heads));
        add("attention.key_length", number(self.head_dim));
        add("attention.value_length", number(self.head_dim));
        add("feed_forward_length", number(self.ffn));
        add("vocab_size", number(self.vocab));
        add("context_length", number(self.context));
        add("attention.layer_norm_rms_epsilon", Value::Float(self.rms_eps));
        add("rope.freq_base", Value::Float(self.rope_base));
        add("rope.dimension_count", number(self.head_dim));
        metadata.push((
            "general.quantization_type".to_owned(),
            Value::Unsigned(u64::from(tensor_type_id(self.quantisation))),
        ));
        metadata
    }

    /// The tensors of the file, in order.
    pub fn plan_tensors(&self) -> Vec<TensorPlan> {
        let mut plans = Vec::new();
        let matrix = self.quantisation;
        let mut add = |name: String, dtype, dims: &[usize]| {
            plans.push(TensorPlan { name, dtype, dims: dims.to_vec() });
        };
        let (hidden, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        add("token_embd.weight".to_owned(), matrix, &[self.vocab, hidden]);
        for layer in 0..self.layers {
            let name = |suffix: &str| format!("blk.{layer}.{suffix}");
            add(name("attn_norm.weight"), GgmlDType::F32, &[hidden]);
            add(name("attn_q.weight"), matrix, &[q, hidden]);
            add(name("attn_k.weight"), matrix, &[kv, hidden]);
            add(name("attn_v.weight"), matrix, &[kv, hidden]);
            add(name("attn_output.weight"), matrix, &[hidden, q]);
            match self.architecture {
                Architecture::Llama => {}
                Architecture::Qwen2 => {
                    add(name("attn_q.bias"), GgmlDType::F32, &[q]);
                    add(name("attn_k.bias"), GgmlDType::F32, &[kv]);
                    add(name("attn_v.bias"), GgmlDType::F32, &[kv]);
                }
                Architecture::Qwen3 => {
                    add(name("attn_q_norm.weight"), GgmlDType::F32, &[self.head_dim]);
                    add(name("attn_k_norm.weight"), GgmlDType::F32, &[self.head_dim]);
                }
            }
            add(name("ffn_norm.weight"), GgmlDType::F32, &[hidden]);
            add(name("ffn_gate.weight"), matrix, &[ffn, hidden]);
            add(name("ffn_up.weight"), matrix, &[ffn, hidden]);
            add(name("ffn_down.weight"), matrix, &[hidden, ffn]);
        }
        add("output_norm.weight".to_owned(), GgmlDType::F32, &[hidden]);
        if !self.tied_embeddings {
            add("output.weight".to_owned(), matrix, &[self.vocab, hidden]);
        }
        plans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = r#"
        architecture = "llama"
        layers = 2
        hidden = 64
        heads = 4
        kv_heads = 2
        ffn = 128
        vocab = 96
        context = 256
        quantisation = "q8_0"
        seed = 1
    "#;

    #[test]
    fn a_description_is_parsed_with_its_defaults() {
        let geometry = Geometry::parse(TINY).unwrap();
        assert_eq!(geometry.head_dim, 16);
        assert_eq!(geometry.quantisation, GgmlDType::Q8_0);
        assert!(!geometry.tied_embeddings);
        assert_eq!(geometry.plan_tensors().len(), 1 + 2 * 9 + 2);
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let error = Geometry::parse(&TINY.replace("kv_heads", "kvheads")).unwrap_err();
        assert_eq!(error.to_string(), "unknown key `kvheads`; the nearest known one is `kv_heads`");
    }

    #[test]
    fn what_cannot_be_is_refused_by_key() {
        for (from, to, expected) in [
            ("kv_heads = 2", "kv_heads = 3", "`kv_heads`: must divide heads 4"),
            ("hidden = 64", "hidden = 66", "`heads`: does not divide hidden 66"),
            ("layers = 2", "layers = 0", "`layers`: must be from 1"),
            ("\"q8_0\"", "\"q4_k\"", "`hidden`: rows of 64 are no multiple of q4_k's block"),
            ("\"q8_0\"", "\"q9\"", "`quantisation`: `q9` is not supported; supported: f32, f16"),
            ("\"llama\"", "\"gpt\"", "`architecture`: architecture `gpt` is not supported"),
        ] {
            let error = Geometry::parse(&TINY.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
