//! What the GGUF file of a geometry holds: metadata and tensors, in order. Pure.

use candle_core::quantized::GgmlDType;
use formats::geometry::{Architecture, Geometry, Quantisation};

use crate::model::gguf::{Array, TensorPlan, Value, tensor_type_id};

pub(super) fn ggml_type(quantisation: Quantisation) -> GgmlDType {
    match quantisation {
        Quantisation::F32 => GgmlDType::F32,
        Quantisation::F16 => GgmlDType::F16,
        Quantisation::BF16 => GgmlDType::BF16,
        Quantisation::Q4_0 => GgmlDType::Q4_0,
        Quantisation::Q4_1 => GgmlDType::Q4_1,
        Quantisation::Q5_0 => GgmlDType::Q5_0,
        Quantisation::Q5_1 => GgmlDType::Q5_1,
        Quantisation::Q8_0 => GgmlDType::Q8_0,
        Quantisation::Q2K => GgmlDType::Q2K,
        Quantisation::Q3K => GgmlDType::Q3K,
        Quantisation::Q4K => GgmlDType::Q4K,
        Quantisation::Q5K => GgmlDType::Q5K,
        Quantisation::Q6K => GgmlDType::Q6K,
    }
}

pub(super) fn plan_metadata(geometry: &Geometry, name: &str) -> Vec<(String, Value)> {
    let arch = geometry.architecture.name();
    let number = |value: usize| Value::Unsigned(value as u64);
    let mut metadata = vec![
        ("general.architecture".to_owned(), Value::String(arch.to_owned())),
        ("general.name".to_owned(), Value::String(name.to_owned())),
        ("general.tags".to_owned(), Value::Array(Array::String(vec!["synthetic".to_owned()]))),
        // With this llama.cpp takes a file without a tokenizer.
        ("tokenizer.ggml.model".to_owned(), Value::String("none".to_owned())),
    ];
    let mut add = |suffix: &str, value| metadata.push((format!("{arch}.{suffix}"), value));
    add("block_count", number(geometry.layers));
    add("embedding_length", number(geometry.hidden));
    add("attention.head_count", number(geometry.heads));
    add("attention.head_count_kv", number(geometry.kv_heads));
    add("attention.key_length", number(geometry.head_dim));
    add("attention.value_length", number(geometry.head_dim));
    add("feed_forward_length", number(geometry.ffn));
    add("vocab_size", number(geometry.vocab));
    add("context_length", number(geometry.context));
    add("attention.layer_norm_rms_epsilon", Value::Float(geometry.rms_eps));
    add("rope.freq_base", Value::Float(geometry.rope_base));
    add("rope.dimension_count", number(geometry.head_dim));
    metadata.push((
        "general.quantization_type".to_owned(),
        Value::Unsigned(u64::from(tensor_type_id(ggml_type(geometry.quantisation)))),
    ));
    metadata
}

pub(super) fn plan_tensors(geometry: &Geometry) -> Vec<TensorPlan> {
    let mut plans = Vec::new();
    let matrix = ggml_type(geometry.quantisation);
    let mut add = |name: String, dtype, dims: &[usize]| {
        plans.push(TensorPlan { name, dtype, dims: dims.to_vec() });
    };
    let (hidden, ffn, head_dim) = (geometry.hidden, geometry.ffn, geometry.head_dim);
    let (q, kv) = (geometry.heads * head_dim, geometry.kv_heads * head_dim);
    add("token_embd.weight".to_owned(), matrix, &[geometry.vocab, hidden]);
    for layer in 0..geometry.layers {
        let name = |suffix: &str| format!("blk.{layer}.{suffix}");
        add(name("attn_norm.weight"), GgmlDType::F32, &[hidden]);
        add(name("attn_q.weight"), matrix, &[q, hidden]);
        add(name("attn_k.weight"), matrix, &[kv, hidden]);
        add(name("attn_v.weight"), matrix, &[kv, hidden]);
        add(name("attn_output.weight"), matrix, &[hidden, q]);
        match geometry.architecture {
            Architecture::Llama => {}
            Architecture::Qwen2 => {
                add(name("attn_q.bias"), GgmlDType::F32, &[q]);
                add(name("attn_k.bias"), GgmlDType::F32, &[kv]);
                add(name("attn_v.bias"), GgmlDType::F32, &[kv]);
            }
            Architecture::Qwen3 => {
                add(name("attn_q_norm.weight"), GgmlDType::F32, &[head_dim]);
                add(name("attn_k_norm.weight"), GgmlDType::F32, &[head_dim]);
            }
        }
        add(name("ffn_norm.weight"), GgmlDType::F32, &[hidden]);
        add(name("ffn_gate.weight"), matrix, &[ffn, hidden]);
        add(name("ffn_up.weight"), matrix, &[ffn, hidden]);
        add(name("ffn_down.weight"), matrix, &[hidden, ffn]);
    }
    add("output_norm.weight".to_owned(), GgmlDType::F32, &[hidden]);
    if !geometry.tied_embeddings {
        add("output.weight".to_owned(), matrix, &[geometry.vocab, hidden]);
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workflow decides by [`Geometry::weight_bytes`] whether a model fits.
    #[test]
    fn the_planned_tensors_have_the_size_that_the_geometry_announces() {
        for architecture in Architecture::ALL {
            for quantisation in Quantisation::ALL {
                let dtype = ggml_type(quantisation);
                assert_eq!(quantisation.block_weights(), dtype.block_size(), "{dtype:?}");
                assert_eq!(quantisation.block_bytes(), dtype.type_size(), "{dtype:?}");
                for tied_embeddings in [false, true] {
                    let geometry = Geometry::parse(&format!(
                        "architecture = \"{}\"\nlayers = 3\nhidden = 512\nheads = 8\n\
                         kv_heads = 2\nhead_dim = 96\nffn = 768\nvocab = 100\ncontext = 64\n\
                         quantisation = \"{}\"\nseed = 5\ntied_embeddings = {tied_embeddings}\n",
                        architecture.name(),
                        quantisation.name(),
                    ))
                    .unwrap();
                    let planned: u64 = plan_tensors(&geometry).iter().map(TensorPlan::bytes).sum();
                    assert_eq!(planned, geometry.weight_bytes(), "{geometry:?}");
                }
            }
        }
    }
}
