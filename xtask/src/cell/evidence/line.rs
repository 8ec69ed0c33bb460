//! One line of output: who says it, how loudly, and what kind of line it is.
//!
//! Pure: a line is read by its own words, together with what its speaker said before (a traceback, a
//! dump). What follows from it is in `speaker`.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::signatures::Signatures;
use super::words;

/// How a logger marked a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Plain,
    Info,
    Warning,
    Error,
}

/// How a shortage is stated, which decides how much the program may say after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// A warning, a note, or what the program says it goes on from.
    Warning,
    /// A statement without a mark: an error code, `failed`.
    Statement,
    /// An error, an exception, a crash.
    Error,
}

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It says that memory ran out.
    Shortage { pattern: String, api: String, start: usize, weight: Weight },
    /// Another error, with a cause of its own.
    Cause,
    /// A failure that nothing marks as an error and that names none of the usual causes.
    SoftCause,
    /// The loss of a process that ended first.
    Fallout,
    /// An error that names no cause of its own.
    Echo,
    /// A crash: an abort, an assertion, a signal.
    Crash,
    /// The program says that it goes on.
    GoesOn,
    /// Output of work.
    Work,
    /// Frames, tables, advice, closing down: it says nothing either way.
    Detail,
}

/// What a speaker said before, as far as it decides what the next line is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// The line before was a frame of a Python traceback: indented lines quote its source.
    after_frame: bool,
    /// Python has just said that it ignores an exception.
    ignores_next: bool,
    /// The traceback at hand is one that Python ignores, or of its closing down.
    in_ignored: bool,
    /// The exception that comes next was caused by the one before, as Python says.
    caused_by_last: bool,
    /// A dump of all goroutines or frames, which lasts as long as lines look like frames.
    in_dump: bool,
}

/// A line, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line<'l> {
    /// The rank, process or service that says it; empty where no one is named.
    pub(crate) speaker: &'l str,
    level: Level,
    /// What is said, with the blanks in front of it.
    pub(crate) body: &'l str,
}

/// What may stand in front of what a line says, one piece at a time.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    words::regex(
        r"(?x)^(?:
        # A speaker: a container, a rank, a worker, a process.
          (?P<container>[\w.-]{1,40}\ *\|)\ ?
        | \[(?P<rank>rank\ ?\d+|\d+,\d+|TP\d+|DP\d+\ TP\d+)\](?:<std\w+>)?:?\ ?
        | \((?P<worker>raylet|[\w.\s=,:-]*pid=[^)]*)\)\ ?
        | \[(?:\d{4}-\d\d-\d\d)\ (?:\d\d:\d\d:\d\d)(?:[.,]\d+)?\ (?P<tp>[A-Z]+\d+(?:\ [A-Z]+\d+)*)\]\ ?
        | (?P<nccl>[\w.-]+:\d+:\d+\ \[\d+\])\ (?:[\w./]+:\d+\ )?
        | (?P<task>\d{1,4}):\x20
        # A time.
        | \[\d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d,\d+\ (?P<ray>[EWI])\ \d+\ \d+\]\x20
        | \[?\d{4}[-/]\d\d[-/]\d\d[T\ _](?:-\ )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\ ?[+-]\d\d:?\d\d)?\]?[:,]?\ *(?:-\ )?
        | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?:?\ +
        | \d+\.\d\d\.\d\d\d\.\d\d\d\ (?P<letter>[DIWE])\ (?:[a-z]{2,4}\ +)?
        | \[\ *\d+\.\d{6}\]\x20
        # A level, with the place in the source.
        | \[?(?P<level>(?:DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|debug|info|warn|warning|error))\]?
            (?:\ \d\d-\d\d\ \d\d:\d\d:\d\d)?(?:\ \[[\w./-]+:\d+\])(?:\ |$)
        | \[(?P<bracketed>DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|debug|info|warning|warn|error|critical)\]:?\ *
        | (?P<bare>DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)(?:\ *[:|-]+\ *(?:[\w.]+:(?:[\w.]*:)?\ ?)?|\ +)
        | NCCL\ (?P<nccl_level>WARN|INFO)\x20
        | \[?(?P<glog>[IWEF])(?:\d{4}\ \d\d:\d\d:\d\d\.\d+\ +(?:\d+\ )?[\w./-]+:\d+\]|\d+\ \d\d:\d\d:\d\d\.\d+\ [\w./-]+:\d+\]|\ [\w./-]+:\d+\])\ ?
        | \[[\w./-]+\.(?:py|cc|cpp|cu|rs|go):\d+\]\x20
        )",
    )
});

/// A line of `key=value` pairs, as Go programs log.
static LOGFMT: LazyLock<Regex> = LazyLock::new(|| words::regex(r"^time=\S+ level=(?P<level>\w+) "));

/// How many pieces may stand in front of a line.
const MOST_PREFIXES: usize = 6;

impl<'l> Line<'l> {
    /// Takes a line apart.
    pub(crate) fn parse(text: &'l str) -> Line<'l> {
        let mut line = Line { speaker: "", level: Level::Plain, body: text };
        for _ in 0..MOST_PREFIXES {
            let Some(found) = PREFIX.captures(line.body.as_bytes()) else { break };
            let whole = found.get(0).map_or(0, |all| all.end());
            let name = ["rank", "worker", "tp", "nccl", "task", "container"]
                .iter()
                .find_map(|group| found.name(group));
            if let Some(name) = name {
                // The outermost name is the speaker: a container's lines are one program's.
                if line.speaker.is_empty() {
                    let name = text_at(line.body, name.range());
                    line.speaker = name.trim_end_matches('|').trim_end();
                }
            }
            let level = ["level", "bracketed", "bare", "nccl_level", "glog", "letter", "ray"]
                .iter()
                .find_map(|group| found.name(group));
            if let Some(level) = level {
                line.level = parse_level(text_at(line.body, level.range()));
            }
            line.body = text_at(line.body, whole..line.body.len());
        }
        let logfmt = LOGFMT.captures(line.body.as_bytes());
        if let Some(level) = logfmt.and_then(|found| found.name("level")) {
            line.level = parse_level(text_at(line.body, level.range()));
        }
        line
    }

    /// What the line is, after what its speaker said before.
    pub(crate) fn kind(&self, context: &mut Context, signatures: &Signatures) -> Kind {
        let body = self.body;
        let said = body.trim();
        if said.is_empty() {
            return Kind::Detail;
        }
        let is_indented = body.starts_with([' ', '\t']);
        if self.is_part_of_a_traceback(said, is_indented, context) {
            return Kind::Detail;
        }
        let was_ignored = std::mem::take(&mut context.in_ignored);
        let was_caused = std::mem::take(&mut context.caused_by_last);
        if was_ignored {
            return Kind::Detail;
        }
        if let Some(hit) = signatures.find(body.as_bytes()) {
            let before = body.get(..hit.start).unwrap_or_default();
            return match self.weight(said, before) {
                Weight::Error => self.shortage(hit.pattern, hit.api, hit.start, Weight::Error),
                _ if words::is_hypothetical(before) || is_quoted(body, hit.start) => Kind::Detail,
                weight => self.shortage(hit.pattern, hit.api, hit.start, weight),
            };
        }
        if is_indented || is_drawn(said) {
            return Kind::Detail;
        }
        if words::goes_on(said) && self.level != Level::Error {
            return Kind::GoesOn;
        }
        if words::is_crash(said) {
            return Kind::Crash;
        }
        let is_error = self.level == Level::Error || words::states_error(said);
        if is_error {
            return match () {
                () if matches!(self.level, Level::Info | Level::Warning) => Kind::Detail,
                () if was_caused || words::names_no_cause(said) => Kind::Echo,
                () if words::is_fallout(said) => Kind::Fallout,
                () if words::is_advice(said) && self.level != Level::Error => Kind::Detail,
                () if words::states_what_is_wrong(said) => Kind::Cause,
                () => Kind::SoftCause,
            };
        }
        if words::is_advice(said) || words::is_teardown(said) {
            return Kind::Detail;
        }
        Kind::Work
    }

    fn shortage(&self, pattern: &str, api: &str, start: usize, weight: Weight) -> Kind {
        Kind::Shortage { pattern: pattern.to_owned(), api: api.to_owned(), start, weight }
    }

    fn weight(&self, said: &str, before: &str) -> Weight {
        let lower = said.get(..8).unwrap_or(said).to_ascii_lowercase();
        match self.level {
            _ if words::goes_on(said) => Weight::Warning,
            Level::Info | Level::Warning => Weight::Warning,
            Level::Plain if lower.starts_with("warning") || lower.starts_with("warn:") => {
                Weight::Warning
            }
            Level::Error => Weight::Error,
            Level::Plain if words::states_error_strongly(said) => Weight::Error,
            Level::Plain if is_in_a_sentence(before) => Weight::Warning,
            Level::Plain => Weight::Statement,
        }
    }

    /// Frames, quoted source, dumps, and the headings of all these.
    fn is_part_of_a_traceback(&self, said: &str, is_indented: bool, context: &mut Context) -> bool {
        if said.starts_with("File \"") || said.starts_with("[Previous line repeated") {
            context.after_frame = true;
            return true;
        }
        if is_indented && context.after_frame {
            return true;
        }
        context.after_frame = false;
        if said.starts_with("goroutine ") && said.ends_with("]:")
            || said == "runtime stack:"
            || said.starts_with("stack backtrace:")
            || said.starts_with("Stack backtrace:")
            || said.starts_with("Stack (partial) backtrace:")
        {
            context.in_dump = true;
            return true;
        }
        if context.in_dump {
            context.in_dump = is_indented || is_frame(said);
            if context.in_dump {
                return true;
            }
        }
        let heading =
            said.contains("(most recent call last)") || said.contains("(most recent call first)");
        let ignores = std::mem::take(&mut context.ignores_next);
        if heading {
            context.in_ignored |= ignores;
            return true;
        }
        if said.starts_with("Exception ignored in") || said.starts_with("Error in atexit._run") {
            context.ignores_next = true;
            return true;
        }
        if said.starts_with("The above exception was the direct cause of the following") {
            context.caused_by_last = true;
            return true;
        }
        said.starts_with("During handling of the above exception")
            || said.starts_with("skipping backtrace printing")
    }
}

/// A part of a text that a regex over its bytes found.
fn text_at(text: &str, range: std::ops::Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

fn parse_level(text: &str) -> Level {
    match text.to_ascii_uppercase().as_str() {
        "ERROR" | "CRITICAL" | "FATAL" | "E" | "F" => Level::Error,
        "WARN" | "WARNING" | "W" => Level::Warning,
        _ => Level::Info,
    }
}

/// Whether the text at `start` stands within quotes, as a prompt or generated text would.
fn is_quoted(body: &str, start: usize) -> bool {
    let before = body.get(..start).unwrap_or_default();
    let after = body.get(start..).unwrap_or_default();
    before.matches('"').count() % 2 == 1 && after.contains('"') && !before.ends_with('(')
}

/// Whether a sentence leads to the shortage rather than a name or a code: as in a prompt, or in text
/// that a model wrote.
fn is_in_a_sentence(before: &str) -> bool {
    !before.contains([':', '=', '_', '[']) && before.split_whitespace().count() >= 6
}

/// What a dump of goroutines consists of, besides indented lines.
fn is_frame(said: &str) -> bool {
    (said.ends_with(')') && !said.contains(": "))
        || said.starts_with("created by ")
        || said.starts_with("goroutine ")
        || said.split_whitespace().nth(1).is_some_and(|word| word.starts_with("0x"))
}

/// Tables, rules, frames of debuggers and native stacks.
fn is_drawn(said: &str) -> bool {
    let first = said.chars().next().unwrap_or(' ');
    said.split_whitespace().nth(1).is_some_and(|word| word.starts_with("0x"))
        || matches!(
            first,
            '|' | '+' | '=' | '-' | '~' | '^' | '#' | '*' | '╭' | '│' | '╰' | '─' | '<'
        )
        || ["frame #", "0x", "[New LWP", "[Thread debugging", "[Inferior", "Using host libthread"]
            .iter()
            .any(|start| said.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        Line::parse(text).kind(&mut Context::default(), &Signatures::built_in())
    }

    fn weight(text: &str) -> Option<Weight> {
        match kind(text) {
            Kind::Shortage { weight, .. } => Some(weight),
            _ => None,
        }
    }

    #[test]
    fn who_says_a_line_is_told_from_what_is_said() {
        for (text, speaker, body) in [
            ("[rank3]: Traceback", "rank3", "Traceback"),
            (
                "(EngineCore_DP0 pid=7) ERROR 10-25 13:08:43 [core.py:708]   File",
                "EngineCore_DP0 pid=7",
                "  File",
            ),
            ("[2025-08-06 20:26:20 TP1] Scheduler", "TP1", "Scheduler"),
            ("n7:3063:3066 [3] include/alloc.h:178 NCCL WARN Cuda", "n7:3063:3066 [3]", "Cuda"),
            ("2024-11-20 14:37:15 [rank0]: step", "rank0", "step"),
            ("1: step", "1", "step"),
            ("server-1  | step", "server-1", "step"),
            ("0.00.147.118 E llama_model_load: x", "", "llama_model_load: x"),
            ("a plain line", "", "a plain line"),
        ] {
            let line = Line::parse(text);
            assert_eq!((line.speaker, line.body), (speaker, body), "{text}");
        }
    }

    #[test]
    fn how_loudly_a_shortage_is_stated() {
        for (text, expected) in [
            ("CUDA error: out of memory", Weight::Error),
            ("torch.OutOfMemoryError: CUDA out of memory.", Weight::Error),
            (
                "ERROR 10-25 13:08:43 [core.py:7] No available memory for the cache blocks",
                Weight::Error,
            ),
            ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", Weight::Statement),
            ("cudaMalloc failed: out of memory", Weight::Statement),
            ("warning: failed to allocate 3 MiB", Weight::Warning),
            (
                "I tensorflow/cuda_driver.cc:739] CUDA_ERROR_OUT_OF_MEMORY: out of memory",
                Weight::Warning,
            ),
            ("CUDA error: out of memory, retrying with half", Weight::Warning),
            ("then the whole device was suddenly out of memory", Weight::Warning),
        ] {
            assert_eq!(weight(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn possibilities_and_quoted_text_are_no_shortages() {
        for text in [
            "a context of this size may run out of memory",
            "layers are offloaded to the cpu to avoid running out of memory",
            "if the device is out of memory, a dump is written",
            "prompt: \"what does out of memory mean?\"",
        ] {
            assert_eq!(kind(text), Kind::Detail, "{text}");
        }
    }

    #[test]
    fn lines_after_a_shortage() {
        for (text, expected) in [
            ("error: unsupported model architecture", Kind::Cause),
            ("llama_kv_cache_init() failed for self-attention cache", Kind::Echo),
            ("the frobnicator failed to start", Kind::SoftCause),
            ("main: error: unable to load model", Kind::Echo),
            ("Aborted (core dumped)", Kind::Crash),
            ("ConnectionResetError: [Errno 104] Connection reset by peer", Kind::Fallout),
            ("falling back to pageable memory", Kind::GoesOn),
            ("decode 12", Kind::Work),
            ("  3: core::panicking::panic_fmt", Kind::Detail),
            ("srv  operator(): cleaning up before exit...", Kind::Detail),
            ("hint: use a smaller batch", Kind::Detail),
            ("WARNING: the cache failed to warm up", Kind::Detail),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }
}
