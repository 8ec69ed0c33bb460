//! The search through one stream of output, of any length, with bounded memory.
//!
//! As long as no signature was seen, a chunk costs one pass of an automaton and nothing is split into
//! lines. From a signature on, lines are read one by one until no shortage is open any more.

use std::sync::Arc;

use super::line::{Context, Kind, Line, Weight};
use super::signatures::Signatures;
use super::speaker::{Effect, Speaker};
use super::{Shortage, Survived};
use crate::base::shown::strip_escapes;

/// Whole lines that are kept of what was before, so that a traceback is known for one.
const CONTEXT_BYTES: usize = 4 << 10;
/// A line beyond this length is taken in pieces.
const LINE_LIMIT_BYTES: usize = 16 << 10;
/// What two pieces of a line share, so that no signature is cut.
const OVERLAP_BYTES: usize = 512;
/// Sources of lines that are told apart; others count as one.
const MOST_SPEAKERS: usize = 64;

/// Searches one stream, chunk by chunk.
#[derive(Debug)]
pub(crate) struct Search {
    signatures: Arc<Signatures>,
    /// Whole lines that were passed over, then the line at hand.
    buffer: Vec<u8>,
    /// Where in the buffer that which has not been looked at begins: at the start of a line.
    unread: usize,
    /// Whether what comes next is the rest of a line that was too long.
    in_rest: bool,
    /// Where in the buffer that begins which was passed over, not read line by line.
    passed_from: usize,
    speakers: Vec<Speaker>,
}

/// What a whole stream said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    /// What nothing contradicted, with the weight that it was said with.
    pub(super) open: Vec<(Shortage, Weight)>,
    pub(super) survived: Option<Survived>,
}

impl Search {
    pub(crate) fn new(signatures: Arc<Signatures>) -> Search {
        Search {
            signatures,
            buffer: Vec::new(),
            unread: 0,
            in_rest: false,
            passed_from: 0,
            speakers: Vec::new(),
        }
    }

    /// Takes the next chunk of the stream.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
        self.read(false);
    }

    /// Takes it that the stream has ended.
    pub(crate) fn end(&mut self) {
        self.read(true);
    }

    fn read(&mut self, at_end: bool) {
        let fresh = &self.buffer[self.unread..];
        let whole = if at_end {
            fresh.len()
        } else {
            memchr::memrchr2(b'\n', b'\r', fresh).map_or(0, |at| at + 1)
        };
        let is_open = self.speakers.iter().any(|speaker| speaker.open.is_some());
        if is_open || self.signatures.may_be_in(&fresh[..whole]) {
            self.read_lines(whole, is_open);
        } else {
            self.unread += whole;
            self.in_rest &= whole == 0;
        }
        self.take_pieces_of_a_long_line();
        self.forget();
    }

    /// Reads the lines of the next `whole` bytes.
    fn read_lines(&mut self, whole: usize, was_open: bool) {
        let buffer = std::mem::take(&mut self.buffer);
        if !was_open {
            // What was passed over says whether the first line is within a traceback.
            for line in split_lines(&buffer[self.passed_from..self.unread]) {
                self.take_context(line);
            }
        }
        for line in split_lines(&buffer[self.unread..self.unread + whole]) {
            let is_rest = std::mem::take(&mut self.in_rest);
            self.take_line(line, is_rest);
        }
        self.buffer = buffer;
        self.unread += whole;
        self.passed_from = self.unread;
    }

    fn take_pieces_of_a_long_line(&mut self) {
        while self.buffer.len() - self.unread > LINE_LIMIT_BYTES {
            let end = self.unread + LINE_LIMIT_BYTES;
            let is_rest = self.in_rest;
            if self.signatures.may_be_in(&self.buffer[self.unread..end])
                || self.speakers.iter().any(|speaker| speaker.open.is_some())
            {
                let piece = self.buffer[self.unread..end].to_vec();
                self.take_line(&piece, is_rest);
            }
            self.in_rest = true;
            self.unread = end - OVERLAP_BYTES;
            self.passed_from = self.unread;
        }
    }

    /// Drops what is not needed any more.
    fn forget(&mut self) {
        let keep_from = self.unread.saturating_sub(CONTEXT_BYTES);
        // Moving the rest once in a while is cheaper than after every small chunk.
        if keep_from > CONTEXT_BYTES {
            self.buffer.drain(..keep_from);
            self.unread -= keep_from;
            self.passed_from = self.passed_from.saturating_sub(keep_from);
        }
    }

    fn take_line(&mut self, line: &[u8], is_rest: bool) {
        let text = strip_escapes(&String::from_utf8_lossy(line));
        let line = Line::parse(&text);
        let index = self.speaker_of(line.speaker);
        let signatures = Arc::clone(&self.signatures);
        let effect = self.speakers[index].take(&line, is_rest, &signatures);
        if effect == Effect::NamedAnotherCause {
            for (other, speaker) in self.speakers.iter_mut().enumerate() {
                if other != index {
                    speaker.hear_of_another_cause(line.body);
                }
            }
        }
    }

    /// Takes a line that was passed over because it holds no signature: only what it means for those
    /// after it counts.
    fn take_context(&mut self, line: &[u8]) {
        let text = strip_escapes(&String::from_utf8_lossy(line));
        let line = Line::parse(&text);
        let index = self.speaker_of(line.speaker);
        let signatures = Arc::clone(&self.signatures);
        self.speakers[index].take(&line, true, &signatures);
    }

    fn speaker_of(&mut self, name: &str) -> usize {
        let known = self.speakers.iter().position(|speaker| speaker.name == name);
        known.unwrap_or_else(|| {
            if self.speakers.len() >= MOST_SPEAKERS {
                return 0;
            }
            self.speakers.push(Speaker::named(name));
            self.speakers.len() - 1
        })
    }

    /// What the stream said, once it has ended.
    pub(super) fn heard(&self) -> Heard {
        let open = self.speakers.iter().filter_map(|speaker| speaker.open.as_ref());
        Heard {
            open: open.map(|open| (open.shortage.clone(), open.weight)).collect(),
            survived: self.speakers.iter().rev().find_map(|speaker| speaker.survived.clone()),
        }
    }
}

/// The last line of a text that is an error with a cause of its own; `None` where the last error is
/// another kind, or there is none.
pub(super) fn last_cause(lines: &[String], signatures: &Signatures) -> Option<String> {
    let mut context = Context::default();
    let mut last = None;
    for text in lines {
        let line = Line::parse(text);
        match line.kind(&mut context, signatures) {
            Kind::Cause => last = Some(line.body.trim().to_owned()),
            Kind::Shortage { .. } => last = None,
            _ => {}
        }
    }
    last
}

/// Lines as a terminal shows them: a carriage return begins a line anew.
fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> Search {
        Search::new(Signatures::built_in())
    }

    #[test]
    fn what_is_kept_stays_bounded() {
        let mut search = search();
        for _ in 0..1000 {
            search.feed(&[b'a'; 4096]);
            assert!(search.buffer.len() <= LINE_LIMIT_BYTES + 4 * CONTEXT_BYTES + 4096);
        }
        for number in 0..10_000 {
            search.feed(format!("[rank{number}]: CUDA error: out of memory\n").as_bytes());
        }
        assert!(search.speakers.len() <= MOST_SPEAKERS);
        assert!(search.buffer.len() <= LINE_LIMIT_BYTES);
    }

    #[test]
    fn a_carriage_return_begins_a_line_anew() {
        let lines: Vec<&[u8]> = split_lines(b" 10%\r 20%\rout of memory\n\nend").collect();
        assert_eq!(lines, [&b" 10%"[..], b" 20%", b"out of memory", b"", b"end"]);
    }

    #[test]
    fn lines_without_a_signature_are_not_read_one_by_one() {
        let mut search = search();
        search.feed(&b"error: something else\n".repeat(100));
        assert!(search.speakers.is_empty());
    }
}
