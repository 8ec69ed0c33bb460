//! SentencePiece BPE (Llama 2, Mistral), rebuilt from the pieces and scores in the metadata.
//!
//! SentencePiece merges the neighbouring pair whose joined piece has the best score. The same order
//! comes out of merge rules: every split of a piece into two pieces, ranked by the piece's score.

use std::cmp::Reverse;

use anyhow::{anyhow, bail};
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence as Normalizers};
use tokenizers::{NormalizerWrapper, Tokenizer};

use crate::model::gguf::{Array, Gguf, Value};

/// What stands for a space in a piece.
const SPACE: &str = "\u{2581}";

pub(super) fn build(gguf: &Gguf, tokens: &[String]) -> anyhow::Result<Tokenizer> {
    let Some(Value::Array(Array::Float(scores))) = gguf.metadata.get("tokenizer.ggml.scores")
    else {
        bail!("metadata key `tokenizer.ggml.scores` is missing or no list of floats");
    };
    if scores.len() != tokens.len() {
        bail!("there are {} tokens and {} scores", tokens.len(), scores.len());
    }
    let vocabulary: Vocab = tokens.iter().cloned().zip(0..).collect();
    let merges = plan_merges(tokens, scores, &vocabulary);
    let mut builder =
        BPE::builder().vocab_and_merges(vocabulary, merges).byte_fallback(true).fuse_unk(true);
    if let Some(id) = gguf.opt_u64("tokenizer.ggml.unknown_token_id")?
        && let Some(unknown) = tokens.get(usize::try_from(id)?)
    {
        builder = builder.unk_token(unknown.clone());
    }
    let bpe = builder.build().map_err(|error| anyhow!(error))?;
    let mut tokenizer = Tokenizer::new(bpe);
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    let prefix = gguf.opt_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    if prefix {
        normalizers.push(Prepend::new(SPACE.to_owned()).into());
    }
    normalizers.push(Replace::new(" ", SPACE).map_err(|error| anyhow!(error))?.into());
    tokenizer
        .with_normalizer(Some(Normalizers::new(normalizers)))
        .map_err(|error| anyhow!(error))?;
    let space = Replace::new(SPACE, " ").map_err(|error| anyhow!(error))?;
    let mut decoders = vec![space.into(), ByteFallback::new().into(), Fuse::new().into()];
    if prefix {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    tokenizer.with_decoder(Some(Decoders::new(decoders)));
    Ok(tokenizer)
}

/// Merge rules in the order of the scores of what they yield; of equal ones the earlier token's.
fn plan_merges(tokens: &[String], scores: &[f32], vocabulary: &Vocab) -> Vec<(String, String)> {
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let mut merges = Vec::new();
    for index in order {
        let piece = &tokens[index];
        let mut splits: Vec<(u32, u32, &str, &str)> = piece
            .char_indices()
            .skip(1)
            .filter_map(|(at, _)| {
                let (left, right) = piece.split_at(at);
                Some((*vocabulary.get(left)?, *vocabulary.get(right)?, left, right))
            })
            .collect();
        // Of several splits of one piece the one into better pieces, which come earlier, is first.
        splits.sort_by_key(|split| Reverse((Reverse(split.0), Reverse(split.1))));
        merges.extend(splits.into_iter().map(|split| (split.2.to_owned(), split.3.to_owned())));
    }
    merges
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn gguf(pieces: &[(&str, f32)]) -> (Gguf, Vec<String>) {
        let tokens: Vec<String> = pieces.iter().map(|p| p.0.to_owned()).collect();
        let scores = pieces.iter().map(|p| p.1).collect();
        let metadata = BTreeMap::from([
            ("tokenizer.ggml.scores".to_owned(), Value::Array(Array::Float(scores))),
            ("tokenizer.ggml.unknown_token_id".to_owned(), Value::Unsigned(0)),
        ]);
        let gguf = Gguf {
            version: 3,
            metadata,
            tensors: BTreeMap::new(),
            file_bytes: 0,
            parts: Vec::new(),
        };
        (gguf, tokens)
    }

    /// "▁the" is reachable by (▁t, he) and (▁, the): the scores say that "he" is joined first, then
    /// "▁t", so the first rule applies; a byte outside the vocabulary falls back to its byte piece.
    #[test]
    fn text_is_merged_by_score_and_comes_back() {
        let (gguf, tokens) = gguf(&[
            ("<unk>", 0.0),
            ("<0x21>", 0.0),
            (SPACE, -9.0),
            ("t", -10.0),
            ("h", -11.0),
            ("e", -12.0),
            ("he", -1.0),
            ("\u{2581}t", -2.0),
            ("\u{2581}the", -3.0),
        ]);
        let tokenizer = build(&gguf, &tokens).unwrap();
        let ids = tokenizer.encode("the the!", false).unwrap().get_ids().to_vec();
        assert_eq!(ids, [8, 8, 1]);
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), "the the!");
    }
}
