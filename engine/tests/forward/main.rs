//! The forward pass against a plain reference, chunked against whole, cached against prefilled, on
//! synthetic models.
#![allow(clippy::print_stdout)] // Tests show what they measured.

use candle_core::Device;
use engine::decode::{NoObserver, Pass, Request, generate};
use engine::model::gguf::Gguf;
use engine::model::synthetic::write_synthetic;
use engine::model::{KvType, Logits, Transformer};
use formats::geometry::Geometry;

mod architectures;
#[allow(dead_code, reason = "the fuzz test needs the rest")]
mod made;
mod paths;
mod reference;

use reference::Reference;

/// A small model of the given kind, and the folder that holds it.
struct Fixture {
    geometry: Geometry,
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new(architecture: &str, quantisation: &str, hidden: usize) -> Self {
        let geometry = Geometry::parse(&format!(
            "architecture = \"{architecture}\"\nlayers = 2\nhidden = {hidden}\nheads = 4\n\
             kv_heads = 2\nffn = {}\nvocab = 96\ncontext = 256\nquantisation = \
             \"{quantisation}\"\nseed = 11\nrope_base = 1000.0\n",
            hidden * 2,
        ))
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        write_synthetic(&geometry, "test", &path).unwrap();
        Self { geometry, path, _dir: dir }
    }

    fn load(&self) -> Transformer {
        let (gguf, _) = Gguf::read(&self.path).unwrap();
        Transformer::load(&gguf, &self.path, &Device::Cpu).unwrap()
    }
}

fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|index| (index * 37 + 5) % 96).collect()
}

/// The logits after each of the chunks, with keys and values that are not rounded.
fn logits(model: &mut Transformer, tokens: &[u32], chunks: &[usize]) -> Vec<Vec<f32>> {
    let mut cache = model.new_cache_of(tokens.len(), KvType::F32).unwrap();
    let mut rest = tokens;
    let mut all = Vec::new();
    for &chunk in chunks {
        let (now, later) = rest.split_at(chunk);
        let logits = model.forward(now, &mut cache, Logits::Last).unwrap().unwrap();
        all.push(logits.to_vec1().unwrap());
        rest = later;
    }
    assert!(rest.is_empty() && cache.len() == tokens.len());
    all
}

fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn deviation(values: &[f32]) -> f32 {
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / values.len() as f32).sqrt()
}

const ARCHITECTURES: [&str; 3] = ["llama", "qwen2", "qwen3"];

/// Without quantisation, logits are those of the plain reference at every position: within 1e-4.
#[test]
fn unquantised_logits_are_those_of_the_reference() {
    for architecture in ARCHITECTURES {
        // Heads of 16 are whole tiles of keys, heads of 12 are filled up.
        for hidden in [64, 48] {
            let fixture = Fixture::new(architecture, "f32", hidden);
            let tokens = tokens(70);
            let expected = Reference::read(&fixture.geometry, &fixture.path).logits(&tokens);
            let mut chunks = vec![40];
            chunks.extend([1; 30]);
            let actual = logits(&mut fixture.load(), &tokens, &chunks);
            for (index, actual) in actual.iter().enumerate() {
                let difference = max_difference(actual, &expected[39 + index]);
                assert!(
                    difference <= 1e-4,
                    "{architecture}, width {hidden}, position {}: off by {difference}",
                    39 + index
                );
            }
        }
    }
}

/// With quantised weights the reference computes with the dequantised weights, and what differs is
/// the rounding of activations to eight bits before each product.
///
/// The rounding step is b/127 with b the largest of a block of 32 to 256 activations, for normal
/// ones about 2.2 to 2.9 of their deviation σ; so an activation is off by a rounding error of
/// deviation 2.9σ/127/√12 = 0.0066σ at most, and so is a sum of products relative to its own
/// deviation. A logit has behind it the products of every layer on the residual path (four a layer:
/// value, output, gated pair, down) and the output matrix: in quadrature, over two layers,
/// 0.0066·√9 = 0.020 of the logits' deviation. Scores perturb the softmax on top, and the gated
/// pair multiplies two errors; twice that value is allowed for the root mean square, and five times
/// as much for the largest of 96 · 20 logits.
#[test]
fn quantised_logits_are_those_of_the_reference_within_rounding() {
    for (quantisation, hidden) in [
        ("q4_0", 64),
        ("q4_1", 64),
        ("q5_0", 64),
        ("q5_1", 64),
        ("q8_0", 64),
        ("q2_k", 256),
        ("q3_k", 256),
        ("q4_k", 256),
        ("q5_k", 256),
        ("q6_k", 256),
        ("f16", 64),
        ("bf16", 64),
    ] {
        let fixture = Fixture::new("llama", quantisation, hidden);
        let tokens = tokens(50);
        let expected = Reference::read(&fixture.geometry, &fixture.path).logits(&tokens);
        let mut chunks = vec![31];
        chunks.extend([1; 19]);
        let actual = logits(&mut fixture.load(), &tokens, &chunks);
        let (mut squares, mut largest, mut count) = (0.0, 0f32, 0);
        let mut scale = 0f32;
        for (index, actual) in actual.iter().enumerate() {
            let expected = &expected[30 + index];
            scale = scale.max(deviation(expected));
            largest = largest.max(max_difference(actual, expected));
            squares += actual.iter().zip(expected).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
            count += actual.len();
        }
        let relative = (squares / count as f32).sqrt() / scale;
        println!(
            "{quantisation}: rms {relative:.4}, largest {:.4} of the deviation",
            largest / scale
        );
        assert!(relative <= 0.040, "{quantisation}: root mean square off by {relative}");
        assert!(largest / scale <= 0.20, "{quantisation}: largest off by {}", largest / scale);
    }
}

/// However a prompt is cut into chunks, decode steps of one token included, the logits at its end
/// are the same.
#[test]
fn chunked_prefill_and_cached_decode_equal_one_whole_prefill() {
    for (quantisation, tolerance) in [("f32", 1e-4), ("q8_0", 1e-4), ("q4_1", 1e-4)] {
        for architecture in ARCHITECTURES {
            let fixture = Fixture::new(architecture, quantisation, 64);
            let mut model = fixture.load();
            let tokens = tokens(131);
            let whole = logits(&mut model, &tokens, &[131]).pop().unwrap();
            for chunks in [vec![64, 67], vec![7; 18], vec![1; 131], vec![130, 1], vec![16, 1, 114]]
            {
                let mut chunks = chunks;
                let rest = 131 - chunks.iter().sum::<usize>();
                if rest > 0 {
                    chunks.push(rest);
                }
                let cut = logits(&mut model, &tokens, &chunks).pop().unwrap();
                let difference = max_difference(&cut, &whole) / deviation(&whole).max(1.0);
                assert!(
                    difference <= tolerance,
                    "{architecture} {quantisation} in {} chunks: off by {difference}",
                    chunks.len()
                );
            }
        }
    }
}

/// Counts what the loop tells its observer.
#[derive(Default)]
struct Counter {
    forwards: Vec<usize>,
    steps: Vec<usize>,
    passes: Vec<Pass>,
}

impl engine::decode::StepObserver for Counter {
    fn before_pass(&mut self, pass: Pass) {
        self.passes.push(pass);
    }

    fn before_forward(&mut self, seq_len: usize) {
        self.forwards.push(seq_len);
    }

    fn after_decode_step(&mut self, step: usize) {
        self.steps.push(step);
    }
}

#[test]
fn the_loop_tells_its_observer_of_every_forward_and_step() {
    let fixture = Fixture::new("qwen3", "q8_0", 64);
    let mut model = fixture.load();
    let mut cache = model.new_cache(64).unwrap();
    let prompt = tokens(25);
    let request = Request { prompt: &prompt, max_tokens: 4, prefill_chunk: 10, stop: &[] };
    let mut counter = Counter::default();
    let first = generate(&model, &mut cache, &request, Pass::Measured, &mut counter).unwrap();
    assert_eq!(counter.forwards, [10, 10, 5, 1, 1, 1]);
    assert_eq!(counter.steps, [0, 1, 2]);
    assert_eq!(counter.passes, [Pass::Measured]);
    assert_eq!((first.tokens.len(), first.steps.len()), (4, 3));
    // The same again, in the cache that the first pass has filled, and stopped at its second token.
    let stop = [first.tokens[1]];
    let request = Request { stop: &stop, ..request };
    let again = generate(&model, &mut cache, &request, Pass::Measured, &mut NoObserver).unwrap();
    let end = first.tokens.iter().position(|token| *token == stop[0]).unwrap();
    assert_eq!(again.tokens, first.tokens[..=end]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let fixture = Fixture::new("llama", "q8_0", 64);
    let mut model = fixture.load();
    let mut cache = model.new_cache(8).unwrap();
    let error = |result: candle_core::Result<Option<candle_core::Tensor>>| {
        result.unwrap_err().to_string().lines().next().unwrap().to_owned()
    };
    let full = error(model.forward(&tokens(9), &mut cache, Logits::Last));
    assert_eq!(full, "the KV cache has room for 8, not for 9");
    let beyond = error(model.forward(&[96], &mut cache, Logits::Last));
    assert_eq!(beyond, "token 96 is beyond the vocabulary of 96");
    let none = error(model.forward(&[], &mut cache, Logits::Last));
    assert_eq!(none, "a forward needs at least one token");
}

/// Cut anywhere in its data, or with a header that asks for other shapes than the tensors have, a
/// model is an error that says where.
#[test]
fn a_truncated_or_contradictory_model_is_an_error_with_the_offset() {
    let fixture = Fixture::new("llama", "q4_0", 64);
    let whole = std::fs::read(&fixture.path).unwrap();
    let load = |bytes: &[u8]| {
        let path = fixture.path.with_file_name("broken.gguf");
        std::fs::write(&path, bytes).unwrap();
        let result = Gguf::read(&path)
            .map_err(anyhow::Error::from)
            .and_then(|(gguf, _)| Transformer::load(&gguf, &path, &Device::Cpu));
        format!("{:#}", result.unwrap_err())
    };
    for length in (0..whole.len() - 32).step_by(997) {
        let error = load(&whole[..length]);
        assert!(error.contains("offset"), "cut at {length}: {error}");
    }
    let patched = |key: &str, value: u32| {
        let mut bytes = whole.clone();
        let at = bytes.windows(key.len()).position(|w| w == key.as_bytes()).unwrap();
        bytes[at + key.len() + 4..][..4].copy_from_slice(&value.to_le_bytes());
        load(&bytes)
    };
    let error = patched("llama.feed_forward_length", 160);
    assert!(error.contains("tensor `blk.0.ffn_gate.weight` has the shape [128, 64]"), "{error}");
    assert!(error.contains("offset"), "{error}");
    let error = patched("llama.block_count", 1_000_000);
    assert_eq!(error, "tensor `blk.2.attn_output.weight` is missing");
    let error = patched("llama.attention.head_count", 0);
    assert!(error.contains("`llama.attention.head_count`: must be from 1"), "{error}");
    let error = patched("llama.attention.head_count_kv", 3);
    assert!(error.contains("does not divide the 4 query heads"), "{error}");
    let mut bytes = whole.clone();
    let at = bytes.windows(5).position(|w| w == b"llama").unwrap();
    bytes[at..at + 5].copy_from_slice(b"gemma");
    let error = load(&bytes);
    assert!(
        error.contains(
            "architecture `gemma` is not supported; supported: llama, qwen2, qwen3, gemma2"
        ),
        "{error}"
    );
}
