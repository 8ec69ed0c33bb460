//! Text as a terminal shows it: without what colours it, and with what was written over.

/// Each line as it stands at its end: a carriage return goes back to its start, what comes then is
/// written over what was there, and sequences that colour, erase or move are carried out or dropped.
pub(crate) fn as_shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            shown.push('\n');
        }
        // A line that ends in a carriage return is one with the line end of another system.
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.contains(['\r', '\u{8}', '\u{1b}']) {
            shown.extend(Line::of(line).cells);
        } else {
            shown.push_str(line);
        }
    }
    shown
}

/// A line without the sequences that colour it; what is written over it stays.
pub(crate) fn strip_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        rest = split_sequence(&rest[at + 1..]).1;
    }
    plain.push_str(rest);
    plain
}

/// What an escape character introduces, and what follows it.
fn split_sequence(text: &str) -> (Sequence<'_>, &str) {
    if let Some(body) = text.strip_prefix('[') {
        return match body.find(|c: char| ('@'..='~').contains(&c)) {
            Some(end) => (Sequence::Control(&body[..=end]), &body[end + 1..]),
            None => (Sequence::Other, ""),
        };
    }
    if let Some(body) = text.strip_prefix(']') {
        // A title or a link: up to a bell, or to an escape and a backslash.
        let end = body.find(['\u{7}', '\u{1b}']).unwrap_or(body.len());
        let rest = &body[end..];
        let rest = rest.strip_prefix("\u{1b}\\").or(rest.strip_prefix('\u{7}')).unwrap_or(rest);
        return (Sequence::Other, rest);
    }
    let end = text.chars().next().map_or(0, char::len_utf8);
    (Sequence::Other, &text[end..])
}

enum Sequence<'a> {
    /// `ESC [`, up to and with the letter that ends it.
    Control(&'a str),
    Other,
}

/// A line while it is written.
#[derive(Default)]
struct Line {
    cells: Vec<char>,
    cursor: usize,
}

impl Line {
    fn of(text: &str) -> Line {
        let mut line = Line::default();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\r' => line.cursor = 0,
                '\u{8}' => line.cursor = line.cursor.saturating_sub(1),
                '\u{1b}' => {
                    let (sequence, after) = split_sequence(rest);
                    rest = after;
                    if let Sequence::Control(control) = sequence {
                        line.erase(control);
                    }
                }
                c => line.put(c),
            }
        }
        line
    }

    fn put(&mut self, c: char) {
        match self.cells.get_mut(self.cursor) {
            Some(cell) => *cell = c,
            None => self.cells.push(c),
        }
        self.cursor += 1;
    }

    /// `K` erases a line: from here on, up to here, or all of it.
    fn erase(&mut self, control: &str) {
        match control {
            "K" | "0K" => self.cells.truncate(self.cursor),
            "1K" => {
                let end = self.cursor.min(self.cells.len());
                self.cells[..end].fill(' ');
            }
            "2K" => {
                self.cells.clear();
                self.cells.resize(self.cursor, ' ');
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_over_is_gone() {
        for (text, shown) in [
            ("a\nb", "a\nb"),
            ("10 %\r100 %\n", "100 %\n"),
            ("loading 99 %\rdone", "doneing 99 %"),
            ("loading 99 %\r\u{1b}[Kdone", "done"),
            ("loading\r\u{1b}[2Kdone", "done"),
            ("one\r\ntwo\r\n", "one\ntwo\n"),
            ("abc\u{8}\u{8}x", "axc"),
            ("\u{1b}[1;32mPrefill:\u{1b}[0m 1.0 ms", "Prefill: 1.0 ms"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;x\u{1b}\\link", "link"),
            ("\u{1b}[31", ""),
            ("ab\u{1b}[1Kc", "  c"),
        ] {
            assert_eq!(as_shown(text), shown, "{text:?}");
        }
    }

    #[test]
    fn colours_are_no_part_of_a_line() {
        assert_eq!(strip_escapes("\u{1b}[1;31merror\u{1b}[0m: x\u{1b}"), "error: x");
        assert_eq!(strip_escapes("\u{1b}(Bplain \u{fffd}"), "Bplain \u{fffd}");
    }
}
