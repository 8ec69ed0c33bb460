//! What an ended process tells of memory: the signatures that are looked for in its output, the rule
//! that decides whether one of them is why it ended, and the grade of what was found.
//!
//! Pure. `signatures` knows what allocators say, `line` reads one line, `speaker` follows one source of
//! lines, `search` runs over a stream with bounded memory, and `verdict` puts both streams together.

use serde::{Deserialize, Serialize};

pub(crate) mod line;
pub(crate) mod search;
pub(crate) mod signatures;
mod speaker;
pub(crate) mod verdict;
mod words;

/// A line that says that memory ran out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shortage {
    /// The pattern that matched, as the catalogue or the runner has it.
    pub(crate) pattern: String,
    /// The engine or interface that says so.
    pub(crate) api: String,
    /// The line, shortened around the match.
    pub(crate) line: String,
}

/// A shortage that the program lived through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Survived {
    #[serde(flatten)]
    pub(crate) shortage: Shortage,
    /// Why it is not what ended the program, in words.
    pub(crate) because: String,
}

/// How well a true OOM is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Grade {
    /// SIGKILL or 137 that the harness did not send, and nothing else is known.
    Signal,
    /// A signature as the cause.
    Allocator,
    /// The kernel says that it killed for memory.
    Kernel,
}

impl Grade {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Grade::Signal => "signal",
            Grade::Allocator => "allocator",
            Grade::Kernel => "kernel",
        }
    }
}

/// That memory was plentiful throughout, in words: the least that was available is above a quarter of
/// all.
pub(crate) fn describe_plenty(
    available_low_bytes: Option<u64>,
    memory_bytes: Option<u64>,
) -> Option<String> {
    let (low, total) = available_low_bytes.zip(memory_bytes)?;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    (low > total / 4)
        .then(|| format!("at least {:.1} of {:.1} GiB of memory were free", gib(low), gib(total)))
}

#[cfg(test)]
mod tests;
