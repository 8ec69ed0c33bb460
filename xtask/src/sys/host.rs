//! The host: processor, memory, GPU, kernel, and what is free of it.

use std::path::{Path, PathBuf};

use super::command::Tool;
use super::driver::{DriverFacts, kinds_of, read_driver};

use crate::sys::hardware::{GpuFacts, HostFacts, MemoryGroup};

/// Reads what identifies the machine. What cannot be read is left out.
///
/// # Errors
/// When the NVIDIA driver does not answer.
pub(crate) fn read_host_facts() -> anyhow::Result<HostFacts> {
    let gpus = read_driver()?;
    Ok(HostFacts {
        os: std::env::consts::OS.to_owned(),
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        cpu: read_cpu_name(),
        cores: std::thread::available_parallelism().ok().map(|count| count.get() as u64),
        memory_bytes: read_total_memory_bytes(),
        gpu_kinds: kinds_of(gpus.as_ref().map_or(&[], |facts| &facts.gpus)),
        gpu: gpus.and_then(first_gpu),
    })
}

/// Memory of the machine, or of this cgroup where that has less.
pub(crate) fn read_total_memory_bytes() -> Option<u64> {
    let total = read_meminfo_bytes("MemTotal:").or_else(read_sysctl_memory_bytes);
    [total, read_cgroup_limit_bytes()].into_iter().flatten().min()
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

/// The tightest limit of this process's memory cgroup and all above it.
fn read_cgroup_limit_bytes() -> Option<u64> {
    read_memory_groups().iter().filter_map(|group| group.limit_bytes).min()
}

/// What the fullest of these groups still has.
fn read_cgroup_free_bytes() -> Option<u64> {
    read_memory_groups().iter().filter_map(MemoryGroup::free_bytes).min()
}

/// This process's memory cgroup and those above it, as far as they can be seen.
fn read_memory_groups() -> Vec<MemoryGroup> {
    let Some((mount, own, version)) = find_memory_cgroup() else { return Vec::new() };
    let (limit, used) = match version {
        2 => ("memory.max", "memory.current"),
        _ => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    };
    let folders = own.ancestors().take_while(|folder| folder.starts_with(&mount));
    let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).ok();
    folders
        .map(|folder| {
            MemoryGroup::parse(
                read(folder, limit).as_deref(),
                read(folder, used).as_deref(),
                read(folder, "memory.stat").as_deref(),
            )
        })
        .collect()
}

/// Where cgroups that count memory are mounted, the folder of this process's own, and the version.
fn find_memory_cgroup() -> Option<(PathBuf, PathBuf, u32)> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    for (controllers, path) in crate::sys::hardware::parse_cgroup_paths(&own) {
        let (mount, version) = match controllers {
            "" => (PathBuf::from("/sys/fs/cgroup"), 2),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (PathBuf::from("/sys/fs/cgroup/memory"), 1)
            }
            _ => continue,
        };
        let folder = mount.join(path.trim_start_matches('/'));
        // Within a container the own path may not be visible, while the mount is the own group.
        let folder = if folder.is_dir() { folder } else { mount.clone() };
        if folder.join("memory.stat").exists() || version == 1 && mount.is_dir() {
            return Some((mount, folder, version));
        }
    }
    None
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
    from_proc().or_else(read_lscpu_name).or_else(|| {
        let name = output_of("sysctl", &["-n", "machdep.cpu.brand_string"])?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    })
}

/// ARM's processors have numbers in `/proc/cpuinfo`; util-linux knows their names.
fn read_lscpu_name() -> Option<String> {
    crate::sys::hardware::parse_lscpu_names(&output_of("lscpu", &[])?)
}

fn first_gpu(facts: DriverFacts) -> Option<GpuFacts> {
    let gpu = facts.gpus.into_iter().next()?;
    Some(GpuFacts { name: gpu.name, memory_bytes: gpu.memory_bytes, driver: facts.version })
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
