//! Every kernel path, every type of KV cache, several sequences together: the same tokens; and what
//! is not finite is an error that says where it began.

use candle_core::Device;
use engine::decode::{NoObserver, Pass, Request, generate, generate_batch};
use engine::model::gguf::Gguf;
use engine::model::synthetic::write_synthetic;
use engine::model::{Kernels, KvType, Logits, Transformer};
use formats::geometry::Geometry;

use super::{Fixture, tokens};

const QUANTISATIONS: [&str; 13] = [
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k",
    "q6_k",
];

fn load(fixture: &Fixture, kernels: Kernels) -> Transformer {
    let (gguf, _) = Gguf::read(&fixture.path).unwrap();
    Transformer::load_for(&gguf, &fixture.path, &Device::Cpu, kernels).unwrap()
}

fn decode(model: &mut Transformer, kv_type: KvType, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut cache = model.new_cache_of(prompt.len() + count, kv_type).unwrap();
    let request = Request { prompt, max_tokens: count, prefill_chunk: 20, stop: &[] };
    generate(model, &mut cache, &request, Pass::Measured, &mut NoObserver).unwrap().tokens
}

/// The plain kernels are the reference; the logits are the same to the bit.
#[test]
fn every_path_gives_the_same_tokens_for_every_type() {
    println!("this machine runs {:?}", Kernels::available().collect::<Vec<_>>());
    let prompt = tokens(33);
    for quantisation in QUANTISATIONS {
        let fixture = Fixture::new("qwen3", quantisation, 256);
        for kv_type in [KvType::F32, KvType::F16, KvType::Q8_0] {
            let mut model = load(&fixture, Kernels::SCALAR);
            let expected = decode(&mut model, kv_type, &prompt, 12);
            let mut cache = model.new_cache_of(40, kv_type).unwrap();
            let logits = model.forward(&prompt, &mut cache, Logits::Last).unwrap().unwrap();
            let logits = logits.to_vec1::<f32>().unwrap();
            for kernels in Kernels::available() {
                let mut model = load(&fixture, kernels);
                assert_eq!(model.kernels(), kernels.name());
                let ours = decode(&mut model, kv_type, &prompt, 12);
                assert_eq!(ours, expected, "{quantisation} {kernels:?} {kv_type:?}");
                let mut cache = model.new_cache_of(40, kv_type).unwrap();
                let again = model.forward(&prompt, &mut cache, Logits::Last).unwrap().unwrap();
                let again = again.to_vec1::<f32>().unwrap();
                assert!(again == logits, "{quantisation} {kernels:?} {kv_type:?}");
            }
        }
    }
}

/// Rounding keys and values moves logits, but by far less than they differ from each other. The weights
/// are not quantised, because then activations are rounded too, and flip to the next step.
#[test]
fn a_smaller_kv_cache_stays_close() {
    let fixture = Fixture::new("llama", "f32", 64);
    let mut model = load(&fixture, Kernels::detect());
    let prompt = tokens(150);
    let [exact, half, byte] = [KvType::F32, KvType::F16, KvType::Q8_0].map(|kv_type| {
        let mut cache = model.new_cache_of(150, kv_type).unwrap();
        model.forward(&prompt[..149], &mut cache, Logits::Skip).unwrap();
        let logits = model.forward(&prompt[149..], &mut cache, Logits::Last).unwrap().unwrap();
        logits.to_vec1::<f32>().unwrap()
    });
    let deviation = super::deviation(&exact);
    let half = super::max_difference(&half, &exact) / deviation;
    let byte = super::max_difference(&byte, &exact) / deviation;
    println!("largest difference of a logit: f16 {half:.5}, q8_0 {byte:.5} of the deviation");
    assert!(half > 0.0 && half < 0.01, "f16: {half}");
    assert!(byte > half && byte < 0.1, "q8_0: {byte}");
}

/// Sequences of different lengths that decode together give what each gives alone.
#[test]
fn a_batch_gives_the_tokens_of_single_runs() {
    for quantisation in ["q4_k", "f16"] {
        let fixture = Fixture::new("llama", quantisation, 256);
        let mut model = load(&fixture, Kernels::detect());
        let prompts: Vec<Vec<u32>> =
            [3, 70, 16, 1, 40].iter().map(|&count| tokens(90)[90 - count..].to_vec()).collect();
        let alone: Vec<Vec<f32>> = prompts
            .iter()
            .map(|prompt| {
                let mut cache = model.new_cache(100).unwrap();
                model.forward(prompt, &mut cache, Logits::Skip).unwrap();
                let logits = model.forward(&[5], &mut cache, Logits::Last).unwrap().unwrap();
                logits.to_vec1().unwrap()
            })
            .collect();
        let mut caches: Vec<_> = prompts.iter().map(|_| model.new_cache(100).unwrap()).collect();
        let mut all = Vec::new();
        // The prompts together, too: each is as long as it is.
        let mut refs: Vec<_> = caches.iter_mut().collect();
        let inputs: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        model.forward_batch(&inputs, &mut refs, Logits::Skip, &mut all).unwrap();
        assert!(all.is_empty());
        let inputs = vec![[5].as_slice(); prompts.len()];
        model.forward_batch(&inputs, &mut refs, Logits::Last, &mut all).unwrap();
        for (index, (ours, alone)) in all.chunks_exact(96).zip(&alone).enumerate() {
            assert!(ours == alone, "{quantisation}: sequence {index}");
        }
        assert_eq!(all.len(), 96 * prompts.len());
        for (cache, prompt) in caches.iter().zip(&prompts) {
            assert_eq!(cache.len(), prompt.len() + 1);
        }
    }
}

/// The sequences of a batch begin at different tokens of the prompt, and each gives what it gives
/// alone.
#[test]
fn a_batch_decodes_what_its_sequences_decode_alone() {
    let fixture = Fixture::new("qwen2", "q8_0", 64);
    let mut model = load(&fixture, Kernels::detect());
    let mut caches: Vec<_> = (0..3).map(|_| model.new_cache(50).unwrap()).collect();
    let whole = tokens(30);
    let mut prompt = whole.clone();
    let request = Request { prompt: &whole, max_tokens: 9, prefill_chunk: 16, stop: &[] };
    let together =
        generate_batch(&model, &mut caches, &request, Pass::Measured, &mut NoObserver).unwrap();
    assert_eq!((together.sequences(), together.steps.len()), (3, 8));
    for ours in std::iter::once(&together.tokens).chain(&together.others) {
        assert_eq!(ours, &decode(&mut model, KvType::F16, &prompt, 9));
        prompt.rotate_left(1);
    }
    let request = Request { stop: &[1], ..request };
    generate_batch(&model, &mut caches, &request, Pass::Measured, &mut NoObserver).unwrap_err();
}

/// NaN in the weights is found where it enters the hidden state, on every path.
#[test]
fn what_is_not_finite_is_an_error_that_names_the_place() {
    let fixture = Fixture::new("llama", "q8_0", 64);
    let (gguf, _) = Gguf::read(&fixture.path).unwrap();
    let bytes = std::fs::read(&fixture.path).unwrap();
    let nan = half::f16::NAN.to_le_bytes();
    for (tensor, expected) in [
        ("token_embd.weight", "the hidden state is not finite: it began in the embeddings"),
        ("blk.0.attn_v.weight", "it began in the attention of layer 0"),
        ("blk.1.attn_output.weight", "it began in the attention of layer 1"),
        ("blk.0.ffn_down.weight", "it began in the feed-forward of layer 0"),
        ("blk.1.ffn_up.weight", "it began in the feed-forward of layer 1"),
        ("output_norm.weight", "is not finite: it began in the output matrix"),
        ("output.weight", "is not finite: it began in the output matrix"),
    ] {
        let info = gguf.tensor(tensor).unwrap();
        let mut bytes = bytes.clone();
        let data = &mut bytes[info.offset as usize..][..info.bytes as usize];
        if tensor.ends_with("norm.weight") {
            data[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        } else {
            data.chunks_exact_mut(34).for_each(|block| block[..2].copy_from_slice(&nan));
        }
        let path = fixture.path.with_file_name("spoiled.gguf");
        std::fs::write(&path, bytes).unwrap();
        for kernels in Kernels::available() {
            let mut model = Transformer::load_for(&gguf, &path, &Device::Cpu, kernels).unwrap();
            for length in [1, 20] {
                let mut cache = model.new_cache(32).unwrap();
                let prompt = tokens(length);
                let request =
                    Request { prompt: &prompt, max_tokens: 4, prefill_chunk: 32, stop: &[] };
                let error = generate(&model, &mut cache, &request, Pass::Measured, &mut NoObserver);
                let error = error.unwrap_err().to_string();
                let error = error.lines().next().unwrap();
                assert!(error.ends_with(expected), "{tensor}, {kernels:?}, {length}: {error}");
            }
        }
    }
}

/// Prefill takes 512 tokens at once unless their activations are more than 48 MiB; then half, and so
/// on, but not below 64.
#[test]
fn a_wide_model_takes_fewer_tokens_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // A row's activations are about 5.5 bytes for each element of the feed-forward.
    for (ffn, expected) in [(128, 512), (32_768, 256), (65_536, 128), (262_144, 64)] {
        let geometry = Geometry::parse(&format!(
            "architecture = \"llama\"\nlayers = 1\nhidden = 32\nheads = 2\nkv_heads = 1\n\
             ffn = {ffn}\nvocab = 96\ncontext = 64\nquantisation = \"q8_0\"\nseed = 1\n\
             rope_base = 1000.0\n"
        ))
        .unwrap();
        let path = dir.path().join(format!("{ffn}.gguf"));
        write_synthetic(&geometry, "wide", &path).unwrap();
        let (gguf, _) = Gguf::read(&path).unwrap();
        let model = Transformer::load(&gguf, &path, &Device::Cpu).unwrap();
        assert_eq!(model.prefill_chunk(), expected, "width {ffn}");
    }
}
