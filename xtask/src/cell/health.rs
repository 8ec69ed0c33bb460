//! Whether the machine is fit for another cell: the driver answers, its memory is back, nobody else
//! computes on the GPU, the kernel logged nothing, clocks are not lowered.
//!
//! Pure: it compares two looks. Where there is no GPU there is nothing to compare but memory.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::executor::Executor;

pub(crate) mod file;

/// How much of a memory may still be missing after a cell, as a share of all of it.
const TOLERANCE: f64 = 0.02;
/// How long a machine that is not healthy has at least: a process takes a moment to leave a driver.
const LEAST_PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Lines of the kernel's log that are shown.
const SHOWN_LINES: usize = 2;

const GIB: f64 = (1_u64 << 30) as f64;

/// The machine at one moment. What cannot be read is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Look {
    pub(crate) driver: DriverLook,
    /// The system's memory, named [`SYSTEM_MEMORY`], and that of each GPU that has its own.
    pub(crate) pools: Vec<Pool>,
    /// Whether the kernel drives a GPU of AMD.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) amdgpu: bool,
    /// `None` where the log cannot be read, and where there is no GPU.
    pub(crate) kernel: Option<KernelLook>,
}

/// The name of the system's memory.
pub(crate) const SYSTEM_MEMORY: &str = "memory";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DriverLook {
    /// There is no NVIDIA driver.
    #[default]
    Absent,
    /// There is one that does not answer in time.
    Silent,
    /// It answers that it cannot work.
    Broken(String),
    Answers(DriverState),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DriverState {
    pub(crate) version: Option<String>,
    /// Whether a GPU has no memory of its own.
    pub(crate) shares_memory: bool,
    /// The processes that compute on a GPU, with their names as far as they can be seen from here.
    pub(crate) processes: BTreeMap<u32, String>,
    /// Those that belong to the machine: they draw, or share the GPU out. Some compute as well.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) standing: BTreeMap<u32, String>,
    /// Whether heat or power lowers clocks.
    pub(crate) throttled: bool,
}

/// One memory: the system's, or a GPU's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
}

/// What the drivers of GPUs have in the kernel's log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KernelLook {
    /// The number of the last line; 0 where there is none.
    pub(crate) last: u64,
    /// Each line with its number.
    #[serde(skip)]
    pub(crate) lines: Vec<(u64, String)>,
}

impl Look {
    /// Whether there is a GPU to watch over.
    pub(crate) fn has_gpu(&self) -> bool {
        self.driver != DriverLook::Absent || self.amdgpu
    }

    /// What is to be known of a look before the first launch, for people.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let DriverLook::Answers(state) = &self.driver
            && !state.standing.is_empty()
        {
            let names = state.standing.iter().map(|(pid, name)| render_process(*pid, name));
            notes.push(format!(
                "on the GPU from the start, and no fault: {}",
                names.collect::<Vec<_>>().join(", ")
            ));
        }
        if self.has_gpu() && self.kernel.is_none() {
            notes.push(
                "the kernel's log cannot be read here: what the GPU's driver logs (NVRM, Xid, amdgpu) is \
                 not looked at"
                    .to_owned(),
            );
        }
        notes
    }

    /// The look with everybody who computes now counted to the machine.
    pub(crate) fn with_all_standing(mut self) -> Look {
        if let DriverLook::Answers(state) = &mut self.driver {
            state.standing.extend(state.processes.clone());
        }
        self
    }

    /// The look with what must be back when a run goes on under the same start of machine and driver:
    /// the GPUs' own memory. Else there is nothing to compare with.
    pub(crate) fn for_resumption(&self, is_another_boot: bool) -> Option<Look> {
        if is_another_boot || !matches!(self.driver, DriverLook::Answers(_)) {
            return None;
        }
        let mut look = Look { kernel: None, ..self.clone() };
        look.pools.retain(|pool| pool.name != SYSTEM_MEMORY);
        Some(look)
    }
}

fn render_process(pid: u32, name: &str) -> String {
    let name = if name.is_empty() { "another user's" } else { name };
    format!("{pid} ({name})")
}

/// Whose memory must be back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// That of GPUs, their own or the system's where they share it: others may use what is left.
    Gpus,
    /// The system's as well.
    All,
    /// That of the system alone, and of GPUs nothing: where only the processor measures.
    System,
}

/// Whatever is not as it should be, in words: by itself, and against an earlier look where there is one.
pub(crate) fn judge(before: Option<&Look>, now: &Look, watched: Watched) -> Vec<String> {
    if watched == Watched::System {
        let of_system = |look: &Look| {
            let pools = look.pools.iter().filter(|pool| pool.name == SYSTEM_MEMORY).cloned();
            Look { pools: pools.collect(), ..Look::default() }
        };
        let before = before.map(of_system).unwrap_or_default();
        return find_missing(&before, &of_system(now), true);
    }
    let mut sick = Vec::new();
    let mut shares_memory = false;
    match &now.driver {
        DriverLook::Absent if before.is_some_and(|before| before.driver != DriverLook::Absent) => {
            sick.push("it is gone".to_owned());
        }
        DriverLook::Absent => {}
        DriverLook::Silent => sick.push("it does not answer".to_owned()),
        DriverLook::Broken(why) => sick.push(format!("it fails: {why}")),
        DriverLook::Answers(state) => {
            // None of ours is left before and after a cell. What the machine itself has there is what
            // it had at the start.
            let standing = match before.map(|before| &before.driver) {
                Some(DriverLook::Answers(before)) => &before.standing,
                _ => &state.standing,
            };
            let foreign = state.processes.iter().filter(|(pid, _)| !standing.contains_key(*pid));
            sick.extend(foreign.map(|(pid, name)| {
                format!("process {} computes on the GPU", render_process(*pid, name))
            }));
            if state.throttled {
                sick.push("heat or power lowers the GPU's clocks".to_owned());
            }
            shares_memory = state.shares_memory;
        }
    }
    let Some(before) = before else { return sick };
    if !matches!(now.driver, DriverLook::Silent | DriverLook::Broken(_)) {
        let with_system = shares_memory || watched == Watched::All;
        sick.extend(find_missing(before, now, with_system));
    }
    let lines = new_kernel_lines(before, now);
    if !lines.is_empty() {
        let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        let more = match lines.len() - shown.len() {
            0 => String::new(),
            more => format!(" (and {more} before)"),
        };
        sick.push(format!("the kernel logged `{}`{more}", shown.join("`, `")));
    }
    sick
}

/// Lines that the drivers of GPUs have logged since.
pub(crate) fn new_kernel_lines<'a>(before: &Look, now: &'a Look) -> Vec<&'a str> {
    let (Some(was), Some(is)) = (&before.kernel, &now.kernel) else { return Vec::new() };
    let new = is.lines.iter().filter(|(number, _)| *number > was.last);
    new.map(|(_, line)| line.as_str()).collect()
}

/// What is missing of each memory.
fn find_missing(before: &Look, now: &Look, with_system: bool) -> Vec<String> {
    let watched = before.pools.iter().filter(|pool| with_system || pool.name != SYSTEM_MEMORY);
    let missing = watched.filter_map(|was| {
        let Some(is) = now.pools.iter().find(|pool| pool.name == was.name) else {
            return Some(format!("{} cannot be read any more", was.name));
        };
        let lost = was.free_bytes.saturating_sub(is.free_bytes) as f64;
        (lost > was.total_bytes as f64 * TOLERANCE).then(|| {
            format!(
                "{:.1} GiB of {} are free, {:.1} GiB were before",
                is.free_bytes as f64 / GIB,
                was.name,
                was.free_bytes as f64 / GIB
            )
        })
    });
    missing.collect()
}

/// What changed between two sessions of a run, for people.
pub(crate) fn describe_change(before: &Look, now: &Look, is_another_boot: bool) -> Vec<String> {
    let mut changes = Vec::new();
    if is_another_boot {
        changes.push("the machine was started anew since the last session".to_owned());
    }
    let version = |look: &Look| match &look.driver {
        DriverLook::Answers(state) => state.version.clone(),
        DriverLook::Absent | DriverLook::Silent | DriverLook::Broken(_) => None,
    };
    if let (Some(was), Some(is)) = (version(before), version(now))
        && was != is
    {
        changes.push(format!("the driver was {was} and is {is}"));
    }
    if !is_another_boot {
        let lines = new_kernel_lines(before, now);
        changes.extend(lines.iter().map(|line| format!("the kernel logged since: {line}")));
    }
    changes
}

/// What came of waiting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Waited {
    Healthy(Look),
    /// What is still wrong.
    Sick(String),
    /// An interrupt ended it.
    Interrupted,
}

/// Looks until the machine is healthy, for as long as `patience` or a few seconds; `tell` is told once what it
/// waits for. No log takes a line back, so that one is not waited out. A driver that does not answer is asked once more, at the end: whoever asks it hangs in it and
/// is left behind.
pub(crate) fn await_health(
    executor: &mut impl Executor,
    before: Option<&Look>,
    watched: Watched,
    patience: Duration,
    mut tell: impl FnMut(&str),
) -> Waited {
    let mut left = patience.max(LEAST_PATIENCE);
    let mut told = false;
    loop {
        let look = executor.look();
        let sick = judge(before, &look, watched).join("; ");
        if sick.is_empty() {
            return Waited::Healthy(look);
        }
        if before.is_some_and(|before| !new_kernel_lines(before, &look).is_empty()) {
            left = left.min(LEAST_PATIENCE);
        }
        if left.is_zero() {
            return Waited::Sick(sick);
        }
        if !std::mem::replace(&mut told, true) {
            tell(&format!("not healthy yet: {sick}; waiting up to {:.0} s", left.as_secs_f64()));
        }
        let slice = if look.driver == DriverLook::Silent { left } else { left.min(LOOK_EVERY) };
        if executor.pause(slice).is_none() {
            return Waited::Interrupted;
        }
        left -= slice;
    }
}

#[cfg(test)]
mod tests;
