//! The clock.

use std::time::{Duration, Instant};

/// Runs `work` and says how long it took.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}
