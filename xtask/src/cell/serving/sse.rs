//! Server-sent events: the framing of a stream, as the HTML standard has it ("9.2.6 Interpreting an
//! event stream"). Bytes in, the data of whole events out; packets may cut anything anywhere.

/// More than any event of a token has; beyond it there is no event to be expected.
const LIMIT_BYTES: usize = 1 << 20;

/// The state of one stream.
#[derive(Debug, Default)]
pub(super) struct EventStream {
    /// The line at hand.
    line: Vec<u8>,
    /// Data lines of the event at hand.
    data: Vec<u8>,
    has_data: bool,
    /// Whether the last byte was CR, so that an LF belongs to it.
    after_cr: bool,
}

impl EventStream {
    /// Takes the next bytes. Gives the data of the events that they complete.
    ///
    /// # Errors
    /// When a line or an event is longer than any can be.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut events = Vec::new();
        for &byte in bytes {
            let was_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if was_cr => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.len() > LIMIT_BYTES {
                return Err(format!("an event of the stream is longer than {LIMIT_BYTES} bytes"));
            }
        }
        Ok(events)
    }

    /// The data of the event that this line ends, if it does.
    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data)
                .then(|| String::from_utf8_lossy(&data).into_owned());
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            // A comment, which servers send to keep a connection open.
            Some(0) => return None,
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &[][..]),
        };
        if field == b"data" {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = ": keep-alive\n\ndata: {\"a\":1}\r\n\r\nid: 7\nevent: x\ndata:two\n\
                          data: lines\n\ndata\n\nnonsense\ndata: né\u{1f600}\r\rdata: torn";

    #[test]
    fn whole_events_come_out_and_nothing_else() {
        let events = EventStream::default().feed(STREAM.as_bytes()).unwrap();
        assert_eq!(events, ["{\"a\":1}", "two\nlines", "", "né\u{1f600}"]);
    }

    #[test]
    fn an_event_without_an_end_does_not_fill_memory() {
        let mut stream = EventStream::default();
        let error = (0..100).find_map(|_| stream.feed(&[b'x'; 65_536]).err());
        assert!(error.unwrap().contains("longer than 1048576 bytes"));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_packets_are_cut(size in 1usize..20) {
            let mut stream = EventStream::default();
            let mut events = Vec::new();
            for packet in STREAM.as_bytes().chunks(size) {
                events.extend(stream.feed(packet).unwrap());
            }
            prop_assert_eq!(events, EventStream::default().feed(STREAM.as_bytes()).unwrap());
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut stream = EventStream::default();
            prop_assert!(stream.feed(&bytes).is_ok());
        }
    }
}
