//! Every architecture against llama.cpp: the same tokens and the same log-probabilities for small
//! random models, as `tests/fixtures/architectures/record.py` recorded them; and what is refused,
//! because it would compute something else.

use std::path::Path;

use engine::model::gguf::{Gguf, Value};
use engine::model::{KvType, Logits, Transformer};

use super::made::{Made, fixture, load};

const CASES: [&str; 17] = [
    "llama",
    "llama-kv",
    "llama-yarn",
    "llama-linear",
    "mixtral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3-short",
    "phi3-long",
    "smollm3",
    "granite",
    "olmo2",
    "olmo3",
    "qwen2moe",
    "qwen3moe",
];

/// llama.cpp's GELU comes from a table of halves, and its numbers are rounded to four places.
const TOLERANCE: f64 = 2e-3;

/// Log-probabilities after the prompt and after each of `tokens` but the last, which follow it.
fn log_probabilities(
    model: &mut Transformer,
    prompt: &[u32],
    tokens: &[u32],
    chunk: usize,
) -> Vec<Vec<f64>> {
    // As many positions as llama.cpp had: factors for long contexts depend on it.
    let mut cache = model.new_cache_of(512, KvType::F32).unwrap();
    let (last, before) = prompt
        .chunks(chunk)
        .collect::<Vec<_>>()
        .split_last()
        .map(|(last, before)| (last.to_vec(), before.concat()))
        .unwrap();
    for chunk in before.chunks(chunk) {
        model.forward(chunk, &mut cache, Logits::Skip).unwrap();
    }
    let mut inputs = vec![last];
    inputs.extend(tokens[..tokens.len() - 1].iter().map(|&token| vec![token]));
    let logits = |input: &Vec<u32>| {
        let logits = model.forward(input, &mut cache, Logits::Last).unwrap().unwrap();
        let logits: Vec<f64> =
            logits.to_vec1::<f32>().unwrap().into_iter().map(f64::from).collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - max).exp()).sum();
        logits.into_iter().map(|logit| logit - max - sum.ln()).collect()
    };
    inputs.iter().map(logits).collect()
}

fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn every_architecture_gives_the_tokens_and_probabilities_of_llama_cpp() {
    for case in CASES {
        let fixture = fixture(case);
        let made = Made::of(&fixture);
        assert_eq!(made.sha256(), fixture["sha256"], "{case}: not the model that was recorded");
        let mut model = made.load().unwrap();
        let (prompt, tokens) = (ids(&fixture["prompt"]), ids(&fixture["tokens"]));
        // Whole, and in chunks that end within windows and tiles.
        for chunk in [prompt.len(), 7, 1] {
            let steps = log_probabilities(&mut model, &prompt, &tokens, chunk);
            let mut largest = 0f64;
            for (step, ours) in steps.iter().enumerate() {
                for top in fixture["top"][step].as_array().unwrap() {
                    let id = top[0].as_u64().unwrap() as usize;
                    let difference = (ours[id] - top[1].as_f64().unwrap()).abs();
                    largest = largest.max(difference);
                    assert!(
                        difference <= TOLERANCE,
                        "{case} in chunks of {chunk}, step {step}, token {id}: {} is not {}",
                        ours[id],
                        top[1]
                    );
                }
                let best = (0..ours.len()).max_by(|&a, &b| ours[a].total_cmp(&ours[b]));
                assert_eq!(best, Some(tokens[step] as usize), "{case}, step {step}");
            }
            println!("{case} in chunks of {chunk}: off by {largest:.1e} at most");
        }
    }
}

/// A layer with a window sees what a whole layer sees of the last tokens alone: with one layer, whose
/// rotation is relative, the tokens before the window could as well not be there.
#[test]
fn a_window_of_mistral_hides_what_lies_before_it() {
    let window = 9;
    let one_layer = |window: u64| {
        let mut made = Made::named("llama")
            .with("llama.block_count", Value::Unsigned(1))
            .with("llama.attention.sliding_window", Value::Unsigned(window));
        made.tensors.retain(|name, _| !name.starts_with("blk.1.") && !name.starts_with("blk.2."));
        made.load().unwrap()
    };
    let prompt: Vec<u32> = (0..40).map(|index| (index * 37 + 5) % 256).collect();
    let last = |model: &mut Transformer, prompt: &[u32]| {
        log_probabilities(model, prompt, &[0], prompt.len()).remove(0)
    };
    let windowed = last(&mut one_layer(window as u64), &prompt);
    let alone = last(&mut one_layer(0), &prompt[prompt.len() - window..]);
    let whole = last(&mut one_layer(0), &prompt);
    let difference =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(difference(&windowed, &alone) < 1e-4);
    assert!(difference(&windowed, &whole) > 1e-2);
}

#[test]
fn tensors_that_nothing_uses_are_refused() {
    let llama = || Made::named("llama");
    let error = llama().tensor("blk.0.attn_sub_norm.weight", &[64]).refused();
    assert!(
        error.starts_with("nothing uses these tensors") && error.contains("attn_sub_norm"),
        "{error}"
    );
    // llama.cpp multiplies by it.
    let error = llama().tensor("blk.1.attn_q.scale", &[1]).refused();
    assert!(error.contains("`blk.1.attn_q.scale`"), "{error}");
    let error = llama().tensor("blk.3.attn_norm.weight", &[64]).refused();
    assert_eq!(
        error,
        "tensor `blk.3.attn_norm.weight` belongs to a layer beyond the 3 of `block_count`"
    );
    // Factors that the architecture does not know.
    let error = Made::named("qwen2").tensor("rope_freqs.weight", &[8]).refused();
    assert!(error.contains("`rope_freqs.weight`"), "{error}");
}

#[test]
fn tensors_that_the_architecture_needs_are_named() {
    let error = Made::named("qwen3").without("attn_q_norm.weight").refused();
    assert_eq!(error, "tensor `blk.0.attn_q_norm.weight` is missing");
    let experts = [("expert_count", 8), ("expert_used_count", 2)];
    let dense = experts.iter().fold(Made::named("llama"), |made, (key, value)| {
        made.with(&format!("llama.{key}"), Value::Unsigned(*value))
    });
    let error = dense.refused();
    assert!(error.starts_with("tensor `blk.0.ffn_") && error.ends_with("is missing"), "{error}");
    let mixtral = Made::named("mixtral").with("llama.expert_count", Value::Unsigned(0)).refused();
    assert_eq!(mixtral, "tensor `blk.0.ffn_gate.weight` is missing");
}

/// Any part stands for all; a part that is missing or of another model is named.
#[test]
fn a_split_model_is_one() {
    let fixture = fixture("qwen2");
    let made = Made::of(&fixture);
    let dir = tempfile::tempdir().unwrap();
    let parts = made.write_split(dir.path(), "m");
    let (prompt, tokens) = (ids(&fixture["prompt"]), ids(&fixture["tokens"]));
    let expected = log_probabilities(&mut made.load().unwrap(), &prompt, &tokens, 40);
    for part in &parts {
        let mut model = load(part).unwrap();
        assert_eq!(log_probabilities(&mut model, &prompt, &tokens, 40), expected);
        let (gguf, _) = Gguf::read(part).unwrap();
        let bytes: u64 = parts.iter().map(|part| part.metadata().unwrap().len()).sum();
        assert_eq!((gguf.parts.len(), gguf.file_bytes), (2, bytes));
        assert_eq!(gguf.tensors.len(), made.tensors.len());
    }
    let error = |path: &Path| format!("{:#}", load(path).unwrap_err());
    std::fs::copy(&parts[0], &parts[1]).unwrap();
    assert_eq!(
        error(&parts[0]),
        "part `m-00002-of-00002.gguf` of the model: `split.no` is 0, its name says 1"
    );
    std::fs::remove_file(&parts[1]).unwrap();
    assert!(error(&parts[0]).starts_with("part `m-00002-of-00002.gguf` of the model: cannot read"));
    let renamed = dir.path().join("renamed.gguf");
    std::fs::rename(&parts[0], &renamed).unwrap();
    assert!(error(&renamed).contains("its name must end in `-0000N-of-00002.gguf`"));
}
