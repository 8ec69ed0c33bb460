//! A prompt length of a sweep, alone or with the number of tokens to generate. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// As definitions and journals have it: `512`, or `[512, 64]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a prompt length, or [prompt length, tokens to generate], in whole numbers"
)]
pub(crate) enum Length {
    /// A prompt of so many tokens, after which `max_tokens` are generated.
    Prompt(u64),
    /// A prompt length, and how many tokens are generated after it.
    Pair([u64; 2]),
}

impl Length {
    pub(crate) fn prompt(self) -> u64 {
        match self {
            Length::Prompt(prompt) | Length::Pair([prompt, _]) => prompt,
        }
    }

    /// Tokens to generate, where they are not those of the whole sweep.
    pub(crate) fn generate(self) -> Option<u64> {
        match self {
            Length::Prompt(_) => None,
            Length::Pair([_, generate]) => Some(generate),
        }
    }
}

/// `512`, or `512:64`.
impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Prompt(prompt) => write!(f, "{prompt}"),
            Length::Pair([prompt, generate]) => write!(f, "{prompt}:{generate}"),
        }
    }
}

impl FromStr for Length {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Length, Self::Err> {
        match text.split_once(':') {
            None => Ok(Length::Prompt(text.parse()?)),
            Some((prompt, generate)) => Ok(Length::Pair([prompt.parse()?, generate.parse()?])),
        }
    }
}

/// Lengths as people read them.
pub(crate) fn render_lengths(lengths: &[Length]) -> String {
    lengths.iter().map(Length::to_string).collect::<Vec<_>>().join(", ")
}

/// The name that a number of generated tokens has among variants.
pub(crate) fn generate_name(count: u64) -> String {
    format!("g{count}")
}

/// The number in such a name.
pub(crate) fn parse_generate(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('g')?;
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What is before the number of generated tokens that a name ends with, and that number.
pub(crate) fn split_generate(name: &str) -> (Option<&str>, Option<u64>) {
    let (before, last) = match name.rsplit_once('+') {
        Some((before, last)) => (Some(before), last),
        None => (None, name),
    };
    match parse_generate(last) {
        Some(count) => (before, Some(count)),
        None => (Some(name), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_numbers_or_pairs() {
        let read = |text: &str| serde_json::from_str::<Vec<Length>>(text);
        let lengths = read("[512, [2048, 64]]").unwrap();
        assert_eq!(lengths, [Length::Prompt(512), Length::Pair([2048, 64])]);
        assert_eq!(serde_json::to_string(&lengths).unwrap(), "[512,[2048,64]]");
        assert_eq!(render_lengths(&lengths), "512, 2048:64");
        assert_eq!("2048:64".parse(), Ok(Length::Pair([2048, 64])));
        assert_eq!("512".parse(), Ok(Length::Prompt(512)));
        assert!(["", "2k", "1:", ":1", "1:2:3"].iter().all(|text| text.parse::<Length>().is_err()));
        let error = read("[[1, 2, 3]]").unwrap_err().to_string();
        assert!(error.contains("[prompt length, tokens to generate]"), "{error}");
    }

    #[test]
    fn the_number_of_generated_tokens_is_the_end_of_a_name() {
        assert_eq!(split_generate("q8+g64"), (Some("q8"), Some(64)));
        assert_eq!(split_generate("g64"), (None, Some(64)));
        for name in ["q8", "gemma", "g", "g+", "g-1", "g6x"] {
            assert_eq!(split_generate(name), (Some(name), None), "{name}");
        }
        assert_eq!(generate_name(64), "g64");
    }
}
