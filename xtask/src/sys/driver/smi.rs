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
    let free = optional(query("--query-gpu=memory.free"))?;
    for (gpu, line) in facts.gpus.iter_mut().zip(free.iter().flat_map(|text| text.lines())) {
        gpu.free_bytes = line.trim().parse::<u64>().ok().map(|mib| mib << 20);
    }
    let processes = optional(query("--query-compute-apps=pid"))?;
    facts.compute_processes = processes.as_deref().map(count_lines);
    let mut reasons = optional(query("--query-gpu=clocks_event_reasons.active"))?;
    if reasons.is_none() {
        // As drivers before 535 call it.
        reasons = optional(query("--query-gpu=clocks_throttle_reasons.active"))?;
    }
    facts.clock_event_reasons = reasons.as_deref().and_then(parse_clock_event_reasons);
    Ok(facts)
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
        facts.gpus.push(Gpu { name, memory_bytes, free_bytes: None });
    }
    (!facts.gpus.is_empty()).then_some(facts)
}

fn count_lines(text: &str) -> u64 {
    text.lines().filter(|line| !line.trim().is_empty()).count() as u64
}

/// A bit mask in hexadecimal for each GPU.
fn parse_clock_event_reasons(text: &str) -> Option<u64> {
    let mut all = None;
    for line in text.lines() {
        let digits = line.trim().trim_start_matches("0x");
        all = Some(all.unwrap_or(0) | u64::from_str_radix(digits, 16).ok()?);
    }
    all
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
            free_bytes: None,
        };
        assert_eq!(facts.gpus, [expected("NVIDIA H200", 143_771), expected("NVIDIA A40", 46_068)]);
        let shared = parse_gpus("NVIDIA GB10, [N/A], 580.95.05\n").unwrap();
        assert_eq!(
            shared.gpus,
            [Gpu { name: "NVIDIA GB10".to_owned(), memory_bytes: None, free_bytes: None }]
        );
        assert_eq!(parse_gpus("No devices were found\n"), None);
        assert_eq!(parse_gpus(""), None);
    }

    #[test]
    fn processes_and_reasons_are_read() {
        assert_eq!(count_lines("4021\n4022\n\n"), 2);
        assert_eq!(count_lines(""), 0);
        assert_eq!(parse_clock_event_reasons("0x0000000000000001\n"), Some(1));
        assert_eq!(parse_clock_event_reasons("0x01\n0x0000000000000024\n"), Some(0x25));
        assert_eq!(parse_clock_event_reasons("[N/A]\n"), None);
        assert_eq!(parse_clock_event_reasons(""), None);
    }
}
