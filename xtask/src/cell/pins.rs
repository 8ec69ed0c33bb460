//! Pins: the files that a runner's command line names, each with its hash.
//!
//! `perl script.pl` measures the script, not perl: a change of any file that a command names is a
//! change of what is measured. This module says which words may name a file and what differs between
//! two lists; `file` looks at the files. A runner's definition adds to them (`pins`) and takes away
//! what the command writes itself (`writes`).

use std::collections::{BTreeMap, BTreeSet};

pub(crate) mod file;

/// SHA-256 in lower-case hex, by the path as reports show it.
pub(crate) type Pins = BTreeMap<String, String>;

/// The words of a command line after the program that may be a path: each word, and what follows the
/// first `=` of one.
pub(crate) fn possible_paths(command: &[String]) -> Vec<&str> {
    command
        .iter()
        .skip(1)
        .flat_map(|word| [Some(word.as_str()), word.split_once('=').map(|(_, value)| value)])
        .flatten()
        .filter(|word| !word.is_empty())
        .collect()
}

/// What a word of a runner's `pins` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinWord<'a> {
    /// A path, or a pattern of paths.
    Paths(&'a str),
    /// A Python module, with what its folder holds.
    Python(&'a str),
}

/// Reads a word of `pins`.
pub(crate) fn parse_pin(word: &str) -> PinWord<'_> {
    word.strip_prefix("python:").map_or(PinWord::Paths(word), PinWord::Python)
}

/// A command line without the words, and the values after `=`, that name what it writes.
pub(crate) fn without_written(command: &[String], writes: &[String]) -> Vec<String> {
    let is_written = |word: &str| writes.iter().any(|path| path == word);
    let value = |word: &String| word.split_once('=').is_some_and(|(_, value)| is_written(value));
    let stays = |word: &&String| !is_written(word) && !value(word);
    let after = command.iter().skip(1).filter(stays);
    command.iter().take(1).chain(after).cloned().collect()
}

/// What differs from `then` to `now`, in words; empty where nothing does.
pub(crate) fn diff_pins(then: &Pins, now: &Pins) -> Vec<String> {
    let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    let paths: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    paths
        .into_iter()
        .filter_map(|path| match (then.get(path), now.get(path)) {
            (Some(then), Some(now)) if then == now => None,
            (Some(then), Some(now)) => {
                Some(format!("`{path}` was {} and is now {}", short(then), short(now)))
            }
            (Some(_), None) => Some(format!("`{path}` was pinned and no longer is")),
            (None, Some(_)) => Some(format!("`{path}` is pinned and was not")),
            (None, None) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_values_after_the_program_may_be_paths() {
        let command = ["perl", "script.pl", "--table=data.csv", "-v", "--empty="];
        assert_eq!(
            possible_paths(&command.map(str::to_owned)),
            ["script.pl", "--table=data.csv", "data.csv", "-v", "--empty="]
        );
        assert_eq!(possible_paths(&[]), [""; 0]);
    }

    #[test]
    fn what_the_command_writes_is_left_out() {
        let command =
            ["bench", "run.py", "out.log", "--trace=out.log", "--in=a"].map(str::to_owned);
        assert_eq!(
            without_written(&command, &["out.log".to_owned()]),
            ["bench", "run.py", "--in=a"]
        );
        assert_eq!(parse_pin("python:a.b"), PinWord::Python("a.b"));
        assert_eq!(parse_pin("lib/*.pl"), PinWord::Paths("lib/*.pl"));
    }

    #[test]
    fn lists_differ_by_content_and_by_what_they_name() {
        let pins = |list: &[(&str, &str)]| -> Pins {
            list.iter().map(|(path, hash)| ((*path).to_owned(), hash.repeat(64))).collect()
        };
        let then = pins(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(diff_pins(&then, &then), [""; 0]);
        assert_eq!(
            diff_pins(&then, &pins(&[("a", "1"), ("b", "4"), ("d", "5")])),
            [
                "`b` was 222222222222 and is now 444444444444",
                "`c` was pinned and no longer is",
                "`d` is pinned and was not"
            ]
        );
    }
}
