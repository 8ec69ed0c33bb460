//! The number of compute threads, fixed before any thread exists.

use std::num::NonZeroUsize;

use formats::cell_report::EnvVar;

/// The variables that candle and rayon read, in the order in which they are consulted.
const VARIABLES: [&str; 2] = ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"];

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
                    "warning: {name}={raw} is not a positive number; ignored"
                ));
                "ignored: no positive number".to_owned()
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
    raw.trim().parse().ok()
}
