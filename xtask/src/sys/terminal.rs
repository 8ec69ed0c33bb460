//! The output module: data goes to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write as _;

/// Writes one line of data to stdout. A reader that closed the pipe is not an error.
pub(crate) fn data(line: &str) {
    if cfg!(test) {
        // The test harness keeps what these macros print, and shows it when a test fails.
        println!("{line}");
    } else {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

/// Writes one line of progress or log to stderr.
pub(crate) fn log(line: &str) {
    if cfg!(test) {
        eprintln!("{line}");
    } else {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}
