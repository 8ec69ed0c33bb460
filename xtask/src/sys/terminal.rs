//! The output module: data goes to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write as _;

/// Writes one line of data to stdout. A reader that closed the pipe is no error.
pub(crate) fn data(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line of progress or log to stderr.
pub(crate) fn log(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
