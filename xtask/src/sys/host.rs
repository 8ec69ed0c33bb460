//! The host: processor, memory, GPU, kernel, and what is free of it.

use std::path::{Path, PathBuf};

use super::command::Tool;
use super::driver::{DriverFacts, kinds_of, read_driver};

use crate::sys::hardware::{GpuFacts, HostFacts, MemoryGroup};

/// Where cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

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
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    read_memory_groups_below(Path::new(CGROUPS), &own)
}

/// The same of what `/proc/self/cgroup` says and of where cgroups are mounted.
fn read_memory_groups_below(mounts: &Path, own: &str) -> Vec<MemoryGroup> {
    let Some((mount, own, version)) = find_memory_cgroup(mounts, own) else { return Vec::new() };
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
fn find_memory_cgroup(mounts: &Path, own: &str) -> Option<(PathBuf, PathBuf, u32)> {
    for (controllers, path) in crate::sys::hardware::parse_cgroup_paths(own) {
        let (mount, version) = match controllers {
            "" => (mounts.to_owned(), 2),
            _ if controllers.split(',').any(|name| name == "memory") => (mounts.join("memory"), 1),
            _ => continue,
        };
        // A group without files about memory has those above it; the mixed layout has none of version 2.
        if version == 2 && !mount.join("cgroup.controllers").exists() || !mount.is_dir() {
            continue;
        }
        let folder = mount.join(path.trim_start_matches('/'));
        // Within a container the own path may not be visible, while the mount is the own group.
        let folder = if folder.is_dir() { folder } else { mount.clone() };
        return Some((mount, folder, version));
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
    let english = [("LC_ALL".to_owned(), Some("C".to_owned()))];
    crate::sys::hardware::parse_lscpu_names(&Tool::new("lscpu").env(&english).read().ok()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn write(mounts: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = mounts.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    /// The tightest limit, and what the fullest group has.
    fn limit_and_free(mounts: &Path, own: &str) -> (Option<u64>, Option<u64>) {
        let groups = read_memory_groups_below(mounts, own);
        let limit = groups.iter().filter_map(|group| group.limit_bytes).min();
        (limit, groups.iter().filter_map(MemoryGroup::free_bytes).min())
    }

    #[test]
    fn the_tightest_limit_of_all_groups_above_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mounts = folder.path();
        write(
            mounts,
            &[
                ("cgroup.controllers", "cpu memory\n"),
                ("memory.stat", "anon 1\n"),
                ("batch/memory.max", "1000\n"),
                ("batch/memory.current", "900\n"),
                ("batch/memory.stat", "anon 500\ninactive_file 300\nactive_file 100\n"),
                ("batch/job/memory.max", "4000\n"),
                ("batch/job/memory.current", "500\n"),
                ("batch/job/memory.stat", "anon 500\n"),
                // No controller was handed down to it: it has no files about memory.
                ("batch/job/step/cgroup.procs", ""),
            ],
        );
        let expected = (Some(1000), Some(500));
        assert_eq!(limit_and_free(mounts, "0::/batch/job\n"), expected);
        assert_eq!(limit_and_free(mounts, "0::/batch/job/step\n"), expected);
        assert_eq!(limit_and_free(mounts, "0::/elsewhere\n"), (None, None));
        assert_eq!(limit_and_free(mounts, ""), (None, None));
    }

    #[test]
    fn within_a_container_of_version_1_the_limit_above_is_in_the_groups_own_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mounts = folder.path();
        write(
            mounts,
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/memory.usage_in_bytes", "700\n"),
                ("memory/memory.stat", "hierarchical_memory_limit 1000\ntotal_inactive_file 200\n"),
            ],
        );
        let own = "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/docker/abc\n";
        assert_eq!(limit_and_free(mounts, own), (Some(1000), Some(500)));
    }
}
