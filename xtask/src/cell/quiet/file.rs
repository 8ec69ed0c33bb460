//! What the system has counted: load, swap, throttling, processes on the GPU. It judges nothing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cell::quiet::{HostSample, parse_busy_ticks, parse_gpu_throttled, parse_processors};
use crate::sys::hardware::parse_keyed_count;

/// Reads the counters of this moment. What cannot be read is none.
pub(crate) fn read_host_sample() -> HostSample {
    let stat = read("/proc/stat");
    let vmstat = read("/proc/vmstat");
    let swapped = |key| parse_keyed_count(vmstat.as_deref()?, key);
    let gpu = read_gpu();
    HostSample {
        busy: stat.as_deref().and_then(parse_busy_ticks).map(ticks),
        processors: stat.as_deref().and_then(parse_processors),
        swapped_pages: swapped("pswpin")
            .zip(swapped("pswpout"))
            .map(|(read, written)| read + written),
        thermal_throttles: read_thermal_throttles(),
        cgroup_throttles: read("/sys/fs/cgroup/cpu.stat")
            .and_then(|text| parse_keyed_count(&text, "nr_throttled")),
        gpu_processes: gpu.as_ref().and_then(|gpu| gpu.processes),
        gpu_throttled: gpu.and_then(|gpu| gpu.throttled),
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn ticks(count: u64) -> Duration {
    // SAFETY: a plain query of a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let per_second = u64::try_from(per_second).ok().filter(|count| *count > 0).unwrap_or(100);
    Duration::from_secs_f64(count as f64 / per_second as f64)
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

struct GpuState {
    processes: Option<u64>,
    throttled: Option<bool>,
}

/// Asks `nvidia-smi`, which speaks to NVML; none where there is no NVIDIA driver. Processes are counted
/// before and after a run, when none of ours is left, so that every one of them is foreign.
fn read_gpu() -> Option<GpuState> {
    if !Path::new("/proc/driver/nvidia/gpus").exists() {
        return None;
    }
    let query = |query: &str| {
        let output = Command::new("nvidia-smi")
            .args([query, "--format=csv,noheader,nounits"])
            .stdin(Stdio::null())
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let processes = query("--query-compute-apps=pid");
    // Drivers before 535 call the same mask by its older name.
    let reasons = query("--query-gpu=clocks_event_reasons.active")
        .or_else(|| query("--query-gpu=clocks_throttle_reasons.active"));
    Some(GpuState {
        processes: processes
            .map(|text| text.lines().filter(|line| !line.trim().is_empty()).count() as u64),
        throttled: reasons.and_then(|text| parse_gpu_throttled(&text)),
    })
}
