//! SmolLM2 against candle-transformers: an implementation that shares candle's file reader with
//! this one, but neither the forward pass nor attention, cache or products.
//!
//! `cargo test -p engine --features peers --test peers -- --nocapture`, with the model in
//! `models/smollm2-135m` (`cargo xtask model fetch smollm2-135m`) or at `ARC_SMOLLM2`.
#![allow(clippy::print_stdout)] // Shows what was generated, or that it skips.

use std::path::PathBuf;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use engine::decode::{NoObserver, Pass, Request, generate};
use engine::model::chat::render_question;
use engine::model::gguf::Gguf;
use engine::model::source::find_model;
use engine::model::tokenizer::TextCodec;
use engine::model::{KvType, Logits, Transformer};

/// Tokens that are compared.
const TOKENS: usize = 32;
/// Of them, those that must agree, and for how many prompts. Both implementations round activations
/// to eight bits in their own way, so they part where the two best logits are closer than that
/// rounding; [`NEAR_TIE`] holds every parting to such a place.
const MUST_AGREE: usize = 16;
const PROMPTS_THAT_MUST_AGREE: usize = 5;
/// Largest difference of the two logits at a parting. Rounding moves a logit by about 2 % of the
/// logits' deviation of 3 to 5 (`tests/forward` derives it), and two of them by as much each way.
const NEAR_TIE: f32 = 0.5;

/// Questions, which go into the chat template, and beginnings, which do not.
const PROMPTS: [(Kind, &str); 8] = [
    (Kind::Question, "What is the capital of France?"),
    (Kind::Question, "Write one sentence about the sea."),
    (Kind::Question, "How many days are there in a week?"),
    (Kind::Question, "Explain what a compiler does."),
    (Kind::Beginning, "The capital of France is"),
    (Kind::Beginning, "one, two, three, four, five,"),
    (Kind::Beginning, "Monday, Tuesday, Wednesday,"),
    (Kind::Beginning, "def add(a, b):\n    return"),
];

#[derive(Clone, Copy)]
enum Kind {
    Question,
    Beginning,
}

fn model() -> Option<PathBuf> {
    let path = std::env::var_os("ARC_SMOLLM2").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/smollm2-135m"),
        PathBuf::from,
    );
    match find_model(&path) {
        Ok(source) => Some(source.gguf),
        Err(error) => {
            println!("skipped: {error:#}");
            None
        }
    }
}

fn theirs(path: &std::path::Path, prompt: &[u32]) -> Vec<u32> {
    let mut file = std::fs::File::open(path).unwrap();
    let content = Content::read(&mut file).unwrap();
    let mut model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu).unwrap();
    let mut input = prompt.to_vec();
    let (mut position, mut tokens) = (0, Vec::new());
    while tokens.len() < TOKENS {
        let batch = Tensor::new(input.as_slice(), &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let logits = model.forward(&batch, position).unwrap().squeeze(0).unwrap();
        position += input.len();
        let logits = logits.to_vec1::<f32>().unwrap();
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as u32;
        tokens.push(best);
        input = vec![best];
    }
    tokens
}

#[test]
fn greedy_tokens_agree_with_candle_transformers() {
    let Some(path) = model() else { return };
    let (gguf, _) = Gguf::read(&path).unwrap();
    let codec = TextCodec::read(&gguf, &path).unwrap().unwrap();
    let mut model = Transformer::load(&gguf, &path, &Device::Cpu).unwrap();
    // As candle has it.
    let mut cache = model.new_cache_of(256, KvType::F32).unwrap();
    let mut agreeing = 0;
    for (kind, text) in PROMPTS {
        let prompt = match kind {
            Kind::Question => {
                let now = chrono::Local::now().naive_local();
                codec.encode_chat(&render_question(&codec, text, now).unwrap()).unwrap()
            }
            Kind::Beginning => codec.encode(text).unwrap(),
        };
        let request =
            Request { prompt: &prompt, max_tokens: TOKENS, prefill_chunk: 512, stop: &[] };
        let ours =
            generate(&model, &mut cache, &request, Pass::Measured, &mut NoObserver).unwrap().tokens;
        let theirs = theirs(&path, &prompt);
        let agree = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        println!("{text:?}: {} prompt tokens, the first {agree} agree", prompt.len());
        println!("  arc    {:?}", codec.decode(&ours).unwrap());
        println!("  candle {:?}", codec.decode(&theirs).unwrap());
        agreeing += usize::from(agree >= MUST_AGREE);
        if agree < TOKENS {
            let so_far = [prompt.as_slice(), &ours[..agree]].concat();
            cache.clear();
            let logits = model.forward(&so_far, &mut cache, Logits::Last).unwrap().unwrap();
            let logits = logits.to_vec1::<f32>().unwrap();
            let gap = logits[ours[agree] as usize] - logits[theirs[agree] as usize];
            println!("  they part where the two logits are {gap:.3} apart");
            assert!((0.0..=NEAR_TIE).contains(&gap), "{text}: no near tie, {gap}");
        }
    }
    assert!(agreeing >= PROMPTS_THAT_MUST_AGREE, "only {agreeing} prompts agree");
}

/// What the model's authors' own tokenizer gives for this text.
#[test]
fn text_survives_the_tokenizer() {
    let Some(path) = model() else { return };
    let (gguf, _) = Gguf::read(&path).unwrap();
    let codec = TextCodec::read(&gguf, &path).unwrap().unwrap();
    for text in ["Hello world, it's 2026!", "  two  spaces\n\tand é, 日本", "<|im_start|>user\nhi"]
    {
        let ids = codec.encode(text).unwrap();
        let plain = text.replace("<|im_start|>", "");
        assert_eq!(codec.decode(&ids).unwrap(), plain, "{ids:?}");
    }
    // Digits are split one by one, control tokens are found whole.
    assert_eq!(codec.encode("2026").unwrap().len(), 4);
    assert_eq!(codec.encode("<|im_start|>").unwrap(), [1]);
}
