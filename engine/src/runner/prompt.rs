//! The prompt: a text of the user's, or exactly N tokens of a fixed one.

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use super::{Args, term};
use crate::decode::{Lengths, plan_lengths};
use crate::model::ModelConfig;
use crate::model::chat::render_question;
use crate::model::tokenizer::TextCodec;

/// The text that fixed prompts are cut from.
const CORPUS: &str = include_str!("corpus.txt");

/// Tokens of the fixed prompt where nothing was asked for.
const DEFAULT_TOKENS: usize = 512;

pub(super) struct Prompt {
    pub(super) ids: Vec<u32>,
    pub(super) target: usize,
    /// Stop tokens: none for a fixed prompt, so that every run decodes as many tokens.
    pub(super) stop: Vec<u32>,
}

pub(super) fn plan(
    args: &Args,
    codec: Option<&TextCodec>,
    config: &ModelConfig,
) -> anyhow::Result<Prompt> {
    if let Some(text) = &args.prompt {
        let codec = codec.context(
            "--prompt needs a tokenizer, and the model has none: use --prompt-tokens, or put a \
             `tokenizer.json` beside the model",
        )?;
        let ids = if args.chat {
            let now = chrono::Local::now().naive_local();
            codec.encode_chat(&render_question(codec, text, now)?)?
        } else {
            codec.encode(text)?
        };
        anyhow::ensure!(!ids.is_empty(), "the prompt has no tokens");
        return Ok(Prompt { target: ids.len(), ids, stop: codec.stop.clone() });
    }
    if let Some(ids) = &args.prompt_ids {
        return Ok(Prompt { target: ids.len(), ids: ids.clone(), stop: Vec::new() });
    }
    let target = args.prompt_tokens.map_or(DEFAULT_TOKENS, std::num::NonZeroUsize::get);
    // No more than the context can hold is made, whatever was asked for.
    let count = target.min(config.context);
    let corpus = match codec.map(|codec| fixed_text(codec, config)) {
        Some(Ok(corpus)) => Some(corpus),
        Some(Err(error)) => {
            warn_of_tokenizer(&error);
            None
        }
        None => None,
    };
    let ids = match corpus {
        Some(corpus) => repeat(&corpus, count),
        None => synthetic_ids(config.vocab, count),
    };
    Ok(Prompt { ids, target, stop: Vec::new() })
}

/// A cell by length measures as well with any tokens.
pub(super) fn warn_of_tokenizer(error: &anyhow::Error) {
    term::log(&format!(
        "warning: the model's tokenizer cannot be used: {error:#}; the prompt is made of token \
         numbers"
    ));
}

fn fixed_text(codec: &TextCodec, config: &ModelConfig) -> anyhow::Result<Vec<u32>> {
    let corpus = codec.encode(CORPUS)?;
    anyhow::ensure!(!corpus.is_empty(), "it makes no tokens of the fixed text");
    if let Some(beyond) = corpus.iter().find(|&&id| id as usize >= config.vocab) {
        anyhow::bail!("it makes token {beyond}, and the model has {} rows", config.vocab);
    }
    Ok(corpus)
}

/// How many tokens run. What the user gave is never cut: the output gives way, and a prompt that
/// leaves no room for a token is an error. A prompt by length is cut to what the context holds.
pub(super) fn fit(args: &Args, prompt: &Prompt, context: usize) -> anyhow::Result<Lengths> {
    let (tokens, max_tokens) = (prompt.ids.len(), args.max_tokens.get());
    if args.prompt.is_none() && args.prompt_ids.is_none() {
        return Ok(plan_lengths(tokens, max_tokens, context));
    }
    anyhow::ensure!(
        tokens < context,
        "the prompt has {tokens} tokens, and the model's context of {context} must hold one more: \
         shorten it"
    );
    let room = context - tokens;
    let warning = (max_tokens > room).then(|| {
        format!(
            "the model's context is {context} tokens: the output is capped at {room} of {max_tokens}"
        )
    });
    Ok(Lengths { prompt: tokens, max_tokens: max_tokens.min(room), warning })
}

fn repeat(corpus: &[u32], count: usize) -> Vec<u32> {
    corpus.iter().copied().cycle().take(count).collect()
}

/// Ids for a model without a tokenizer: the same ones always, spread over the vocabulary.
fn synthetic_ids(vocab: usize, count: usize) -> Vec<u32> {
    // Multiplication by the golden ratio's fraction of 2⁶⁴ spreads successive numbers evenly.
    let spread = |index: u64| (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (0..count as u64).map(|index| (spread(index) % vocab as u64) as u32).collect()
}

/// Lower-case hex SHA-256 over the ids as little-endian `u32`s.
pub(super) fn token_hash(ids: &[u32]) -> String {
    let mut hasher = Sha256::new();
    for id in ids {
        hasher.update(id.to_le_bytes());
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_longer_than_the_corpus_repeats_it() {
        assert_eq!(repeat(&[1, 2, 3], 7), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(repeat(&[1, 2, 3], 2), [1, 2]);
    }

    #[test]
    fn a_prompt_of_the_users_is_never_cut() {
        let fit_of = |options: &[&str], tokens: u32, context: usize| {
            let all = ["decode-bench", "-m", "x"].iter().chain(options);
            let args = <Args as clap::Parser>::try_parse_from(all).unwrap();
            let prompt = Prompt { ids: (0..tokens).collect(), target: 0, stop: Vec::new() };
            fit(&args, &prompt, context)
        };
        let lengths = fit_of(&["-p", "x", "-n", "18446744073709551615"], 60, 64).unwrap();
        assert_eq!((lengths.prompt, lengths.max_tokens), (60, 4));
        assert!(lengths.warning.unwrap().contains("capped at 4 of 18446744073709551615"));
        let lengths = fit_of(&["-p", "x", "-n", "4"], 60, 64).unwrap();
        assert_eq!((lengths.max_tokens, lengths.warning), (4, None));
        for options in [["-p", "x"], ["--prompt-ids", "1,2"]] {
            let error = fit_of(&options, 64, 64).unwrap_err().to_string();
            assert!(error.starts_with("the prompt has 64 tokens"), "{error}");
        }
        let lengths = fit_of(&["--prompt-tokens", "100", "-n", "8"], 64, 64).unwrap();
        assert_eq!((lengths.prompt, lengths.max_tokens), (56, 8));
    }

    #[test]
    fn synthetic_ids_are_within_the_vocabulary_and_vary() {
        let ids = synthetic_ids(100, 1000);
        assert!(ids.iter().all(|&id| id < 100));
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert!(distinct.len() > 90);
        assert_eq!(ids[..10], synthetic_ids(100, 10));
    }

    /// Computed with `printf '\1\0\0\0\0\1\0\0' | sha256sum`.
    #[test]
    fn the_hash_is_over_little_endian_ids() {
        assert_eq!(
            token_hash(&[1, 256]),
            "242045e2f1bb37769b514f182fd91b3d215324cb57f187cced1e9c62921dbac3"
        );
    }
}
