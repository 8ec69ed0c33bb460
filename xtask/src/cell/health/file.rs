//! Reads what a look at the machine takes. It judges nothing.

use std::collections::BTreeMap;
use std::path::Path;

use super::{DriverLook, DriverState, KernelLook, Look, Pool, SYSTEM_MEMORY};
use crate::sys::driver::{self, Answer, DriverFacts};
use crate::sys::{host, kernel_log};

/// What shares a GPU out among processes (CUDA MPS) as the system names it, in 15 characters.
const MPS_SERVER: &str = "nvidia-cuda-mps";

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
        Answer::Broken(why) => DriverLook::Broken(why),
        Answer::Facts(facts) => {
            pools.extend(pools_of(&facts));
            DriverLook::Answers(state_of(&facts))
        }
    };
    let amdgpu = Path::new("/sys/module/amdgpu").exists();
    let look = Look { driver, pools, amdgpu, kernel: None };
    let kernel = look.has_gpu().then(kernel_log::read_gpu_lines).flatten();
    let kernel = kernel.map(|lines| KernelLook {
        last: lines.last().map_or(0, |line| line.sequence),
        lines: lines.into_iter().map(|line| (line.sequence, line.text)).collect(),
    });
    Look { kernel, ..look }
}

fn pools_of(facts: &DriverFacts) -> Vec<Pool> {
    let pool = |(index, gpu): (usize, &driver::Gpu)| {
        let (total_bytes, free_bytes) = gpu.memory_bytes.zip(gpu.free_bytes)?;
        Some(Pool { name: format!("GPU {index}'s memory"), total_bytes, free_bytes })
    };
    facts.gpus.iter().enumerate().filter_map(pool).collect()
}

fn state_of(facts: &DriverFacts) -> DriverState {
    let named = |pids: &mut dyn Iterator<Item = &u32>| -> BTreeMap<u32, String> {
        pids.map(|&pid| (pid, read_name(pid))).collect()
    };
    let processes = named(&mut facts.gpus.iter().flat_map(|gpu| gpu.processes.iter().flatten()));
    let mut standing = named(&mut facts.gpus.iter().flat_map(|gpu| &gpu.drawing));
    standing.extend(processes.clone().into_iter().filter(|(_, name)| name == MPS_SERVER));
    DriverState {
        version: facts.version.clone(),
        shares_memory: facts.gpus.iter().any(|gpu| gpu.memory_bytes.is_none()),
        processes,
        standing,
        throttled: facts.throttled().unwrap_or(false),
    }
}

/// Empty where the process cannot be seen from here: the driver numbers those of all containers.
fn read_name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::driver::Gpu;

    #[test]
    fn a_desktop_and_the_server_that_shares_the_gpu_out_belong_to_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-cuda-mps-server");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut server = std::process::Command::new(&program).arg("600").spawn().unwrap();
        // The system renames a process a moment after it is another program.
        let is_named = || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            read_name(server.id()) == MPS_SERVER
        };
        let named = (0..1000).any(|_| is_named());
        let gpu = Gpu {
            processes: Some(vec![server.id(), 4_100_000, 4_200_000]),
            drawing: vec![4_100_000, 4_100_001],
            ..Gpu::default()
        };
        let state = state_of(&DriverFacts { version: None, gpus: vec![gpu] });
        let pid = server.id();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(named, "it has another name");
        let mut expected = vec![pid, 4_100_000, 4_100_001];
        expected.sort_unstable();
        assert_eq!(state.standing.keys().copied().collect::<Vec<_>>(), expected);
        assert_eq!(state.processes.len(), 3);
    }
}
