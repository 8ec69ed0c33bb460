//! What metadata become, and what is refused.

use std::collections::BTreeMap;

use super::*;
use crate::model::gguf::{Array, TensorInfo, TensorType, Value};

impl ModelConfig {
    /// A layer of so many heads, for tests of its parts.
    pub(in crate::model) fn of_heads(heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        let mut gguf = header("llama", 1);
        for (suffix, value) in [
            ("embedding_length", heads * head_dim),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
            ("attention.key_length", head_dim),
        ] {
            gguf.metadata.insert(format!("llama.{suffix}"), Value::Unsigned(value as u64));
        }
        Self::parse(&gguf).unwrap()
    }
}

/// A header with the least that a configuration needs.
fn header(architecture: &str, layers: u64) -> Gguf {
    let key = |suffix: &str, value| (format!("{architecture}.{suffix}"), Value::Unsigned(value));
    let mut metadata = BTreeMap::from([
        ("general.architecture".to_owned(), Value::String(architecture.to_owned())),
        key("block_count", layers),
        key("embedding_length", 64),
        key("attention.head_count", 4),
        key("feed_forward_length", 96),
        key("context_length", 4096),
    ]);
    if architecture.ends_with("moe") {
        metadata.extend([key("expert_count", 8), key("expert_used_count", 2)]);
    }
    let info = |dims: &[usize]| TensorInfo {
        dtype: TensorType::F32,
        dims: dims.to_vec(),
        part: 0,
        offset: 0,
        bytes: 0,
    };
    let mut tensors = BTreeMap::from([("token_embd.weight".to_owned(), info(&[100, 64]))]);
    for layer in 0..layers {
        tensors.insert(format!("blk.{layer}.attn_output.weight"), info(&[64, 64]));
    }
    Gguf { version: 3, metadata, tensors, file_bytes: 0, parts: Vec::new() }
}

fn with(architecture: &str, layers: u64, keys: &[(&str, Value)]) -> Result<ModelConfig, String> {
    let mut gguf = header(architecture, layers);
    for (suffix, value) in keys {
        gguf.metadata.insert(format!("{architecture}.{suffix}"), value.clone());
    }
    ModelConfig::parse(&gguf).map_err(|error| error.to_string())
}

fn windows(config: &ModelConfig) -> Vec<Option<usize>> {
    config.each_layer.iter().map(|layer| layer.window).collect()
}

#[test]
fn every_architecture_needs_no_more_than_the_least() {
    for architecture in crate::model::architectures::ARCHITECTURES {
        let config = with(architecture.name(), 2, &[]).unwrap();
        assert_eq!(config.architecture, architecture);
        assert_eq!((config.each_layer.len(), config.head_dim, config.rotated), (2, 16, 16));
    }
}

#[test]
fn attention_that_sees_later_tokens_is_refused() {
    let error = with("llama", 1, &[("attention.causal", Value::Bool(false))]).unwrap_err();
    assert!(error.starts_with("metadata key `llama.attention.causal`: is false"), "{error}");
    with("llama", 1, &[("attention.causal", Value::Bool(true))]).unwrap();
}

#[test]
fn what_is_not_computed_is_refused_by_its_key() {
    for (suffix, value) in [
        ("attention.clamp_kqv", Value::Float(8.0)),
        ("attention.max_alibi_bias", Value::Float(8.0)),
        ("expert_gating_func", Value::Unsigned(2)),
        ("expert_group_count", Value::Unsigned(4)),
        ("rope.dimension_count", Value::Unsigned(8)),
        ("attention.value_length", Value::Unsigned(8)),
        ("expert_used_count", Value::Unsigned(9)),
    ] {
        let error = with("qwen3moe", 1, &[(suffix, value)]).unwrap_err();
        assert!(error.starts_with(&format!("metadata key `qwen3moe.{suffix}`")), "{error}");
    }
    let error = with("qwen2", 1, &[("expert_count", Value::Unsigned(8))]).unwrap_err();
    assert!(error.starts_with("metadata key `qwen2.expert_count`: is 8"), "{error}");
}

/// Devices have candle's products alone: whatever these do not compute is named, never left out.
#[test]
fn what_devices_do_not_compute_is_named() {
    let beyond = |architecture: &str, keys: &[(&str, Value)]| {
        with(architecture, 2, keys).unwrap().beyond_candle()
    };
    for architecture in crate::model::architectures::ARCHITECTURES {
        let name = architecture.name();
        let expected = match name {
            "llama" | "qwen2" | "qwen3" => None,
            _ => Some(format!("architecture `{name}`")),
        };
        assert_eq!(beyond(name, &[]), expected, "{name}");
    }
    let experts = [("expert_count", Value::Unsigned(8)), ("expert_used_count", Value::Unsigned(2))];
    assert_eq!(beyond("llama", &experts).unwrap(), "`llama` with experts");
    let window = [("attention.sliding_window", Value::Unsigned(64))];
    assert_eq!(beyond("llama", &window).unwrap(), "`llama` with a window");
    let heads = Value::Array(Array::Unsigned(vec![4, 2]));
    let heads = [("attention.head_count_kv", heads)];
    assert_eq!(beyond("llama", &heads).unwrap(), "`llama` with layers that differ");
}

#[test]
fn heads_of_keys_may_differ_between_layers() {
    let list = |values: &[u64]| Value::Array(Array::Unsigned(values.to_vec()));
    let config = with("llama", 3, &[("attention.head_count_kv", list(&[4, 1, 2]))]).unwrap();
    let heads: Vec<usize> = config.each_layer.iter().map(|layer| layer.kv_heads).collect();
    assert_eq!((heads, config.kv_heads), (vec![4, 1, 2], 4));
    let error = with("llama", 2, &[("attention.head_count_kv", list(&[4]))]).unwrap_err();
    assert!(error.ends_with("lists 1 layers, the model has 2"), "{error}");
    let error = with("llama", 2, &[("attention.head_count_kv", list(&[4, 3]))]).unwrap_err();
    assert!(error.ends_with("is 3, which does not divide the 4 query heads"), "{error}");
    let error = with("llama", 2, &[("attention.head_count", list(&[4, 8]))]).unwrap_err();
    assert!(error.contains("is 4 and 8: layers that differ"), "{error}");
    with("llama", 2, &[("attention.head_count", list(&[4, 4]))]).unwrap();
}

#[test]
fn windows_follow_the_pattern_of_the_architecture_or_of_the_file() {
    let width = ("attention.sliding_window", Value::Unsigned(32));
    let all = |architecture: &str, layers: u64, keys: &[(&str, Value)]| {
        windows(&with(architecture, layers, keys).unwrap())
    };
    assert_eq!(all("llama", 2, std::slice::from_ref(&width)), [Some(32); 2]);
    assert_eq!(all("llama", 1, &[("attention.sliding_window", Value::Unsigned(0))]), [None]);
    assert_eq!(all("qwen2", 1, std::slice::from_ref(&width)), [None]);
    assert_eq!(all("phi3", 1, std::slice::from_ref(&width)), [None]);
    assert_eq!(all("gemma2", 3, &[]), [Some(4096), None, Some(4096)]);
    assert_eq!(all("olmo2", 4, &[]), [None; 4]);
    let w = Some(32);
    assert_eq!(all("olmo2", 5, std::slice::from_ref(&width)), [w, w, w, None, w]);
    assert_eq!(all("gemma3", 7, std::slice::from_ref(&width)), [w, w, w, w, w, None, w]);
    let period = ("attention.sliding_window_pattern", Value::Unsigned(2));
    assert_eq!(all("gemma3", 3, &[width.clone(), period]), [w, None, w]);
    let flags = Value::Array(Array::Bool(vec![false, true]));
    let flags = ("attention.sliding_window_pattern", flags);
    assert_eq!(all("gemma3", 2, &[width, flags]), [None, w]);
}

#[test]
fn layers_with_a_window_have_the_rotation_of_their_architecture() {
    let keys = [
        ("attention.sliding_window", Value::Unsigned(32)),
        ("rope.freq_base", Value::Float(1e6)),
        ("rope.scaling.factor", Value::Float(8.0)),
    ];
    let ropes = |config: &ModelConfig| -> Vec<Option<usize>> {
        config.each_layer.iter().map(|layer| layer.rope).collect()
    };
    let gemma = with("gemma3", 6, &keys).unwrap();
    assert_eq!(ropes(&gemma), [Some(1), Some(1), Some(1), Some(1), Some(1), Some(0)]);
    assert_eq!(gemma.ropes[0].scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!((gemma.ropes[1].base, gemma.ropes[1].scaling), (10_000.0, RopeScaling::None));
    let olmo = with("olmo2", 4, &keys).unwrap();
    assert_eq!((olmo.ropes[1].base, olmo.ropes[1].scaling), (1e6, RopeScaling::None));
    let gemma2 = with("gemma2", 2, &keys).unwrap();
    assert_eq!((gemma2.ropes.len(), ropes(&gemma2)), (1, vec![Some(0); 2]));
    let smollm = with("smollm3", 5, &[]).unwrap();
    assert_eq!(ropes(&smollm), [Some(0), Some(0), Some(0), None, Some(0)]);
    let granite = with("granite", 1, &[("rope.scaling.finetuned", Value::Bool(false))]).unwrap();
    assert_eq!(ropes(&granite), [None]);
}

#[test]
fn scales_and_caps_are_those_of_the_architecture_or_of_the_file() {
    let llama = with("llama", 1, &[("logit_scale", Value::Float(3.0))]).unwrap().scales;
    let plain = Scales {
        embedding: 1.0,
        residual: 1.0,
        attention: 0.25,
        logits: 1.0,
        score_cap: 0.0,
        logit_cap: 0.0,
    };
    assert_eq!(llama, plain);
    let granite = [
        ("embedding_scale", Value::Float(12.0)),
        ("residual_scale", Value::Float(0.22)),
        ("attention.scale", Value::Float(0.015_625)),
        ("logit_scale", Value::Float(8.0)),
    ];
    let granite = with("granite", 1, &granite).unwrap().scales;
    let expected =
        Scales { embedding: 12.0, residual: 0.22, attention: 0.015_625, logits: 0.125, ..plain };
    assert_eq!(granite, expected);
    let gemma2 = with("gemma2", 1, &[]).unwrap().scales;
    let expected = Scales { embedding: 8.0, score_cap: 50.0, logit_cap: 30.0, ..plain };
    assert_eq!(gemma2, expected);
    let capped = [("final_logit_softcapping", Value::Float(20.0))];
    let gemma3 = with("gemma3", 1, &capped).unwrap().scales;
    assert_eq!(gemma3, Scales { embedding: 8.0, logit_cap: 20.0, ..plain });
    assert_eq!(with("gemma3", 62, &[]).unwrap().scales.attention, 0.25);
    let wide = [("attention.key_length", Value::Unsigned(32))];
    assert_eq!(with("gemma3", 62, &wide).unwrap().scales.attention, 0.25);
    assert_eq!(with("gemma3", 61, &wide).unwrap().scales.attention, 1.0 / 32f32.sqrt());
}

#[test]
fn experts_have_the_widths_that_the_file_gives() {
    let mixtral = [("expert_count", Value::Unsigned(8)), ("expert_used_count", Value::Unsigned(2))];
    let config = with("llama", 1, &mixtral).unwrap();
    let expected =
        ExpertConfig { count: 8, used: 2, ffn: 96, shared: false, normalised: true, scale: 1.0 };
    assert_eq!((config.ffn, config.experts), (0, Some(expected)));
    let qwen = [
        ("expert_feed_forward_length", Value::Unsigned(32)),
        ("expert_shared_feed_forward_length", Value::Unsigned(80)),
    ];
    let config = with("qwen2moe", 1, &qwen).unwrap();
    let shared = ExpertConfig { ffn: 32, shared: true, normalised: false, ..expected };
    assert_eq!((config.ffn, config.experts), (80, Some(shared)));
    let config = with("qwen3moe", 1, &[]).unwrap();
    assert_eq!((config.ffn, config.experts), (0, Some(ExpertConfig { ffn: 48, ..expected })));
}

/// A file of Llama 3.1 from before its factors were written.
#[test]
fn missing_rope_factors_are_warned_of() {
    let mut gguf = header("llama", 1);
    gguf.tensors.get_mut("token_embd.weight").unwrap().dims = vec![128_256, 64];
    gguf.metadata.insert("llama.rope.freq_base".to_owned(), Value::Float(500_000.0));
    assert!(ModelConfig::parse(&gguf).unwrap().warnings.is_empty());
    gguf.metadata.insert("llama.context_length".to_owned(), Value::Unsigned(131_072));
    let warnings = ModelConfig::parse(&gguf).unwrap().warnings;
    assert!(warnings[0].starts_with("the file has no `rope_freqs.weight`"), "{warnings:?}");
    let mut synthetic = gguf.clone();
    let tags = Value::Array(Array::String(vec!["synthetic".to_owned()]));
    synthetic.metadata.insert("general.tags".to_owned(), tags);
    assert!(ModelConfig::parse(&synthetic).unwrap().warnings.is_empty());
    let info = gguf.tensors["token_embd.weight"].clone();
    gguf.tensors.insert("rope_freqs.weight".to_owned(), info);
    assert!(ModelConfig::parse(&gguf).unwrap().warnings.is_empty());
}

#[test]
fn a_number_of_layers_that_the_file_cannot_hold_is_refused() {
    let error = with("llama", 2, &[("block_count", Value::Unsigned(1 << 30))]).unwrap_err();
    assert_eq!(error, "tensor `blk.2.attn_output.weight` is missing");
}
