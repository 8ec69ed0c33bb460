//! Output of a child, kept with bounded memory: its beginning, its end, and how much there was.
//!
//! It owns the buffer; it reads nothing and searches nothing.

/// The beginning and the end of a stream of any length.
#[derive(Debug, Clone)]
pub(crate) struct Capture {
    head: Vec<u8>,
    /// The end: as many bytes as the limit says, or somewhat more before them.
    tail: Vec<u8>,
    limits: CaptureLimits,
    total_bytes: u64,
}

/// How much of a stream is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CaptureLimits {
    pub(crate) head_bytes: usize,
    pub(crate) tail_bytes: usize,
}

impl Default for CaptureLimits {
    /// Room for the largest result that a known runner prints, many times over.
    fn default() -> CaptureLimits {
        CaptureLimits { head_bytes: 1 << 20, tail_bytes: 1 << 18 }
    }
}

impl Capture {
    pub(crate) fn new(limits: CaptureLimits) -> Capture {
        Capture { head: Vec::new(), tail: Vec::new(), limits, total_bytes: 0 }
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        self.total_bytes += chunk.len() as u64;
        let to_head = chunk.len().min(self.limits.head_bytes - self.head.len());
        self.head.extend_from_slice(&chunk[..to_head]);
        let rest = &chunk[to_head..];
        let limit = self.limits.tail_bytes;
        self.tail.extend_from_slice(&rest[rest.len().saturating_sub(limit)..]);
        // Moving the tail once in a while is cheaper than a ring that is filled byte by byte.
        if self.tail.len() > 2 * limit {
            self.tail.drain(..self.tail.len() - limit);
        }
    }

    fn tail(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(self.limits.tail_bytes)..]
    }

    /// Bytes that were left out between the beginning and the end.
    pub(crate) fn omitted_bytes(&self) -> u64 {
        self.total_bytes - (self.head.len() + self.tail().len()) as u64
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// What was kept, as text; a line on its own says what was left out.
    pub(crate) fn text(&self) -> String {
        let tail = self.tail();
        match self.omitted_bytes() {
            0 => {
                let mut bytes = self.head.clone();
                bytes.extend_from_slice(tail);
                String::from_utf8_lossy(&bytes).into_owned()
            }
            omitted => format!(
                "{}\n[{omitted} bytes left out]\n{}",
                String::from_utf8_lossy(&self.head),
                String::from_utf8_lossy(tail)
            ),
        }
    }

    /// The last lines that are not blank, at most `count`, each cut to 300 characters.
    pub(crate) fn last_lines(&self, count: usize) -> Vec<String> {
        let text = self.text();
        let mut lines: Vec<String> = text
            .lines()
            .rev()
            .filter(|line| !line.trim().is_empty())
            .take(count)
            .map(|line| line.trim_end().chars().take(300).collect())
            .collect();
        lines.reverse();
        lines
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: CaptureLimits = CaptureLimits { head_bytes: 4, tail_bytes: 3 };

    fn capture(chunks: &[&[u8]]) -> Capture {
        let mut capture = Capture::new(SMALL);
        for chunk in chunks {
            capture.feed(chunk);
        }
        capture
    }

    #[test]
    fn what_fits_is_kept_whole() {
        assert_eq!(capture(&[b"abc", b"defg"]).text(), "abcdefg");
    }

    #[test]
    fn what_does_not_fit_keeps_its_beginning_and_its_end() {
        let capture = capture(&[b"abcdef", b"ghij", b"klmnopqrst"]);
        assert_eq!(capture.text(), "abcd\n[13 bytes left out]\nrst");
        assert_eq!((capture.total_bytes(), capture.omitted_bytes()), (20, 13));
    }

    #[test]
    fn the_last_lines_are_the_last_that_say_something() {
        let mut capture = Capture::new(CaptureLimits::default());
        capture.feed(b"one\ntwo\n\nthree\n  \n");
        assert_eq!(capture.last_lines(2), ["two", "three"]);
    }

    proptest! {
        #[test]
        fn beginning_and_end_are_right_for_any_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            size in 1usize..9,
        ) {
            let mut capture = Capture::new(SMALL);
            for chunk in bytes.chunks(size) {
                capture.feed(chunk);
            }
            let head = &bytes[..bytes.len().min(4)];
            let tail = &bytes[head.len().max(bytes.len().saturating_sub(3))..];
            prop_assert_eq!(&capture.head, head);
            prop_assert_eq!(capture.tail(), tail);
            prop_assert_eq!(capture.total_bytes(), bytes.len() as u64);
        }
    }
}
