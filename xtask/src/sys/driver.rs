//! The NVIDIA driver: what it says of its GPUs, or that it does not answer.
//!
//! A wedged driver blocks whoever asks it inside the kernel, where neither a thread can be ended nor
//! the process that has it. So a child asks, with a deadline, and is left behind if need be: this
//! program started again as `driver-facts`, which loads NVML, else `nvidia-smi`. The harness itself
//! never opens the driver, and leaves its GPUs as asleep between two cells as it found them.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use super::command::ToolError;
use super::{env, host, terminal};
use crate::base::diagnostic::HintExt as _;

pub(crate) mod nvml;
mod smi;
mod visible;

pub(crate) use visible::kinds_of;
use visible::{VisibleDevices, select_visible};

/// How long each question may take, in seconds, where [`DEADLINE_VAR`] does not say otherwise.
const DEADLINE_S: f64 = 5.0;
const DEADLINE_VAR: &str = "ARC_DRIVER_DEADLINE_S";

const SILENT_HINT: &str = "a wedged driver needs a reboot (`sudo dmesg | grep -iE 'nvrm|xid'` may \
                           say why); if the GPUs are only slow to wake up, run `sudo nvidia-smi \
                           -pm 1` or set ARC_DRIVER_DEADLINE_S=30";

const BROKEN_HINT: &str = "reset the GPU (`sudo nvidia-smi --gpu-reset`) or reboot; \
                           CUDA_VISIBLE_DEVICES=-1 measures without GPUs, and does not ask their driver";

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is no NVIDIA driver, or no GPU that programs see.
    Absent,
    Facts(DriverFacts),
    /// There is one, and it does not answer in time.
    Silent,
    /// It answers that it cannot work, in its own words.
    Broken(String),
}

/// What the driver said. What it does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverFacts {
    pub(crate) version: Option<String>,
    /// In the driver's order; never empty.
    pub(crate) gpus: Vec<Gpu>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    /// `GPU-…`, of an instance `MIG-…`.
    pub(crate) uuid: Option<String>,
    /// `None` where it shares the system's memory.
    pub(crate) memory_bytes: Option<u64>,
    /// What is free of it.
    pub(crate) free_bytes: Option<u64>,
    /// Processes that compute on it, in no order.
    pub(crate) processes: Option<Vec<u32>>,
    /// Processes that draw with it, such as a desktop's. Some of them compute as well.
    pub(crate) drawing: Vec<u32>,
    /// Why its clocks are lowered right now: NVML's bit mask.
    pub(crate) clock_event_reasons: Option<u64>,
    /// The instances (MIG) that it is cut into: programs see one of them in its place.
    pub(crate) instances: Vec<Gpu>,
    /// Why nothing else is known of it: it has fallen off the bus, for example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken: Option<String>,
}

impl DriverFacts {
    /// Whether heat or power slows a GPU down: software power cap, hardware slowdown, software and
    /// hardware thermal slowdown, power brake. Idle clocks are not a slowdown.
    pub(crate) fn throttled(&self) -> Option<bool> {
        const SLOWDOWNS: u64 = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
        let reasons = self.gpus.iter().filter_map(|gpu| gpu.clock_event_reasons);
        Some(reasons.reduce(|a, b| a | b)? & SLOWDOWNS != 0)
    }

    /// How many processes compute on the GPUs and draw nothing: a desktop is always there.
    pub(crate) fn compute_processes(&self) -> Option<u64> {
        let computing = |gpu: &Gpu| {
            let processes = gpu.processes.as_ref()?;
            Some(processes.iter().filter(|pid| !gpu.drawing.contains(pid)).count() as u64)
        };
        self.gpus.iter().filter_map(computing).reduce(|a, b| a + b)
    }
}

/// What the driver says; `None` where there is no driver.
///
/// # Errors
/// When it does not answer, or answers that it cannot work.
pub(crate) fn read_driver() -> anyhow::Result<Option<DriverFacts>> {
    match ask() {
        Answer::Absent => Ok(None),
        Answer::Facts(facts) => Ok(Some(facts)),
        Answer::Silent => Err(anyhow!("the NVIDIA driver does not answer")).hint(SILENT_HINT),
        Answer::Broken(why) => Err(anyhow!("the NVIDIA driver fails: {why}")).hint(BROKEN_HINT),
    }
}

/// Asks NVML, or `nvidia-smi` where NVML cannot be loaded or does not know. Where programs see no GPU
/// nobody is asked.
pub(crate) fn ask() -> Answer {
    let visible = read_visible();
    if visible.names_none() {
        return Answer::Absent;
    }
    let has_driver = Path::new("/proc/driver/nvidia").exists();
    let smi = host::which("nvidia-smi");
    if !has_driver && smi.is_none() && nvml::named_library().is_none() {
        return Answer::Absent;
    }
    let deadline = deadline();
    let asked = nvml::ask(deadline).or_else(|no_reply| match (no_reply, smi) {
        (NoReply::Failed, Some(smi)) => smi::ask(&smi, deadline),
        (no_reply, _) => Err(no_reply),
    });
    match asked {
        Ok(facts) => {
            let gpus = select_visible(facts.gpus, &visible);
            let broken = gpus.iter().find_map(|gpu| gpu.broken.clone());
            match broken {
                Some(why) => Answer::Broken(why),
                None if gpus.is_empty() => Answer::Absent,
                None => Answer::Facts(DriverFacts { gpus, ..facts }),
            }
        }
        Err(NoReply::Late) => Answer::Silent,
        Err(NoReply::Broken(why)) => Answer::Broken(why),
        Err(NoReply::Failed) => match Path::new("/proc/driver/nvidia/gpus").exists() {
            true => Answer::Facts(unknown_gpu()),
            false => Answer::Absent,
        },
    }
}

fn read_visible() -> VisibleDevices {
    VisibleDevices {
        devices: env::read_var("CUDA_VISIBLE_DEVICES"),
        by_bus: env::read_var("CUDA_DEVICE_ORDER").as_deref() == Some("PCI_BUS_ID"),
    }
}

/// Why one way of asking brought nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NoReply {
    /// It did not end in time.
    Late,
    /// It could not be started, failed, or said what nobody understands.
    Failed,
    /// The driver says itself that it cannot work.
    Broken(String),
}

impl From<ToolError> for NoReply {
    fn from(error: ToolError) -> NoReply {
        match error {
            ToolError::Deadline { .. } => NoReply::Late,
            ToolError::Start { .. } => NoReply::Failed,
        }
    }
}

/// A GPU that the kernel's module has, and of which the tools say nothing.
fn unknown_gpu() -> DriverFacts {
    let version = std::fs::read_to_string("/sys/module/nvidia/version");
    let gpu = Gpu { name: "NVIDIA GPU".to_owned(), ..Gpu::default() };
    DriverFacts { version: version.ok().map(|text| text.trim().to_owned()), gpus: vec![gpu] }
}

fn deadline() -> Duration {
    static DEADLINE: OnceLock<Duration> = OnceLock::new();
    *DEADLINE.get_or_init(|| {
        let (deadline, warning) = parse_deadline(env::read_var(DEADLINE_VAR).as_deref());
        if let Some(warning) = warning {
            terminal::log(&format!("warning: {warning}"));
        }
        deadline
    })
}

/// The deadline, and a warning where the value makes no sense.
fn parse_deadline(raw: Option<&str>) -> (Duration, Option<String>) {
    let default = Duration::from_secs_f64(DEADLINE_S);
    let Some(text) = raw.map(str::trim).filter(|text| !text.is_empty()) else {
        return (default, None);
    };
    match text.parse().map(Duration::try_from_secs_f64) {
        Ok(Ok(deadline)) if !deadline.is_zero() => (deadline, None),
        _ => {
            let warning =
                format!("{DEADLINE_VAR}: `{text}` is not a number of seconds; using {DEADLINE_S}");
            (default, Some(warning))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_and_power_throttle_and_idle_clocks_do_not() {
        let throttled = |mask: Option<u64>| {
            let gpu = |mask| Gpu { clock_event_reasons: mask, ..Gpu::default() };
            let gpus = vec![gpu(None), gpu(mask)];
            DriverFacts { gpus, ..DriverFacts::default() }.throttled()
        };
        assert_eq!(throttled(Some(0x0)), Some(false));
        assert_eq!(throttled(Some(0x1)), Some(false));
        for slowdown in [0x4, 0x8, 0x20, 0x40, 0x80] {
            assert_eq!(throttled(Some(0x1 | slowdown)), Some(true), "{slowdown:#x}");
        }
        assert_eq!(throttled(None), None);
    }

    #[test]
    fn what_draws_is_no_foreign_computation() {
        let gpu = |processes: Option<&[u32]>, drawing: &[u32]| Gpu {
            processes: processes.map(<[u32]>::to_vec),
            drawing: drawing.to_vec(),
            ..Gpu::default()
        };
        let count = |gpus: Vec<Gpu>| DriverFacts { version: None, gpus }.compute_processes();
        assert_eq!(count(vec![gpu(None, &[7])]), None);
        assert_eq!(count(vec![gpu(Some(&[1, 7]), &[7, 8]), gpu(Some(&[7, 2]), &[])]), Some(3));
    }

    #[test]
    fn the_deadline_is_read_by_value() {
        let default = Duration::from_secs(5);
        assert_eq!(parse_deadline(None), (default, None));
        assert_eq!(parse_deadline(Some(" ")), (default, None));
        assert_eq!(parse_deadline(Some("0.5")), (Duration::from_millis(500), None));
        for bad in ["0", "-1", "x", "nan", "inf", "1e300"] {
            let (deadline, warning) = parse_deadline(Some(bad));
            assert_eq!(deadline, default, "{bad}");
            assert!(warning.unwrap().contains(&format!("`{bad}`")));
        }
    }
}
