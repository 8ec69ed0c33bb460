//! What an allocator says when it fails, searched for in output while it streams by.
//!
//! It owns the list of patterns and a search with bounded memory that finds a pattern wherever the
//! chunks happen to be cut. It decides nothing: what a match means is in `classify`.
//!
//! The list is specific on purpose. Every entry is text that an allocator, a runtime or a driver
//! prints when memory ran out; bare "oom" (zoom, room) and "exceeds limit" (frame sizes, rate
//! limits) are not on it. Nor is the kernel module's `NV_ERR_NO_MEMORY`, which healthy starts
//! print as well.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// The patterns, matched without regard to ASCII case.
const PATTERNS: &[&str] = &[
    "out of memory",
    "out-of-memory",
    "insufficient memory",
    "failed to allocate",
    "cannot allocate memory",
    "unable to allocate",
    "bad_alloc",
    ALLOCATION_OF_N,
    "greater than the maximum allowed buffer size",
    "metal::malloc",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "cuMemAlloc failed",
];

/// What Rust's allocation error handler prints; a match only where a number follows.
const ALLOCATION_OF_N: &str = "memory allocation of ";

/// Bytes of earlier output that are kept, so that a match across a cut is found and its line shown.
const CARRY_BYTES: usize = 512;

/// Bytes of the matching line that are kept.
const LINE_BYTES: usize = 300;

static SEARCHER: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(PATTERNS)
        .expect("a fixed list of short patterns builds")
});

/// An allocator's failure, found in output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatternMatch {
    /// The pattern that matched, as the list has it.
    pub(crate) pattern: &'static str,
    /// The line that it was found in, shortened around nothing but its length.
    pub(crate) line: String,
}

/// Searches one stream, chunk by chunk, for the first match.
#[derive(Debug, Default)]
pub(crate) struct PatternSearch {
    /// The end of what was seen: at most [`CARRY_BYTES`], then the chunk at hand.
    window: Vec<u8>,
    /// The first match, once there is one.
    found: Option<Found>,
}

/// A match whose line may still be arriving.
#[derive(Debug)]
struct Found {
    pattern: &'static str,
    line: Vec<u8>,
    line_is_whole: bool,
}

impl PatternSearch {
    /// Takes the next chunk of the stream.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        if let Some(found) = &mut self.found {
            found.extend_line(chunk);
            return;
        }
        self.window.extend_from_slice(chunk);
        match find_pattern(&self.window) {
            Some((pattern, start)) => {
                let line_start = self.window[..start]
                    .iter()
                    .rposition(|&byte| byte == b'\n')
                    .map_or(0, |at| at + 1);
                // A line without an end in sight is cut in front of the match, never behind it.
                let line_start = line_start.max(start.saturating_sub(LINE_BYTES / 2));
                let mut found = Found { pattern, line: Vec::new(), line_is_whole: false };
                found.extend_line(&self.window[line_start..]);
                self.found = Some(found);
                self.window = Vec::new();
            }
            None => {
                let keep_from = self.window.len().saturating_sub(CARRY_BYTES);
                self.window.drain(..keep_from);
            }
        }
    }

    /// The first match of the stream so far.
    pub(crate) fn found(&self) -> Option<PatternMatch> {
        self.found.as_ref().map(|found| PatternMatch {
            pattern: found.pattern,
            line: String::from_utf8_lossy(&found.line).trim().to_owned(),
        })
    }
}

impl Found {
    fn extend_line(&mut self, bytes: &[u8]) {
        if self.line_is_whole {
            return;
        }
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let room = LINE_BYTES - self.line.len();
        let take = end.unwrap_or(bytes.len()).min(room);
        self.line.extend_from_slice(&bytes[..take]);
        self.line_is_whole = end.is_some() || self.line.len() == LINE_BYTES;
    }
}

/// The first pattern in `bytes` and where it starts.
///
/// A pattern that wants a number behind it is no match while nothing is behind it: the bytes stay
/// in the carry and are looked at again together with those that follow.
fn find_pattern(bytes: &[u8]) -> Option<(&'static str, usize)> {
    SEARCHER.find_iter(bytes).find_map(|found| {
        let pattern = PATTERNS[found.pattern().as_usize()];
        let complete =
            pattern != ALLOCATION_OF_N || bytes.get(found.end()).is_some_and(u8::is_ascii_digit);
        complete.then_some((pattern, found.start()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search(chunks: &[&[u8]]) -> Option<PatternMatch> {
        let mut search = PatternSearch::default();
        for chunk in chunks {
            search.feed(chunk);
        }
        search.found()
    }

    /// Text as programs really print it, with the pattern that must be found.
    pub(crate) const SIGNATURES: &[(&str, &str)] = &[
        ("CUDA error: out of memory", "out of memory"),
        ("killed: Out-Of-Memory", "out-of-memory"),
        ("Insufficient Memory (00000008:kIOGPU)", "insufficient memory"),
        ("error: failed to allocate 4.2 GiB", "failed to allocate"),
        ("fork: Cannot allocate memory", "cannot allocate memory"),
        ("numpy: Unable to allocate 8 GiB for an array", "unable to allocate"),
        ("terminate called: std::bad_alloc", "bad_alloc"),
        ("memory allocation of 8589934592 bytes failed", ALLOCATION_OF_N),
        (
            "9663676416 bytes which is greater than the maximum allowed buffer size of 8 GiB",
            "greater than the maximum allowed buffer size",
        ),
        ("[metal::malloc] Resource limit exceeded", "metal::malloc"),
        ("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"\")", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("cudaErrorMemoryAllocation (2)", "cudaErrorMemoryAllocation"),
        ("cuMemAlloc failed with 2", "cuMemAlloc failed"),
    ];

    #[test]
    fn each_signature_is_found_with_its_line_in_any_case() {
        assert_eq!(SIGNATURES.len(), PATTERNS.len());
        for (line, pattern) in SIGNATURES {
            for line in [(*line).to_owned(), line.to_uppercase(), line.to_lowercase()] {
                let text = format!("loading\n  {line}  \nbye\n");
                let found = search(&[text.as_bytes()]).unwrap_or_else(|| panic!("{line}"));
                assert_eq!((found.pattern, found.line.as_str()), (*pattern, line.as_str()));
            }
        }
    }

    #[test]
    fn near_misses_are_not_found() {
        for line in [
            "zoom level 4",
            "room temperature 21 C",
            "oom",
            "OOM score adjusted",
            "frame exceeds limit",
            "NVRM: NV_ERR_NO_MEMORY",
            "memory allocation of the KV cache is planned",
            "memory allocation of ",
            "bad alloc",
            "allocated memory",
            "out of  memory",
        ] {
            assert_eq!(search(&[line.as_bytes(), b"\n"]), None, "{line}");
        }
    }

    #[test]
    fn a_number_that_comes_with_the_next_chunk_completes_the_match() {
        let found = search(&[b"x\nmemory allocation of ", b"17 bytes failed\nmore"]).unwrap();
        assert_eq!(found.line, "memory allocation of 17 bytes failed");
    }

    #[test]
    fn a_line_of_any_length_is_cut_around_the_match() {
        let mut text = vec![b'a'; 100_000];
        text.extend_from_slice(b"out of memory");
        text.extend_from_slice(&[b'b'; 100_000]);
        let found = search(&[&text]).unwrap();
        assert!(found.line.contains("out of memory"), "{}", found.line);
        assert!(found.line.len() <= LINE_BYTES);
    }

    #[test]
    fn the_window_stays_bounded() {
        let mut search = PatternSearch::default();
        for _ in 0..1000 {
            search.feed(&[b'a'; 4096]);
        }
        assert!(search.window.len() <= CARRY_BYTES);
    }

    proptest! {
        #[test]
        fn the_cuts_between_chunks_do_not_matter(
            before in "[a-z\n ]{0,700}",
            which in 0..SIGNATURES.len(),
            after in "[a-z\n ]{0,40}",
            cuts in prop::collection::vec(0usize..1500, 0..12),
        ) {
            let text = format!("{before}\n{}\n{after}", SIGNATURES[which].0);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> =
                cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            let found = search(&chunks);
            prop_assert_eq!(&found, &search(&[text.as_bytes()]));
            prop_assert_eq!(found.unwrap().line, SIGNATURES[which].0);
        }
    }
}
