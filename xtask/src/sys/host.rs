//! The host: processor, memory, GPU, kernel, and what is free of it.

use std::path::{Path, PathBuf};

use super::command::Tool;
use super::driver::{DriverFacts, read_driver};

use crate::sys::hardware::{GpuFacts, HostFacts};

/// Reads what identifies the machine. What cannot be read is left out.
///
/// # Errors
/// When the NVIDIA driver does not answer.
pub(crate) fn read_host_facts() -> anyhow::Result<HostFacts> {
    Ok(HostFacts {
        os: std::env::consts::OS.to_owned(),
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        cpu: read_cpu_name(),
        cores: std::thread::available_parallelism().ok().map(|count| count.get() as u64),
        memory_bytes: read_total_memory_bytes(),
        gpu: read_gpu()?,
    })
}

/// Memory of the machine, or of this cgroup where that has less.
pub(crate) fn read_total_memory_bytes() -> Option<u64> {
    let total = read_meminfo_bytes("MemTotal:").or_else(read_sysctl_memory_bytes);
    [total, read_cgroup_limit_bytes()].into_iter().flatten().min()
}

/// Whether a process has been stopped by a signal or a debugger.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

/// Memory that could be had now without swapping.
pub(crate) fn read_available_memory_bytes() -> Option<u64> {
    let available = read_meminfo_bytes("MemAvailable:");
    [available, read_cgroup_free_bytes()].into_iter().flatten().min()
}

/// Processes of this cgroup that the kernel has killed for memory so far.
pub(crate) fn read_cgroup_oom_kills() -> Option<u64> {
    let text = read_cgroup_file("memory.events", "memory.oom_control")?;
    crate::sys::hardware::parse_keyed_count(&text, "oom_kill")
}

fn read_meminfo_bytes(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    crate::sys::hardware::parse_meminfo_bytes(&text, key)
}

fn read_sysctl_memory_bytes() -> Option<u64> {
    output_of("sysctl", &["-n", "hw.memsize"])?.trim().parse().ok()
}

fn read_cgroup_limit_bytes() -> Option<u64> {
    read_cgroup_file("memory.max", "memory.limit_in_bytes")?.trim().parse().ok()
}

fn read_cgroup_free_bytes() -> Option<u64> {
    let used: u64 =
        read_cgroup_file("memory.current", "memory.usage_in_bytes")?.trim().parse().ok()?;
    Some(read_cgroup_limit_bytes()?.saturating_sub(used))
}

/// A file of this process's memory cgroup: version 2 by its first name, version 1 by its second.
fn read_cgroup_file(v2_name: &str, v1_name: &str) -> Option<String> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    for (controllers, path) in crate::sys::hardware::parse_cgroup_paths(&own) {
        let (mount, name) = match controllers {
            "" => ("/sys/fs/cgroup", v2_name),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", v1_name)
            }
            _ => continue,
        };
        // Within a container the own path may not be visible, while the mount is the own group.
        for folder in [Path::new(mount).join(path.trim_start_matches('/')), mount.into()] {
            if let Ok(text) = std::fs::read_to_string(folder.join(name)) {
                return Some(text);
            }
        }
    }
    None
}

fn read_cpu_name() -> Option<String> {
    let from_proc = || {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        crate::sys::hardware::parse_cpu_name(&text)
    };
    from_proc().or_else(|| {
        let name = output_of("sysctl", &["-n", "machdep.cpu.brand_string"])?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    })
}

fn read_gpu() -> anyhow::Result<Option<GpuFacts>> {
    let first = |facts: DriverFacts| {
        let gpu = facts.gpus.into_iter().next()?;
        Some(GpuFacts { name: gpu.name, memory_bytes: gpu.memory_bytes, driver: facts.version })
    };
    Ok(read_driver()?.and_then(first))
}

/// The version that a program prints for `--version`: the last word of the first line.
pub(crate) fn read_version(program: &Path) -> Option<String> {
    let text = output_of(&program.to_string_lossy(), &["--version"])?;
    let version = text.lines().next()?.split_whitespace().last()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

/// Where a program lies: the path itself if it has a separator, else the first in `PATH`.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        let path = Path::new(program);
        return path.is_file().then(|| path.to_owned());
    }
    which::which(program).ok()
}

fn read_trimmed(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

pub(super) fn output_of(program: &str, args: &[&'static str]) -> Option<String> {
    Tool::new(program).args(args).read().ok()
}
