//! Which GPUs a program sees, of those that the driver has. Pure.
//!
//! After NVIDIA's CUDA programming guide, "CUDA Environment Variables", and its user guide of
//! multi-instance GPUs, "CUDA Visible Devices": entries are numbers or the beginnings of UUIDs; from the
//! first that names nothing on, all are ignored; of GPUs that are cut into instances a program sees one
//! instance, and then no other GPU.

use super::Gpu;

/// What the environment says of GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VisibleDevices {
    /// `CUDA_VISIBLE_DEVICES`.
    pub(crate) devices: Option<String>,
    /// Whether `CUDA_DEVICE_ORDER` numbers them as the driver does, by their place on the bus.
    pub(crate) by_bus: bool,
}

impl VisibleDevices {
    /// Whether no GPU is seen whichever there are: the first entry is neither a number nor a UUID.
    pub(super) fn names_none(&self) -> bool {
        let Some(text) = &self.devices else { return false };
        let first = text.split(',').next().unwrap_or_default().trim();
        first.parse::<usize>().is_err() && !is_uuid(first)
    }
}

/// The GPUs that a program sees, in its order.
///
/// Numbers count from the fastest GPU on unless the bus orders them. Which is the fastest is not known
/// here, so that where GPUs differ a number stands for all of them: whoever asks which kind is measured
/// is told of every kind that it may be.
pub(super) fn select_visible(gpus: Vec<Gpu>, visible: &VisibleDevices) -> Vec<Gpu> {
    let Some(text) = &visible.devices else {
        let first = gpus.iter().find_map(|gpu| gpu.instances.first()).cloned();
        return first.map_or(gpus, |instance| vec![instance]);
    };
    let numbers_are_known = visible.by_bus || kinds_of(&gpus).len() < 2;
    let mut seen: Vec<Gpu> = Vec::new();
    for entry in text.split(',').map(str::trim) {
        let found = match entry.parse::<usize>() {
            Ok(_) if !numbers_are_known => return gpus,
            Ok(number) => gpus.get(number),
            Err(_) => find_by_uuid(&gpus, entry),
        };
        let Some(gpu) = found else { break };
        let gpu = gpu.instances.first().unwrap_or(gpu);
        if !seen.contains(gpu) {
            seen.push(gpu.clone());
        }
    }
    match seen.iter().find(|gpu| is_instance(gpu)).cloned() {
        Some(instance) => vec![instance],
        None => seen,
    }
}

/// The different kinds among GPUs, each by its name and its memory in whole GiB.
pub(crate) fn kinds_of(gpus: &[Gpu]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for gpu in gpus.iter().filter(|gpu| gpu.broken.is_none()) {
        let memory = gpu.memory_bytes.map(|bytes| format!(" {} GiB", bytes >> 30));
        let kind = format!("{}{}", gpu.name, memory.unwrap_or_default());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

fn is_instance(gpu: &Gpu) -> bool {
    gpu.uuid.as_deref().is_some_and(|uuid| uuid.starts_with("MIG-"))
}

fn is_uuid(entry: &str) -> bool {
    entry.starts_with("GPU-") || entry.starts_with("MIG-")
}

/// The GPU or instance that an entry names: by the beginning of its UUID where only one begins so, or as
/// drivers before 470 named instances, `MIG-GPU-UUID/GPU INSTANCE/COMPUTE INSTANCE`.
fn find_by_uuid<'a>(gpus: &'a [Gpu], entry: &str) -> Option<&'a Gpu> {
    if let Some((parent, _)) = entry.strip_prefix("MIG-").and_then(|rest| rest.split_once('/')) {
        return gpus.iter().find(|gpu| gpu.uuid.as_deref() == Some(parent));
    }
    if !is_uuid(entry) {
        return None;
    }
    let all = gpus.iter().flat_map(|gpu| std::iter::once(gpu).chain(&gpu.instances));
    let begins = |gpu: &&Gpu| gpu.uuid.as_deref().is_some_and(|uuid| uuid.starts_with(entry));
    let mut found = all.filter(begins);
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(uuid: &str, name: &str) -> Gpu {
        Gpu { name: name.to_owned(), uuid: Some(uuid.to_owned()), ..Gpu::default() }
    }

    fn select(gpus: &[Gpu], devices: Option<&str>, by_bus: bool) -> Vec<String> {
        let visible = VisibleDevices { devices: devices.map(str::to_owned), by_bus };
        let seen = select_visible(gpus.to_vec(), &visible);
        seen.into_iter().map(|gpu| gpu.uuid.unwrap()).collect()
    }

    #[test]
    fn numbers_and_uuids_choose_until_one_names_nothing() {
        let gpus = ["GPU-aa11", "GPU-aa22", "GPU-bb33"].map(|uuid| gpu(uuid, "X1"));
        for (devices, expected) in [
            (None, &["GPU-aa11", "GPU-aa22", "GPU-bb33"] as &[&str]),
            (Some("2,0"), &["GPU-bb33", "GPU-aa11"]),
            (Some(" 1 "), &["GPU-aa22"]),
            (Some("1,7,0"), &["GPU-aa22"]),
            (Some("1,-1,0"), &["GPU-aa22"]),
            (Some("1,1"), &["GPU-aa22"]),
            (Some("GPU-bb,GPU-aa2"), &["GPU-bb33", "GPU-aa22"]),
            (Some("GPU-aa"), &[]),
            (Some(""), &[]),
            (Some("none"), &[]),
        ] {
            assert_eq!(select(&gpus, devices, false), expected, "{devices:?}");
        }
    }

    #[test]
    fn what_names_no_gpu_is_known_without_the_driver() {
        let none = |devices: Option<&str>| {
            VisibleDevices { devices: devices.map(str::to_owned), by_bus: false }.names_none()
        };
        for devices in ["", " ", "-1", "none", "NoDevFiles", "-1,0", "x,GPU-aa"] {
            assert!(none(Some(devices)), "{devices}");
        }
        for devices in [None, Some("0"), Some(" 7,-1"), Some("GPU-aa"), Some("MIG-GPU-aa/1/0")] {
            assert!(!none(devices), "{devices:?}");
        }
    }

    #[test]
    fn of_a_gpu_that_is_cut_one_instance_is_seen_and_nothing_beside() {
        let cut = Gpu {
            instances: vec![gpu("MIG-11", "X1 MIG 1g"), gpu("MIG-12", "X1 MIG 2g")],
            ..gpu("GPU-aa", "X1")
        };
        let gpus = [gpu("GPU-bb", "X1"), cut];
        for (devices, expected) in [
            (None, "MIG-11"),
            (Some("1"), "MIG-11"),
            (Some("MIG-12"), "MIG-12"),
            (Some("0,MIG-12"), "MIG-12"),
            (Some("GPU-aa"), "MIG-11"),
            (Some("MIG-GPU-aa/1/0"), "MIG-11"),
            (Some("0"), "GPU-bb"),
        ] {
            assert_eq!(select(&gpus, devices, true), [expected], "{devices:?}");
        }
    }

    #[test]
    fn a_number_among_gpus_that_differ_is_one_only_by_the_bus() {
        let gpus = [gpu("GPU-aa", "X1"), gpu("GPU-bb", "X2")];
        assert_eq!(select(&gpus, Some("1"), true), ["GPU-bb"]);
        assert_eq!(select(&gpus, Some("1"), false), ["GPU-aa", "GPU-bb"]);
        assert_eq!(select(&gpus, Some("GPU-bb"), false), ["GPU-bb"]);
        let sized = |gib: u64| Gpu { memory_bytes: Some(gib << 30), ..gpu("GPU-cc", "X1") };
        assert_eq!(kinds_of(&[sized(24), sized(24), sized(80)]), ["X1 24 GiB", "X1 80 GiB"]);
    }
}
