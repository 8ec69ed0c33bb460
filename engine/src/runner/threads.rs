//! The number of compute threads, fixed before any thread exists.

use std::num::NonZeroUsize;

use formats::cell_report::EnvVar;

/// The variables that candle and rayon read, in the order in which they are consulted.
const VARIABLES: [&str; 2] = ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"];

/// More threads than this are a slip: no machine has as many cores.
const MOST_THREADS: usize = 1024;

/// The thread count and the environment that it came from.
#[derive(Debug, Clone)]
pub struct Threads {
    /// Compute threads.
    pub count: usize,
    /// The variables that were consulted.
    pub environment: Vec<EnvVar>,
}

/// Decides the thread count and makes candle and rayon keep to it.
///
/// Candle's kernels and rayon, which other devices take, each keep a pool and read its size from the
/// environment; all get the same count. This crate's own starts here, so that a lack of memory for
/// threads shows at once.
///
/// Call this first in `main`: it sets environment variables, which only a process with one thread
/// may do.
pub fn init_threads(wanted: Option<NonZeroUsize>) -> Threads {
    let mut environment = Vec::new();
    let mut count = wanted;
    for name in VARIABLES {
        let raw = std::env::var(name).ok();
        let value = raw.as_deref().and_then(parse_count);
        let parsed = match (&raw, value) {
            (None, _) => "not set".to_owned(),
            (Some(_), Some(value)) if count.is_none() => format!("{value} threads"),
            (Some(_), Some(value)) => format!("{value} threads, overridden"),
            (Some(raw), None) => {
                super::term::log(&format!(
                    "warning: {name}={raw} is not a number from 1 to {MOST_THREADS}; ignored"
                ));
                format!("ignored: no number from 1 to {MOST_THREADS}")
            }
        };
        count = count.or(value);
        environment.push(EnvVar { name: name.to_owned(), raw, parsed: Some(parsed) });
    }
    let count = count.or_else(|| std::thread::available_parallelism().ok());
    let count = count.map_or(1, NonZeroUsize::get);
    for name in VARIABLES {
        // SAFETY: this is the only thread, as the documentation asks of callers.
        unsafe { std::env::set_var(name, count.to_string()) };
    }
    if let Some(count) = NonZeroUsize::new(count) {
        crate::model::par::start_threads(count);
    }
    Threads { count, environment }
}

fn parse_count(raw: &str) -> Option<NonZeroUsize> {
    parse_threads(raw.trim()).ok()
}

/// A number of threads that a machine could have.
pub(super) fn parse_threads(raw: &str) -> Result<NonZeroUsize, String> {
    match raw.parse::<NonZeroUsize>() {
        Ok(count) if count.get() <= MOST_THREADS => Ok(count),
        _ => Err(format!("must be from 1 to {MOST_THREADS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_threads_that_no_machine_has_is_refused() {
        assert_eq!(parse_threads("1024").unwrap().get(), 1024);
        for wrong in ["0", "1025", "100000", "-1", "x", ""] {
            assert_eq!(parse_threads(wrong).unwrap_err(), "must be from 1 to 1024", "{wrong}");
        }
        assert_eq!(parse_count(" 2 ").unwrap().get(), 2);
    }
}
