//! What a machine is called: the `hardware` column, the short slug of file names, the backend.
//!
//! It names what `sys::host` read, and parses the texts that the system gives.

use serde::{Deserialize, Serialize};

const GIB: f64 = (1u64 << 30) as f64;

/// As journals keep it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HostFacts {
    /// Operating system: `linux`, `macos`.
    pub(crate) os: String,
    pub(crate) kernel: Option<String>,
    pub(crate) cpu: Option<String>,
    /// Processors that this process may use.
    pub(crate) cores: Option<u64>,
    /// Memory, or the limit of the cgroup.
    pub(crate) memory_bytes: Option<u64>,
    /// The first GPU that programs see.
    pub(crate) gpu: Option<GpuFacts>,
    /// The kinds of GPUs that programs see. Not kept: all that is measured in one file is of one kind.
    #[serde(skip)]
    pub(crate) gpu_kinds: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuFacts {
    pub(crate) name: String,
    /// Its own memory; none where it shares the system's.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) driver: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Cuda,
    Metal,
    Cpu,
}

impl Backend {
    /// As file names have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Cuda => "cuda",
            Backend::Metal => "metal",
            Backend::Cpu => "cpu",
        }
    }
}

impl HostFacts {
    pub(crate) fn backend(&self) -> Backend {
        if self.gpu.is_some() {
            return Backend::Cuda;
        }
        let is_apple = self.cpu.as_deref().is_some_and(|name| name.starts_with("Apple"));
        if self.os == "macos" && is_apple { Backend::Metal } else { Backend::Cpu }
    }

    /// The memory that models must fit into: the GPU's own, else the system's.
    pub(crate) fn device_memory_bytes(&self) -> Option<u64> {
        self.gpu.as_ref().and_then(|gpu| gpu.memory_bytes).or(self.memory_bytes)
    }

    /// The `hardware` column: chip and memory, for example `NVIDIA_GB10_122GB`.
    pub(crate) fn hardware(&self) -> String {
        let chip = tidy_chip_name(self.chip_name());
        let memory = self
            .device_memory_bytes()
            .map(|bytes| format!(" {}GB", (bytes as f64 / GIB).round()))
            .unwrap_or_default();
        format!("{chip}{memory}").replace(' ', "_")
    }

    /// The short name in file names: `gb10`, `h200`, `m1ultra`, else a slug of the chip's name.
    pub(crate) fn slug(&self) -> String {
        render_slug(self.chip_name())
    }

    fn chip_name(&self) -> &str {
        self.gpu.as_ref().map(|gpu| gpu.name.as_str()).or(self.cpu.as_deref()).unwrap_or("unknown")
    }
}

/// A chip's name without trademark signs, clock rates and filler words.
fn tidy_chip_name(name: &str) -> String {
    let name = name.replace("(R)", "").replace("(TM)", "").replace("(tm)", "");
    let name = name.split('@').next().unwrap_or_default();
    let filler = |word: &&str| !matches!(*word, "CPU" | "Processor") && !word.ends_with("-Core");
    let words: Vec<&str> = name.split_whitespace().filter(filler).collect();
    words.join(" ")
}

/// A short name of letters and digits, at most 24.
pub(crate) fn render_slug(chip: &str) -> String {
    let tidy = tidy_chip_name(chip);
    let is_vendor = |word: &str| {
        ["NVIDIA", "Tesla", "GeForce", "Quadro", "AMD", "Intel", "Apple"]
            .iter()
            .any(|vendor| word.eq_ignore_ascii_case(vendor))
    };
    let words = tidy.split_whitespace().filter(|word| !is_vendor(word)).map(|word| {
        // The form factor and the memory behind the chip's number name no other chip.
        match word.split_once('-') {
            Some((chip, rest)) if rest.starts_with("SXM") || rest.starts_with("PCI") => chip,
            _ => word,
        }
    });
    let slug: String = words
        .flat_map(str::chars)
        .filter(char::is_ascii_alphanumeric)
        .map(|character| character.to_ascii_lowercase())
        .take(24)
        .collect();
    if slug.is_empty() { "unknown".to_owned() } else { slug }
}

/// The first processor's name in `/proc/cpuinfo`.
pub(crate) fn parse_cpu_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The names that `lscpu` gives, joined where a machine has cores of several kinds.
pub(crate) fn parse_lscpu_names(text: &str) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines() {
        let Some(name) = line.trim_start().strip_prefix("Model name:").map(str::trim) else {
            continue;
        };
        if !name.is_empty() && name != "-" && !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| names.join(" + "))
}

/// What a cgroup says of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryGroup {
    /// `None` where it has no limit.
    pub(crate) limit_bytes: Option<u64>,
    used_bytes: Option<u64>,
    /// Of that, page cache that the kernel takes back when somebody needs memory.
    reclaimable_bytes: u64,
}

impl MemoryGroup {
    /// From `memory.max`, `memory.current` and `memory.stat`, or what version 1 has for them.
    pub(crate) fn parse(limit: Option<&str>, used: Option<&str>, stat: Option<&str>) -> Self {
        // Version 1 counts what lies below under names of their own, and gives a group without a limit
        // the largest number of pages that there is.
        const UNLIMITED: u64 = 1 << 62;
        let stat = stat.unwrap_or_default();
        let count = |v1: &str, v2: &str| {
            parse_keyed_count(stat, v1).or_else(|| parse_keyed_count(stat, v2)).unwrap_or(0)
        };
        let bytes = |text: Option<&str>| text?.trim().parse::<u64>().ok();
        // Version 1 tells a container of the limits above it in no other way.
        let above = parse_keyed_count(stat, "hierarchical_memory_limit");
        let limits = [bytes(limit), above].into_iter().flatten();
        MemoryGroup {
            limit_bytes: limits.filter(|bytes| *bytes < UNLIMITED).min(),
            used_bytes: bytes(used),
            reclaimable_bytes: count("total_inactive_file", "inactive_file")
                + count("total_active_file", "active_file"),
        }
    }

    /// What processes within it could still have; `None` where it has no limit.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let needed = self.used_bytes?.saturating_sub(self.reclaimable_bytes);
        Some(self.limit_bytes?.saturating_sub(needed))
    }
}

/// One entry of `/proc/meminfo`, for example `MemTotal:`, in bytes.
pub(crate) fn parse_meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The count on the line that starts with `key` and a space.
pub(crate) fn parse_keyed_count(text: &str, key: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

/// The controllers and the path of each line of `/proc/self/cgroup`.
pub(crate) fn parse_cgroup_paths(text: &str) -> Vec<(&str, &str)> {
    let parse = |line| {
        let mut parts = str::splitn(line, 3, ':');
        let _hierarchy = parts.next()?;
        Some((parts.next()?, parts.next()?))
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_is_not_used_memory() {
        let stat = "anon 700\ninactive_file 200\nactive_file 100\nslab 9\n";
        let group = MemoryGroup::parse(Some("1000\n"), Some("950\n"), Some(stat));
        assert_eq!((group.limit_bytes, group.free_bytes()), (Some(1000), Some(350)));
        // Version 1 has the group's own cache beside that of all below it.
        let stat = "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n";
        let group = MemoryGroup::parse(Some("1000"), Some("950"), Some(stat));
        assert_eq!(group.free_bytes(), Some(350));
        for none in ["max\n", "9223372036854771712\n"] {
            let group = MemoryGroup::parse(Some(none), Some("950"), Some(stat));
            assert_eq!((group.limit_bytes, group.free_bytes()), (None, None), "{none}");
        }
        assert_eq!(MemoryGroup::parse(Some("1000"), None, None).free_bytes(), None);
    }

    #[test]
    fn processors_without_a_name_in_cpuinfo_have_one_by_lscpu() {
        let text = "Architecture:           aarch64\nVendor ID:              ARM\n  Model name:           \
                    Cortex-X925\n    Model:              1\n  Model name:           Cortex-A725\n  Model \
                    name:           Cortex-X925\n";
        assert_eq!(parse_lscpu_names(text).as_deref(), Some("Cortex-X925 + Cortex-A725"));
        assert_eq!(parse_lscpu_names("Model name:  -\n"), None);
        assert_eq!(parse_lscpu_names(""), None);
    }

    fn gpu(name: &str, memory_bytes: Option<u64>) -> HostFacts {
        HostFacts {
            memory_bytes: Some(122 << 30),
            gpu: Some(GpuFacts { name: name.to_owned(), memory_bytes, driver: None }),
            ..HostFacts::default()
        }
    }

    #[test]
    fn hardware_is_chip_and_memory_as_in_the_history() {
        assert_eq!(gpu("NVIDIA GB10", None).hardware(), "NVIDIA_GB10_122GB");
        let apple = HostFacts {
            os: "macos".to_owned(),
            cpu: Some("Apple M1 Ultra".to_owned()),
            memory_bytes: Some(128 << 30),
            ..HostFacts::default()
        };
        assert_eq!(apple.hardware(), "Apple_M1_Ultra_128GB");
        assert_eq!(apple.backend(), Backend::Metal);
        assert_eq!(gpu("NVIDIA H200", Some(143_771 << 20)).hardware(), "NVIDIA_H200_140GB");
    }

    #[test]
    fn slugs_are_short_and_plain() {
        for (chip, slug) in [
            ("Apple M1 Ultra", "m1ultra"),
            ("NVIDIA GB10", "gb10"),
            ("NVIDIA H200", "h200"),
            ("Tesla V100-SXM2-16GB", "v100"),
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("NVIDIA GeForce RTX 4090", "rtx4090"),
            ("AMD EPYC 7763 64-Core Processor", "epyc7763"),
            ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "xeonplatinum8481c"),
            ("Intel(R) Xeon(R) Processor", "xeon"),
            ("(R)", "unknown"),
        ] {
            assert_eq!(render_slug(chip), slug, "{chip}");
        }
    }

    #[test]
    fn the_gpu_decides_backend_and_memory() {
        assert_eq!(gpu("NVIDIA H200", Some(5)).device_memory_bytes(), Some(5));
        assert_eq!(gpu("NVIDIA GB10", None).device_memory_bytes(), Some(122 << 30));
        assert_eq!(gpu("NVIDIA GB10", None).backend(), Backend::Cuda);
        assert_eq!(HostFacts::default().backend(), Backend::Cpu);
        assert_eq!(HostFacts::default().hardware(), "unknown");
    }

    #[test]
    fn the_texts_of_the_system_are_read() {
        let meminfo = "MemTotal:       125512232 kB\nMemAvailable:      1024 kB\n";
        assert_eq!(parse_meminfo_bytes(meminfo, "MemAvailable:"), Some(1 << 20));
        assert_eq!(parse_meminfo_bytes(meminfo, "MemFree:"), None);
        assert_eq!(
            parse_keyed_count("oom 3\noom_kill 2\noom_kill_disable 1\n", "oom_kill"),
            Some(2)
        );
        assert_eq!(parse_keyed_count("oom 3\n", "oom_kill"), None);
        assert_eq!(
            parse_cgroup_paths("4:memory:/a/b:c\n0::/d\nnonsense\n"),
            [("memory", "/a/b:c"), ("", "/d")]
        );
        assert_eq!(parse_cpu_name("flags: x\nmodel name\t: Xeon\n").as_deref(), Some("Xeon"));
    }
}
