//! The output module: data goes to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write as _;

/// Writes one line of data to stdout. A reader that closed the pipe is no error.
pub fn data(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}");
    let _ = stdout.flush();
}

/// Writes one line of progress or log to stderr. Names out of a file may hold anything, so control
/// characters are written as escapes.
pub fn log(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(line));
}

fn printable(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for character in line.chars() {
        // Those of Unicode that turn the direction of text are no control characters by its tables.
        let turns = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() && character != '\n' || turns {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            printable("tensor `a\u{1b}[2Jb\rc` is missing"),
            "tensor `a\\u{1b}[2Jb\\rc` is missing"
        );
        assert_eq!(printable("née\nhint: x\u{202e}y"), "née\nhint: x\\u{202e}y");
    }
}
