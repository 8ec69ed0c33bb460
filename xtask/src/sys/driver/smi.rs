//! `nvidia-smi`, for systems where NVML cannot be loaded or fails.

use std::path::Path;
use std::time::Duration;

use super::{DriverFacts, Gpu, NoReply};
use crate::sys::command::Tool;

/// Asks `nvidia-smi`. What it cannot say beside the GPUs' names and memory is left out.
pub(super) fn ask(program: &Path, deadline: Duration) -> Result<DriverFacts, NoReply> {
    let query = |what: &str| -> Result<String, NoReply> {
        let output = Tool::new(program)
            .args([what, "--format=csv,noheader,nounits"])
            .deadline(deadline)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text).ok_or(NoReply::Failed)
    };
    let optional = |asked: Result<String, NoReply>| match asked {
        Err(NoReply::Failed) => Ok(None),
        asked => asked.map(Some),
    };
    let gpus = query("--query-gpu=name,memory.total,driver_version")?;
    let mut facts = parse_gpus(&gpus).ok_or(NoReply::Failed)?;
    let mut each = |answer: Option<String>, take: &dyn Fn(&mut Gpu, &str)| {
        for (gpu, line) in facts.gpus.iter_mut().zip(answer.iter().flat_map(|text| text.lines())) {
            take(gpu, line.trim());
        }
    };
    each(optional(query("--query-gpu=memory.free"))?, &|gpu, line| {
        gpu.free_bytes = line.parse::<u64>().ok().map(|mib| mib << 20);
    });
    each(optional(query("--query-gpu=uuid"))?, &|gpu, line| {
        gpu.uuid = line.starts_with("GPU-").then(|| line.to_owned());
    });
    let mut reasons = optional(query("--query-gpu=clocks_event_reasons.active"))?;
    if reasons.is_none() {
        // As drivers before 535 call it.
        reasons = optional(query("--query-gpu=clocks_throttle_reasons.active"))?;
    }
    each(reasons, &|gpu, line| gpu.clock_event_reasons = parse_clock_event_reasons(line));
    if let Some(processes) = optional(query("--query-compute-apps=pid,gpu_uuid"))? {
        note_processes(&mut facts.gpus, &processes);
    }
    Ok(facts)
}

/// A line for each process: its number and the GPU that it computes on.
fn note_processes(gpus: &mut [Gpu], text: &str) {
    gpus.iter_mut().for_each(|gpu| gpu.processes = Some(Vec::new()));
    for line in text.lines() {
        let (pid, uuid) = line.split_once(',').unwrap_or((line, ""));
        let Ok(pid) = pid.trim().parse::<u32>() else { continue };
        let of = gpus.iter().position(|gpu| gpu.uuid.as_deref() == Some(uuid.trim()));
        // One whose GPU is not known counts, and does so once.
        if let Some(gpu) = gpus.get_mut(of.unwrap_or(0)) {
            gpu.processes.get_or_insert_default().push(pid);
        }
    }
}

/// A line for each GPU: name, memory in MiB, driver. A GPU that shares the system's memory says
/// `[N/A]`.
fn parse_gpus(text: &str) -> Option<DriverFacts> {
    let mut facts = DriverFacts::default();
    for line in text.lines() {
        let mut fields = line.rsplitn(3, ',').map(str::trim);
        let version = fields.next()?.to_owned();
        let memory_mib = fields.next()?.parse::<u64>().ok();
        let name = fields.next()?.to_owned();
        facts.version = Some(version).filter(|version| !version.starts_with('['));
        let memory_bytes = memory_mib.map(|mib| mib << 20);
        facts.gpus.push(Gpu { name, memory_bytes, ..Gpu::default() });
    }
    (!facts.gpus.is_empty()).then_some(facts)
}

/// A bit mask in hexadecimal.
fn parse_clock_event_reasons(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_read_with_their_memory() {
        let facts = parse_gpus("NVIDIA H200, 143771, 570.86.15\nNVIDIA A40, 46068, 570.86.15\n");
        let facts = facts.unwrap();
        assert_eq!(facts.version.as_deref(), Some("570.86.15"));
        let expected = |name: &str, mib: u64| Gpu {
            name: name.to_owned(),
            memory_bytes: Some(mib << 20),
            ..Gpu::default()
        };
        assert_eq!(facts.gpus, [expected("NVIDIA H200", 143_771), expected("NVIDIA A40", 46_068)]);
        let shared = parse_gpus("NVIDIA GB10, [N/A], 580.95.05\n").unwrap();
        assert_eq!(shared.gpus, [Gpu { name: "NVIDIA GB10".to_owned(), ..Gpu::default() }]);
        assert_eq!(parse_gpus("No devices were found\n"), None);
        assert_eq!(parse_gpus(""), None);
    }

    #[test]
    fn processes_and_reasons_are_read() {
        let gpu = |uuid: &str| Gpu { uuid: Some(uuid.to_owned()), ..Gpu::default() };
        let mut gpus = [gpu("GPU-aa"), gpu("GPU-bb")];
        note_processes(&mut gpus, "4021, GPU-bb\n4022, GPU-bb\n4023, [N/A]\n\n");
        let of = gpus.map(|gpu| gpu.processes.unwrap());
        assert_eq!(of, [vec![4023], vec![4021, 4022]]);
        assert_eq!(parse_clock_event_reasons("0x0000000000000024"), Some(0x24));
        assert_eq!(parse_clock_event_reasons("[N/A]"), None);
        assert_eq!(parse_clock_event_reasons(""), None);
    }
}
