//! The clock.

use std::time::{Duration, Instant};

/// Runs `work` and says how long it took.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    start: Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { start: Instant::now() }
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.start.elapsed()
    }
}

/// How long the machine has slept since it was started; `None` where no clock says so.
pub(crate) fn read_slept() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        // One clock goes on while the machine sleeps, the other does not.
        let read = |clock| {
            let time = clock_gettime(clock);
            Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?).into()
        };
        let awake: Option<Duration> = read(ClockId::Monotonic);
        let all: Option<Duration> = read(ClockId::Boottime);
        all?.checked_sub(awake?)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Today's date in local time, `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    chrono::Local::now().format("%Y-%m-%d").to_string()
}

/// The day of a moment that a journal has, as [`today`] has it; `None` where it is none.
pub(crate) fn day_of(time: &str) -> Option<String> {
    let time = chrono::DateTime::parse_from_rfc3339(time).ok()?;
    Some(time.with_timezone(&chrono::Local).format("%Y-%m-%d").to_string())
}

/// The moment in UTC with milliseconds, as journals have it.
pub(crate) fn now_utc() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
