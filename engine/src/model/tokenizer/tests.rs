//! Byte-level vocabularies out of metadata.

use std::collections::BTreeMap;

use super::*;

/// A file whose tokens are some bytes and what is merged of them.
fn gguf(pre: Option<&str>, tokens: &[&str], merges: &[&str]) -> Gguf {
    let list = |texts: &[&str]| {
        Value::Array(Array::String(texts.iter().map(|&text| text.to_owned()).collect()))
    };
    let mut metadata = BTreeMap::from([
        ("tokenizer.ggml.model".to_owned(), Value::String("gpt2".to_owned())),
        ("tokenizer.ggml.tokens".to_owned(), list(tokens)),
        ("tokenizer.ggml.merges".to_owned(), list(merges)),
        ("tokenizer.ggml.bos_token_id".to_owned(), Value::Unsigned(0)),
    ]);
    if let Some(pre) = pre {
        metadata.insert("tokenizer.ggml.pre".to_owned(), Value::String(pre.to_owned()));
    }
    Gguf { version: 3, metadata, tensors: BTreeMap::new(), file_bytes: 0, parts: Vec::new() }
}

fn codec(gguf: &Gguf) -> TextCodec {
    TextCodec::read(gguf, Path::new("no-such-folder/model.gguf")).unwrap().unwrap()
}

/// What llama.cpp does: `add_bos` is set for this kind of splitting, and the key overrides it.
#[test]
fn a_llama_3_file_that_does_not_say_gets_its_begin_token() {
    let tokens = ["<s>", "a"];
    for (pre, expected) in
        [("llama-bpe", vec![0, 1]), ("gpt-2", vec![1]), ("default", vec![1]), ("qwen2", vec![1])]
    {
        let gguf = gguf(Some(pre), &tokens, &[]);
        assert_eq!(codec(&gguf).encode("a").unwrap(), expected, "{pre}");
    }
    for add in [false, true] {
        let mut gguf = gguf(Some("llama-bpe"), &tokens, &[]);
        gguf.metadata.insert("tokenizer.ggml.add_bos_token".to_owned(), Value::Bool(add));
        assert_eq!(codec(&gguf).encode("a").unwrap().len(), 1 + usize::from(add));
    }
}

/// GPT-2 keeps a space before punctuation and takes numbers whole; `default`, which is meant where
/// nothing is said, parts them from it and takes digits by three.
#[test]
fn the_default_splits_are_not_those_of_gpt_2() {
    let tokens = ["<s>", "1", "2", "3", "4", "!", "Ġ", "Ġ!", "12", "34", "1234", "123"];
    let merges = ["Ġ !", "1 2", "3 4", "12 34", "12 3"];
    let encode = |pre, text: &str| codec(&gguf(pre, &tokens, &merges)).encode(text).unwrap();
    assert_eq!(encode(Some("gpt-2"), " !1234"), [7, 10]);
    for pre in [None, Some("default")] {
        assert_eq!(encode(pre, " !1234"), [6, 5, 11, 4], "{pre:?}");
    }
}

#[test]
fn a_byte_without_a_token_is_an_error() {
    let codec = codec(&gguf(Some("gpt-2"), &["<s>", "a", "Ġ"], &[]));
    assert_eq!(codec.encode("a a").unwrap(), [1, 2, 1]);
    let error = codec.encode("a b").unwrap_err().to_string();
    assert_eq!(
        error,
        "metadata key `tokenizer.ggml.tokens` has no token for byte 0x62 of the text"
    );
}

#[test]
fn a_kind_that_is_not_known_is_named_with_its_key() {
    let read = |gguf: &Gguf| format!("{:#}", TextCodec::read(gguf, Path::new("x")).unwrap_err());
    let error = read(&gguf(Some("tekken"), &["a"], &[]));
    assert!(error.contains("`tokenizer.ggml.pre`: pre-tokenizer `tekken` is not"), "{error}");
    let mut other = gguf(None, &["a"], &[]);
    other.metadata.insert("tokenizer.ggml.model".to_owned(), Value::String("t5".to_owned()));
    assert!(read(&other).contains("`tokenizer.ggml.model`: tokenizer `t5` is not"));
}
