//! The rule held to logs of failed programs: `xtask/tests/oom-logs`, each written after the shape of a
//! public report that it names.
//!
//! A log's head says what it must be taken for and how the program ended; `## stdout` begins what is on
//! stdout, the rest is on stderr.

use std::path::Path;
use std::sync::Arc;

use super::describe_plenty;
use super::search::Search;
use super::signatures::Signatures;
use super::verdict::{Said, judge};
use crate::cell::capture::{Capture, CaptureLimits};
use crate::cell::classify::{Classification, Ending, ExitKind, MemoryWord, ResultState, classify};

#[test]
fn memory_is_plentiful_above_a_quarter_alone() {
    let is_plenty = |low, total| describe_plenty(low, total).is_some();
    assert!(is_plenty(Some(26), Some(100)));
    assert!(!is_plenty(Some(25), Some(100)));
    assert!(!is_plenty(None, Some(100)) && !is_plenty(Some(26), None));
}

struct Log {
    name: String,
    is_oom: bool,
    exit: ExitKind,
    stderr: String,
    stdout: String,
}

fn read_logs() -> Vec<Log> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oom-logs");
    let mut logs: Vec<Log> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            parse_log(name, &std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    logs.sort_by(|a, b| a.name.cmp(&b.name));
    logs
}

fn parse_log(name: String, text: &str) -> Log {
    let head = |key: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("## {key}: ")));
        found.unwrap_or_else(|| panic!("{name}: no `{key}`")).to_owned()
    };
    assert!(head("source").starts_with("https://") && !head("shape").is_empty(), "{name}");
    let exit = match head("exit").split_once(' ') {
        Some(("signal", number)) => ExitKind::Signal(number.parse().unwrap()),
        _ => ExitKind::Code(head("exit").parse().unwrap()),
    };
    let is_oom = match head("expect").as_str() {
        "oom" => true,
        "other" => false,
        other => panic!("{name}: `{other}`"),
    };
    let body: Vec<&str> =
        text.lines().filter(|line| !line.starts_with("## ") || *line == "## stdout").collect();
    let mut streams = body.split(|line| *line == "## stdout").map(|lines| lines.join("\n") + "\n");
    let (stderr, stdout) = (streams.next().unwrap(), streams.next().unwrap_or_default());
    Log { name, is_oom, exit, stderr, stdout }
}

/// What is said in these two streams, which come in chunks of `size` bytes.
fn listen(stderr: &str, stdout: &str, size: usize) -> Said {
    let signatures = Signatures::built_in();
    let [err, out] = [stderr, stdout].map(|text| {
        let mut search = Search::new(Arc::clone(&signatures));
        let mut capture = Capture::new(CaptureLimits::default());
        for chunk in text.as_bytes().chunks(size) {
            search.feed(chunk);
            capture.feed(chunk);
        }
        search.end();
        (search, capture)
    });
    judge(&signatures, true, (&err.0, &err.1), (&out.0, &out.1))
}

fn class_of(exit: ExitKind, said: &Said) -> Option<Classification> {
    let word = match said {
        said if said.cause.is_some() => MemoryWord::Cause,
        said if said.other_cause.is_some() => MemoryWord::AnotherCause,
        _ => MemoryWord::Nothing,
    };
    let ending = Ending {
        exit,
        stopped: None,
        said: word,
        kernel_killed: false,
        result: ResultState::Missing,
    };
    classify(&ending).0
}

#[test]
fn no_log_is_taken_for_what_it_is_not() {
    let logs = read_logs();
    assert!(logs.len() >= 60, "{}", logs.len());
    assert!(logs.iter().filter(|log| log.is_oom).count() >= 30);
    assert!(logs.iter().filter(|log| !log.is_oom).count() >= 30);
    let mut wrong = Vec::new();
    for log in &logs {
        let said = listen(&log.stderr, &log.stdout, usize::MAX);
        let expected = if log.is_oom { Classification::Oom } else { Classification::FailBench };
        if class_of(log.exit, &said) != Some(expected) {
            wrong.push(format!("{}: not {expected}: {said:?}", log.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {} logs:\n{}", wrong.len(), logs.len(), wrong.join("\n"));
}

#[test]
fn the_cuts_between_chunks_do_not_matter() {
    for log in read_logs() {
        let whole = listen(&log.stderr, &log.stdout, usize::MAX);
        for size in [7, 1000] {
            assert_eq!(listen(&log.stderr, &log.stdout, size), whole, "{} by {size}", log.name);
        }
    }
}

/// Every log of a shortage, followed by work and another error, is none any more.
#[test]
fn whatever_came_before_the_last_word_counts_no_more() {
    for log in read_logs().iter().filter(|log| log.is_oom && log.stdout.is_empty()) {
        let later = format!(
            "{}continuing without it\nlayer 1 done\nerror: unsupported model architecture\n",
            log.stderr
        );
        let said = listen(&later, "", usize::MAX);
        assert_eq!(said.other_cause.as_deref(), Some("error: unsupported model architecture"));
        let only_others = ["ranks-interleaved", "ranks-srun", "vllm", "ray", "nccl", "sglang"]
            .iter()
            .any(|name| log.name.starts_with(name));
        // There the shortage is another speaker's, who said no more.
        if !only_others {
            assert_eq!(said.cause, None, "{}", log.name);
            assert!(said.survived.is_some(), "{}", log.name);
        }
    }
}

/// A gigabyte of work after a shortage, or before it, is neither kept nor mistaken.
#[test]
fn a_flood_leaves_nothing_behind() {
    let flood = "layer 12: attention output within bounds, nothing to see here\n".repeat(40_000);
    let last = format!("{flood}CUDA error: out of memory\n");
    assert!(listen(&last, "", 64 << 10).cause.is_some());
    let first = format!("CUDA error: out of memory\n{flood}");
    let said = listen(&first, "", 64 << 10);
    assert_eq!(said.cause, None);
    assert!(said.survived.unwrap().because.starts_with("lines of work came after it"));
    let mut long = "a".repeat(200_000);
    long.push_str("CUDA error: out of memory");
    long.push_str(&"b".repeat(200_000));
    let said = listen(&long, "", 1000);
    assert_eq!(said.cause, None, "the word goes on: `memoryb`");
    let long = long.replace("memoryb", "memory b");
    let cause = listen(&long, "", 1000).cause.unwrap();
    assert!(cause.line.contains("out of memory") && cause.line.chars().count() <= 300);
}
