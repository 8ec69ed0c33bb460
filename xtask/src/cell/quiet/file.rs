//! What the system has counted: load, swap, throttling, processes on the GPU. It judges nothing.

use std::time::Duration;

use crate::cell::quiet::{HostSample, parse_busy_ticks, parse_processors, parse_stolen_ticks};
use crate::sys::driver::{self, Answer, DriverFacts};
use crate::sys::hardware::parse_keyed_count;

/// Reads the counters of this moment. What cannot be read is `None`.
pub(crate) fn read_host_sample() -> HostSample {
    let stat = read("/proc/stat");
    let vmstat = read("/proc/vmstat");
    let swapped = |key| parse_keyed_count(vmstat.as_deref()?, key);
    // None of ours is left before and after a run, so that whoever computes on the GPU is foreign.
    let driver = driver::ask();
    let gpus = match &driver {
        Answer::Facts(facts) => Some(facts),
        Answer::Absent | Answer::Silent | Answer::Broken(_) => None,
    };
    HostSample {
        busy: stat.as_deref().and_then(parse_busy_ticks).map(ticks),
        stolen: stat.as_deref().and_then(parse_stolen_ticks).map(ticks),
        processors: stat.as_deref().and_then(parse_processors),
        swapped_pages: swapped("pswpin")
            .zip(swapped("pswpout"))
            .map(|(read, written)| read + written),
        thermal_throttles: read_thermal_throttles(),
        cgroup_throttles: read("/sys/fs/cgroup/cpu.stat")
            .and_then(|text| parse_keyed_count(&text, "nr_throttled")),
        gpu_processes: gpus.and_then(DriverFacts::compute_processes),
        gpu_throttled: gpus.and_then(DriverFacts::throttled),
        driver_silent: driver == Answer::Silent,
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Over all processors; none where no processor counts.
fn read_thermal_throttles() -> Option<u64> {
    let processors = std::fs::read_dir("/sys/devices/system/cpu").ok()?;
    processors
        .filter_map(|entry| {
            let path = entry.ok()?.path().join("thermal_throttle/core_throttle_count");
            std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
        })
        .reduce(|sum, count| sum + count)
}
