//! The size of a synthetic model, from its description: how many bytes its weights will have once they
//! are generated. What a description means, and whether it is sound, is the engine's to say; here a
//! description that cannot be read has no known size.

use serde::Deserialize;

/// The keys that decide the size; others are the engine's alone.
#[derive(Debug, Deserialize)]
struct RawGeometry {
    architecture: String,
    layers: u64,
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: Option<u64>,
    ffn: u64,
    vocab: u64,
    quantisation: String,
    #[serde(default)]
    tied_embeddings: bool,
}

/// Bytes of a block and weights in it, by the name of the type. From the block layouts of GGML.
const BLOCKS: &[(&str, u64, u64)] = &[
    ("f32", 4, 1),
    ("f16", 2, 1),
    ("bf16", 2, 1),
    ("q4_0", 18, 32),
    ("q4_1", 20, 32),
    ("q5_0", 22, 32),
    ("q5_1", 24, 32),
    ("q8_0", 34, 32),
    ("q2_k", 84, 256),
    ("q3_k", 110, 256),
    ("q4_k", 144, 256),
    ("q5_k", 176, 256),
    ("q6_k", 210, 256),
];

/// Norms and biases are F32.
const VECTOR_BYTES: u64 = 4;

/// The bytes of all tensors: matrices in the type that the description names, vectors in F32. `None`
/// where the description cannot be read, or names something unknown.
pub(crate) fn weight_bytes(text: &str) -> Option<u64> {
    let raw: RawGeometry = toml::from_str(text).ok()?;
    let name = raw.quantisation.to_ascii_lowercase();
    let (_, block_bytes, block_weights) = BLOCKS.iter().find(|(known, ..)| *known == name)?;
    let head_dim = match raw.head_dim {
        Some(head_dim) => head_dim,
        None => raw.hidden.checked_div(raw.heads)?,
    };
    let q = raw.heads.checked_mul(head_dim)?;
    let kv = raw.kv_heads.checked_mul(head_dim)?;
    let vectors = match raw.architecture.as_str() {
        "llama" => 0,
        // Biases of the query, key and value matrices.
        "qwen2" => kv.checked_mul(2)?.checked_add(q)?,
        // Norms over the heads of query and key.
        "qwen3" => head_dim.checked_mul(2)?,
        _ => return None,
    };
    let embeddings = if raw.tied_embeddings { 1 } else { 2 };
    let attention = q.checked_add(kv)?.checked_mul(2)?;
    let per_hidden = raw.ffn.checked_mul(3)?.checked_add(attention)?.checked_mul(raw.layers)?;
    let matrices =
        raw.vocab.checked_mul(embeddings)?.checked_add(per_hidden)?.checked_mul(raw.hidden)?;
    // Two norms a layer, and the last one.
    let vectors = raw
        .hidden
        .checked_mul(2)?
        .checked_add(vectors)?
        .checked_mul(raw.layers)?
        .checked_add(raw.hidden)?;
    matrices
        .div_ceil(*block_weights)
        .checked_mul(*block_bytes)?
        .checked_add(vectors.checked_mul(VECTOR_BYTES)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A published geometry, with every weight in F32 so that bytes count weights.
    fn published(architecture: &str, numbers: [u64; 6], more: &str) -> Option<u64> {
        let [layers, hidden, heads, kv_heads, ffn, vocab] = numbers;
        let bytes = weight_bytes(&format!(
            "architecture = \"{architecture}\"\nlayers = {layers}\nhidden = {hidden}\nheads = \
             {heads}\nkv_heads = {kv_heads}\nffn = {ffn}\nvocab = {vocab}\nquantisation = \
             \"f32\"\ncontext = 8192\nseed = 1\n{more}"
        ))?;
        Some(bytes / 4)
    }

    #[test]
    fn published_models_have_their_published_number_of_weights() {
        let tied = "tied_embeddings = true";
        let smollm2 = published("llama", [30, 576, 9, 3, 1536, 49152], tied);
        assert_eq!(smollm2, Some(134_515_008));
        let llama_1b = published("llama", [16, 2048, 32, 8, 8192, 128_256], tied);
        assert_eq!(llama_1b, Some(1_235_814_400));
        let llama_8b = published("llama", [32, 4096, 32, 8, 14336, 128_256], "");
        assert_eq!(llama_8b, Some(8_030_261_248));
        let qwen2 = published("qwen2", [24, 896, 14, 2, 4864, 151_936], tied);
        assert_eq!(qwen2, Some(494_032_768));
        let qwen3 = published(
            "qwen3",
            [28, 1024, 16, 8, 3072, 151_936],
            "head_dim = 128\ntied_embeddings = true",
        );
        assert_eq!(qwen3, Some(596_049_920));
    }

    #[test]
    fn quantised_matrices_take_their_blocks() {
        let geometry = |quantisation: &str| {
            weight_bytes(&format!(
                "architecture = \"llama\"\nlayers = 1\nhidden = 256\nheads = 4\nkv_heads = 4\nffn = \
                 256\nvocab = 256\nquantisation = \"{quantisation}\"\n"
            ))
        };
        // 9 matrices of 256 rows of 256, and 3 norms of 256 weights.
        let norms = 3 * 256 * 4;
        assert_eq!(geometry("F16"), Some(9 * 65536 * 2 + norms));
        assert_eq!(geometry("q4_1"), Some(9 * 65536 / 32 * 20 + norms));
        assert_eq!(geometry("q4_k"), Some(9 * 65536 / 256 * 144 + norms));
        assert_eq!(geometry("q9_x"), None);
    }

    #[test]
    fn what_cannot_be_read_has_no_size() {
        assert_eq!(weight_bytes(""), None);
        assert_eq!(weight_bytes("architecture = 3"), None);
        assert_eq!(published("mamba", [1, 1, 1, 1, 1, 1], ""), None);
        assert_eq!(published("llama", [1, 64, 0, 0, 1, 1], ""), None);
    }

    proptest! {
        #[test]
        fn no_numbers_overflow(numbers in any::<[u32; 6]>(), big in any::<[i64; 6]>()) {
            let _ = published("qwen2", numbers.map(u64::from), "");
            let _ = published("llama", big.map(i64::unsigned_abs), "");
        }
    }
}
