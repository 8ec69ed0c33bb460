//! The catalogue of what allocators say, and finding its entries in a line.
//!
//! `bench-configs/oom-signatures.toml` is compiled in; a runner adds patterns and lines to ignore. The
//! catalogue is specific on purpose: bare "oom" (zoom, room) and "exceeds limit" are not in it.

use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use anyhow::bail;
use serde::Deserialize;

const CATALOGUE: &str = include_str!("../../../../bench-configs/oom-signatures.toml");

/// The shortest text that a runner may look for: less is found in every log.
const LEAST_PATTERN_CHARS: usize = 4;

static BUILT_IN: LazyLock<Arc<Signatures>> = LazyLock::new(|| {
    let catalogue: Catalogue = toml::from_str(CATALOGUE).expect("the catalogue is valid");
    Arc::new(Signatures::build(catalogue, Vec::new(), Vec::new()))
});

/// What is looked for in a program's output.
#[derive(Debug, Clone)]
pub(crate) struct Signatures {
    entries: Vec<Entry>,
    searcher: AhoCorasick,
    own_patterns: Vec<String>,
    own_ignored: Vec<String>,
}

/// Two are equal if a runner asks for the same: the rest is compiled in.
impl PartialEq for Signatures {
    fn eq(&self, other: &Signatures) -> bool {
        (&self.own_patterns, &self.own_ignored) == (&other.own_patterns, &other.own_ignored)
    }
}

impl Eq for Signatures {}

#[derive(Debug, Clone)]
struct Entry {
    pattern: String,
    /// The engine or interface that says so; `None` for a line that is to be ignored.
    api: Option<String>,
    followed_by: Option<FollowedBy>,
}

/// What must come right behind a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FollowedBy {
    /// A digit.
    Digit,
    /// A word of memory, anywhere in the rest of the line: other things are allocated as well.
    Memory,
}

/// What is allocated when it is memory.
static MEMORY_WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let words = [
        "buffer",
        "memory",
        "tensor",
        "cache",
        "byte",
        "block",
        "page",
        "kib",
        "mib",
        "gib",
        " kb",
        " mb",
        " gb",
        "vram",
        "array",
        "workspace",
        "weights",
        "activation",
        "heap",
        "region",
        "chunk",
        "arena",
        "scratch",
    ];
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(words)
        .expect("a fixed list of words builds")
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    signature: Vec<RawSignature>,
    ignore: Vec<RawIgnore>,
}

/// The fields that nothing but the test of the catalogue reads are there for people.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code))]
struct RawSignature {
    pattern: String,
    followed_by: Option<FollowedBy>,
    api: String,
    example: String,
    source: String,
    near_miss: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code))]
struct RawIgnore {
    pattern: String,
    because: String,
    example: String,
    source: String,
    counts: String,
}

/// A signature in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit<'s> {
    pub(crate) pattern: &'s str,
    pub(crate) api: &'s str,
    /// Where in the line it begins, in bytes.
    pub(crate) start: usize,
}

impl Signatures {
    /// The catalogue as it is.
    pub(crate) fn built_in() -> Arc<Signatures> {
        Arc::clone(&BUILT_IN)
    }

    /// The catalogue and what a runner adds to it.
    ///
    /// # Errors
    /// When a text is so short that it would be found in every log.
    pub(crate) fn with_own(
        patterns: &[String],
        ignored: &[String],
    ) -> anyhow::Result<Arc<Signatures>> {
        if patterns.is_empty() && ignored.is_empty() {
            return Ok(Signatures::built_in());
        }
        for (key, texts) in [("oom_patterns", patterns), ("oom_ignore", ignored)] {
            for text in texts {
                if text.trim().chars().count() < LEAST_PATTERN_CHARS || text.contains('\n') {
                    bail!(
                        "`{key}`: `{}` is not a text of at least {LEAST_PATTERN_CHARS} characters \
                         within one line",
                        text.escape_debug()
                    );
                }
            }
        }
        let catalogue: Catalogue = toml::from_str(CATALOGUE)?;
        Ok(Arc::new(Signatures::build(catalogue, patterns.to_vec(), ignored.to_vec())))
    }

    fn build(
        catalogue: Catalogue,
        own_patterns: Vec<String>,
        own_ignored: Vec<String>,
    ) -> Signatures {
        let own = |pattern: &String, api: Option<&str>| Entry {
            pattern: pattern.clone(),
            api: api.map(str::to_owned),
            followed_by: None,
        };
        let entries: Vec<Entry> = own_patterns
            .iter()
            .map(|pattern| own(pattern, Some("the runner")))
            .chain(own_ignored.iter().map(|pattern| own(pattern, None)))
            .chain(catalogue.signature.into_iter().map(|raw| Entry {
                pattern: raw.pattern,
                api: Some(raw.api),
                followed_by: raw.followed_by,
            }))
            .chain(catalogue.ignore.into_iter().map(|raw| Entry {
                pattern: raw.pattern,
                api: None,
                followed_by: None,
            }))
            .collect();
        let searcher = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(entries.iter().map(|entry| &entry.pattern))
            .expect("short patterns build");
        Signatures { entries, searcher, own_patterns, own_ignored }
    }

    /// Whether any entry may be in these bytes: what is cheap to ask of a whole chunk of output.
    pub(crate) fn may_be_in(&self, bytes: &[u8]) -> bool {
        self.searcher.is_match(bytes)
    }

    /// The signature of a line: the longest of several, an own one before the catalogue's. A line with
    /// text that is to be ignored has none.
    pub(crate) fn find<'s>(&'s self, line: &[u8]) -> Option<Hit<'s>> {
        let mut best: Option<(usize, Hit<'s>)> = None;
        for found in self.searcher.find_overlapping_iter(line) {
            let entry = &self.entries[found.pattern().as_usize()];
            if !entry.ends_at(line, found.end()) {
                continue;
            }
            // What is to be ignored is so for the whole line.
            let api = entry.api.as_deref()?;
            let is_own = found.pattern().as_usize() < self.own_patterns.len();
            let rank = if is_own { usize::MAX } else { entry.pattern.len() };
            if best.is_none_or(|(least, _)| rank > least) {
                best = Some((rank, Hit { pattern: &entry.pattern, api, start: found.start() }));
            }
        }
        best.map(|(_, hit)| hit)
    }
}

impl Entry {
    /// Whether the pattern may end here: where a word ends, or in front of what must follow.
    fn ends_at(&self, line: &[u8], end: usize) -> bool {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let next = line.get(end).copied();
        match self.followed_by {
            Some(FollowedBy::Digit) => return next.is_some_and(|byte| byte.is_ascii_digit()),
            Some(FollowedBy::Memory) if !MEMORY_WORDS.is_match(&line[end..]) => return false,
            _ => {}
        }
        if self.api.is_none() || !self.pattern.bytes().next_back().is_some_and(is_word) {
            return true;
        }
        match next {
            Some(b'-') => !line.get(end + 1).copied().is_some_and(is_word),
            Some(byte) => !is_word(byte),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        toml::from_str(CATALOGUE).unwrap()
    }

    #[test]
    fn every_entry_is_found_in_its_example_in_any_case_and_not_in_its_near_miss() {
        let signatures = Signatures::built_in();
        for entry in catalogue().signature {
            let RawSignature { pattern, example, near_miss, source, api, .. } = entry;
            for line in [example.clone(), example.to_uppercase(), example.to_lowercase()] {
                let hits: Vec<&str> = signatures
                    .searcher
                    .find_overlapping_iter(&line)
                    .filter(|found| {
                        signatures.entries[found.pattern().as_usize()]
                            .ends_at(line.as_bytes(), found.end())
                    })
                    .map(|found| signatures.entries[found.pattern().as_usize()].pattern.as_str())
                    .collect();
                assert!(hits.contains(&pattern.as_str()), "`{pattern}` is not found in `{line}`");
                assert!(signatures.find(line.as_bytes()).is_some(), "{line}");
            }
            let missed = signatures.find(near_miss.as_bytes());
            assert_eq!(missed, None, "near miss of `{pattern}`: {near_miss}");
            assert!(source.starts_with("https://") && !api.is_empty(), "{pattern}");
        }
    }

    #[test]
    fn every_ignored_line_would_match_and_does_not() {
        let signatures = Signatures::built_in();
        for entry in catalogue().ignore {
            let RawIgnore { pattern, example, counts, source, because } = entry;
            assert!(signatures.may_be_in(example.as_bytes()), "{example}");
            let without = example.to_lowercase().replace(&pattern.to_lowercase(), "");
            assert!(
                signatures.find(without.as_bytes()).is_some(),
                "`{pattern}` ignores nothing in `{example}`"
            );
            assert_eq!(signatures.find(example.as_bytes()), None, "{example}");
            assert!(signatures.find(counts.as_bytes()).is_some(), "{counts}");
            assert!(source.starts_with("https://") && !because.is_empty(), "{pattern}");
        }
    }

    #[test]
    fn no_pattern_stands_in_the_catalogue_twice() {
        let mut patterns: Vec<String> =
            catalogue().signature.iter().map(|entry| entry.pattern.to_lowercase()).collect();
        let all = patterns.len();
        patterns.sort();
        patterns.dedup();
        assert_eq!(patterns.len(), all);
    }

    #[test]
    fn near_misses_that_belong_to_no_entry() {
        let signatures = Signatures::built_in();
        for line in [
            "zoom level 4",
            "room temperature 21 C",
            "oom",
            "OOM score adjusted",
            "frame exceeds limit",
            "NVRM: NV_ERR_NO_MEMORY",
            "memory allocation of ",
            "bad alloc",
            "allocated memory",
            "out of  memory",
            "rate limit exceeded",
        ] {
            assert_eq!(signatures.find(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_runner_adds_patterns_and_lines_to_ignore() {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let signatures =
            Signatures::with_own(&own(&["VRAM budget blown"]), &own(&["swap thrash"])).unwrap();
        let hit = signatures.find(b"E: vram budget blown").unwrap();
        assert_eq!((hit.pattern, hit.api), ("VRAM budget blown", "the runner"));
        assert_eq!(signatures.find(b"swap thrash: out of memory"), None);
        assert!(signatures.find(b"CUDA error: out of memory").is_some());
        for short in ["", " a ", "oom"] {
            let error = Signatures::with_own(&own(&[short]), &[]).unwrap_err().to_string();
            assert!(error.starts_with("`oom_patterns`: `"), "{error}");
        }
        assert!(Signatures::with_own(&[], &own(&["a\nlonger text"])).is_err());
        assert_eq!(Signatures::with_own(&[], &[]).unwrap(), Signatures::built_in());
    }
}
