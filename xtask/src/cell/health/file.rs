//! Reads what a look at the machine takes. It judges nothing.

use std::collections::BTreeMap;
use std::path::Path;

use super::{DriverLook, DriverState, KernelLook, Look, Pool, SYSTEM_MEMORY};
use crate::sys::driver::{self, Answer, DriverFacts};
use crate::sys::{host, kernel_log};

/// Looks at the machine. Where it has no GPU that is two small files of the system and nothing else.
pub(crate) fn read_look() -> Look {
    let mut pools = Vec::new();
    let system = host::read_total_memory_bytes().zip(host::read_available_memory_bytes());
    if let Some((total_bytes, free_bytes)) = system {
        pools.push(Pool { name: SYSTEM_MEMORY.to_owned(), total_bytes, free_bytes });
    }
    let driver = match driver::ask() {
        Answer::Absent => DriverLook::Absent,
        Answer::Silent => DriverLook::Silent,
        Answer::Facts(facts) => {
            pools.extend(pools_of(&facts));
            DriverLook::Answers(state_of(&facts))
        }
    };
    let has_gpu = driver != DriverLook::Absent || Path::new("/sys/module/amdgpu").exists();
    let kernel = has_gpu.then(kernel_log::read_gpu_lines).flatten().map(|lines| KernelLook {
        last: lines.last().map_or(0, |line| line.sequence),
        lines: lines.into_iter().map(|line| (line.sequence, line.text)).collect(),
    });
    Look { driver, pools, kernel }
}

fn pools_of(facts: &DriverFacts) -> Vec<Pool> {
    let pool = |(index, gpu): (usize, &driver::Gpu)| {
        let (total_bytes, free_bytes) = gpu.memory_bytes.zip(gpu.free_bytes)?;
        Some(Pool { name: format!("GPU {index}'s memory"), total_bytes, free_bytes })
    };
    facts.gpus.iter().enumerate().filter_map(pool).collect()
}

fn state_of(facts: &DriverFacts) -> DriverState {
    let processes = facts.gpus.iter().flat_map(|gpu| gpu.processes.iter().flatten());
    DriverState {
        version: facts.version.clone(),
        shares_memory: facts.gpus.iter().any(|gpu| gpu.memory_bytes.is_none()),
        processes: processes.map(|&pid| (pid, read_name(pid))).collect::<BTreeMap<_, _>>(),
        throttled: facts.throttled().unwrap_or(false),
    }
}

/// Empty where the process cannot be seen from here: the driver numbers those of all containers.
fn read_name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}
