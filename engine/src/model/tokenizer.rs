//! Text to tokens and back: from a `tokenizer.json` beside the model, or out of its metadata.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

use super::gguf::{Array, Gguf, Value};

mod sentencepiece;

/// How Llama 3 splits text before its merges.
const LLAMA3_SPLIT: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// How Qwen2 splits text before its merges: as Llama 3, but every digit is alone.
const QWEN2_SPLIT: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How files without a kind of their own split text, one after the other. Those of llama.cpp: its
/// `default` is not GPT-2's.
const DEFAULT_SPLITS: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

/// `tokenizer.ggml.token_type` of a control token, which no text yields.
const CONTROL: i64 = 3;
/// `tokenizer.ggml.token_type` of a token that was added whole.
const USER_DEFINED: i64 = 4;

/// A model's tokenizer and what belongs to it.
#[derive(Debug)]
pub struct TextCodec {
    tokenizer: Tokenizer,
    /// Bytes that no token has, where text is made of bytes: the model drops them without a word.
    missing_bytes: Vec<u8>,
    /// Put before every text that is no chat, where the model wants it.
    bos: Option<u32>,
    /// Tokens that end generation.
    pub stop: Vec<u32>,
    /// The chat template, in Jinja.
    pub chat_template: Option<String>,
    /// The text of the begin token, for the chat template.
    pub bos_text: String,
    /// The text of the end token, for the chat template.
    pub eos_text: String,
}

impl TextCodec {
    /// Reads the tokenizer of the model at `path`: `tokenizer.json` beside it if there is one, else
    /// the metadata; `None` where there is neither.
    ///
    /// # Errors
    /// The tokenizer is broken or of an unsupported kind.
    pub fn read(gguf: &Gguf, path: &Path) -> anyhow::Result<Option<Self>> {
        let json = path.with_file_name("tokenizer.json");
        let tokens = gguf.opt_strings("tokenizer.ggml.tokens")?;
        let tokenizer = if json.is_file() {
            Tokenizer::from_file(&json)
                .map_err(|error| anyhow!(error))
                .with_context(|| format!("cannot read the tokenizer `{}`", json.display()))?
        } else if let Some(tokens) = tokens {
            build(gguf, tokens).context("cannot build the tokenizer that the model describes")?
        } else {
            return Ok(None);
        };
        let id = |key: &str| -> anyhow::Result<Option<u32>> {
            let key = format!("tokenizer.ggml.{key}");
            Ok(gguf.opt_u64(&key)?.map(u32::try_from).transpose()?)
        };
        let text =
            |id: Option<u32>| id.and_then(|id| tokenizer.id_to_token(id)).unwrap_or_default();
        let (bos, eos) = (id("bos_token_id")?, id("eos_token_id")?);
        let add_bos = match gguf.opt_bool("tokenizer.ggml.add_bos_token")? {
            Some(add) => add,
            None => adds_bos_by_itself(gguf)?,
        };
        // Chat models end a turn with a token that is often not the one that ends a text.
        let mut stop: Vec<u32> = eos.into_iter().chain(id("eot_token_id")?).collect();
        for name in ["<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>"] {
            stop.extend(tokenizer.token_to_id(name));
        }
        stop.sort_unstable();
        stop.dedup();
        let byte_level = !json.is_file() && gguf.opt_str("tokenizer.ggml.model")? != Some("llama");
        let missing_bytes = if byte_level { missing_bytes(&tokenizer) } else { Vec::new() };
        Ok(Some(Self {
            bos: bos.filter(|_| add_bos),
            stop,
            chat_template: gguf.opt_str("tokenizer.chat_template")?.map(str::to_owned),
            bos_text: text(bos),
            eos_text: text(eos),
            missing_bytes,
            tokenizer,
        }))
    }

    /// The tokens of a text, with the begin token where the model wants it.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        let mut ids: Vec<u32> = self.bos.into_iter().collect();
        ids.extend(self.encode_chat(text)?);
        Ok(ids)
    }

    /// The tokens of a rendered chat, whose template has written the begin token itself.
    ///
    /// # Errors
    /// The tokenizer refuses the text, or has no token for one of its bytes.
    pub fn encode_chat(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        if let Some(byte) = text.bytes().find(|byte| self.missing_bytes.contains(byte)) {
            bail!(
                "metadata key `tokenizer.ggml.tokens` has no token for byte 0x{byte:02x} of the text"
            );
        }
        let encoding = self.tokenizer.encode_fast(text, false).map_err(|error| anyhow!(error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens, without control tokens.
    ///
    /// # Errors
    /// The tokenizer refuses the tokens.
    pub fn decode(&self, ids: &[u32]) -> anyhow::Result<String> {
        self.tokenizer.decode(ids, true).map_err(|error| anyhow!(error))
    }
}

/// Whether llama.cpp puts the begin token first where a file does not say: with SentencePiece, and
/// with what Llama 3 splits text by (`src/llama-vocab.cpp`, where `pre_type` is chosen).
fn adds_bos_by_itself(gguf: &Gguf) -> anyhow::Result<bool> {
    let sentencepiece = gguf.opt_str("tokenizer.ggml.model")? == Some("llama");
    let pre = gguf.opt_str("tokenizer.ggml.pre")?;
    Ok(sentencepiece || matches!(pre, Some("llama-bpe" | "llama3" | "llama-v3" | "tekken")))
}

/// Bytes that have no token of their own, in the alphabet of byte-level vocabularies.
fn missing_bytes(tokenizer: &Tokenizer) -> Vec<u8> {
    // 68 bytes are written as the characters from U+0100 on, in their order.
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut other = 0x100;
    let mut missing = Vec::new();
    for byte in 0..=u8::MAX {
        let character = if printable(byte) {
            char::from(byte)
        } else {
            other += 1;
            char::from_u32(other - 1).unwrap_or_default()
        };
        if tokenizer.token_to_id(character.encode_utf8(&mut [0; 4])).is_none() {
            missing.push(byte);
        }
    }
    missing
}

fn build(gguf: &Gguf, tokens: &[String]) -> anyhow::Result<Tokenizer> {
    let mut tokenizer = match gguf.opt_str("tokenizer.ggml.model")?.unwrap_or("gpt2") {
        "gpt2" => build_byte_level(gguf, tokens)?,
        "llama" => sentencepiece::build(gguf, tokens)?,
        other => bail!(
            "metadata key `tokenizer.ggml.model`: tokenizer `{other}` is not supported; supported: \
             gpt2, llama, or any with a `tokenizer.json` beside the model"
        ),
    };
    let added = |wanted: i64, special: bool| -> Vec<AddedToken> {
        let types: Vec<i64> = match gguf.metadata.get("tokenizer.ggml.token_type") {
            Some(Value::Array(Array::Signed(types))) => types.clone(),
            Some(Value::Array(Array::Unsigned(types))) => {
                types.iter().map(|&kind| kind as i64).collect()
            }
            _ => Vec::new(),
        };
        let of_type = types.iter().zip(tokens).filter(|(kind, _)| **kind == wanted);
        of_type.map(|(_, token)| AddedToken::from(token.clone(), special)).collect()
    };
    tokenizer
        .add_special_tokens(added(CONTROL, true))
        .and_then(|_| tokenizer.add_tokens(added(USER_DEFINED, false)))
        .map_err(|error| anyhow!(error))?;
    Ok(tokenizer)
}

/// Byte-level BPE, in the variants that the supported models use.
fn build_byte_level(gguf: &Gguf, tokens: &[String]) -> anyhow::Result<Tokenizer> {
    let merges = gguf
        .opt_strings("tokenizer.ggml.merges")?
        .context("metadata key `tokenizer.ggml.merges` is missing")?
        .iter()
        .map(|merge| {
            let (left, right) = merge.split_once(' ')?;
            Some((left.to_owned(), right.to_owned()))
        })
        .collect::<Option<Vec<_>>>()
        .context("metadata key `tokenizer.ggml.merges` has an entry without a space")?;
    let vocabulary: Vocab = tokens.iter().cloned().zip(0..).collect();
    let pre = gguf.opt_str("tokenizer.ggml.pre")?.unwrap_or("default");
    let bpe = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .ignore_merges(matches!(pre, "llama-bpe" | "llama3" | "llama-v3"))
        .build()
        .map_err(|error| anyhow!(error))?;
    let mut tokenizer = Tokenizer::new(bpe);
    let splits = |patterns: &[&str]| -> anyhow::Result<PreTokenizers> {
        let mut parts = Vec::new();
        for &pattern in patterns {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|error| anyhow!(error))?;
            parts.push(split.into());
        }
        parts.push(ByteLevel::new(false, true, false).into());
        Ok(PreTokenizers::new(parts))
    };
    match pre {
        "default" => {
            tokenizer.with_pre_tokenizer(Some(splits(&DEFAULT_SPLITS)?));
        }
        "gpt-2" => {
            tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        }
        "smollm" => {
            let parts = vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()];
            tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(parts)));
        }
        "llama-bpe" | "llama3" | "llama-v3" => {
            tokenizer.with_pre_tokenizer(Some(splits(&[LLAMA3_SPLIT])?));
        }
        "qwen2" | "deepseek-r1-qwen" => {
            tokenizer.with_normalizer(Some(NFC)).map_err(|error| anyhow!(error))?;
            tokenizer.with_pre_tokenizer(Some(splits(&[QWEN2_SPLIT])?));
        }
        other => bail!(
            "metadata key `tokenizer.ggml.pre`: pre-tokenizer `{other}` is not supported; supported: default, gpt-2, smollm, \
             llama-bpe, qwen2, or any with a `tokenizer.json` beside the model"
        ),
    }
    tokenizer.with_decoder(Some(tokenizers::decoders::byte_level::ByteLevel::default()));
    Ok(tokenizer)
}

#[cfg(test)]
mod tests;
