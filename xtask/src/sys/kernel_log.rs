//! The kernel's log, where this user may read it: whether it killed a process for memory, and what the
//! drivers of GPUs complained of.

use super::env;

/// A file with the log in the form of `/dev/kmsg`, to read instead: for systems that keep it elsewhere,
/// and for tests.
const LOG_VAR: &str = "ARC_KERNEL_LOG";

/// Words of which every line that NVIDIA's driver logs has one.
const NVIDIA_WORDS: [&str; 2] = ["NVRM", "Xid"];
/// The word that every line of AMD's driver has.
const AMD_WORD: &str = "amdgpu";

/// A complaint that the driver of a GPU has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuLine {
    /// Grows from record to record, until the machine is started anew.
    pub(crate) sequence: u64,
    pub(crate) text: String,
}

/// Complaints of the drivers of GPUs, oldest first; `None` where the log cannot be read.
///
/// Not among them: what AMD's driver logs below a warning, which it does whenever a GPU wakes up, and
/// NVIDIA's `NV_ERR_NO_MEMORY`, which stands there after any cell that ran out of memory and even after
/// healthy starts.
pub(crate) fn read_gpu_lines() -> Option<Vec<GpuLine>> {
    let records = match env::read_var(LOG_VAR) {
        Some(path) => split_records(&std::fs::read_to_string(path).ok()?),
        None => read_records()?,
    };
    Some(records.iter().filter_map(|record| parse_gpu_line(record)).collect())
}

/// The records of a whole text; lines that belong to the record before begin with a blank.
fn split_records(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.starts_with(' ')).map(str::to_owned).collect()
}

/// `PRIORITY,SEQUENCE,TIME,FLAGS;LINE` of a GPU's driver. The lowest three bits of the priority are the
/// level (Linux, Documentation/ABI/testing/dev-kmsg).
fn parse_gpu_line(record: &str) -> Option<GpuLine> {
    const WARNING: u32 = 4;
    let (prefix, rest) = record.split_once(';')?;
    let line = rest.lines().next()?.trim();
    let mut fields = prefix.split(',');
    let level = fields.next()?.parse::<u32>().ok()? & 7;
    let sequence = fields.next()?.parse().ok()?;
    let says = |word: &&str| line.contains(*word);
    let of_nvidia = NVIDIA_WORDS.iter().any(says) && !line.contains("NV_ERR_NO_MEMORY");
    let of_amd = line.contains(AMD_WORD) && level <= WARNING;
    (of_nvidia || of_amd).then(|| GpuLine { sequence, text: line.to_owned() })
}

/// The line that says that the kernel killed this process for memory. `None` where it did not, or where
/// the log cannot be read; a container's process has another number in it.
pub(crate) fn read_oom_kill(pid: i32) -> Option<String> {
    read_records()?.iter().rev().find_map(|record| parse_oom_kill(record, pid))
}

/// The records that the kernel still has, oldest first; `None` where they cannot be read.
#[cfg(target_os = "linux")]
fn read_records() -> Option<Vec<String>> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut records = Vec::new();
    let mut options = std::fs::OpenOptions::new();
    let mut log = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
    // One read gives one record, and fails with EAGAIN after the last.
    let mut record = vec![0; 8 << 10];
    loop {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => records.push(String::from_utf8_lossy(&record[..length]).into_owned()),
            // Records were overwritten meanwhile; the next read goes on with the oldest there is.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => break,
        }
    }
    Some(records)
}

#[cfg(not(target_os = "linux"))]
fn read_records() -> Option<Vec<String>> {
    None
}

/// `…;Out of memory: Killed process 4711 (name) …`, or the same of a cgroup.
fn parse_oom_kill(record: &str, pid: i32) -> Option<String> {
    let line = record.split_once(';').map_or(record, |(_, line)| line).lines().next()?;
    let (before, after) = line.split_once("Killed process ")?;
    let number: String = after.chars().take_while(char::is_ascii_digit).collect();
    let for_memory = before.to_ascii_lowercase().contains("out of memory");
    (for_memory && number.parse() == Ok(pid)).then(|| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_of_gpu_drivers_are_found_with_their_numbers() {
        let log = "6,10,1,-;usb 1-1: new device\n\
                   4,11,2,-;NVRM: Xid (PCI:0000:01:00): 79, pid=4711, GPU has fallen off the bus.\n \
                   SUBSYSTEM=pci\n\
                   3,12,3,-;[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout\n\
                   6,13,3,-;amdgpu 0000:03:00.0: amdgpu: SMU is resumed successfully!\n\
                   30,14,3,-;amdgpu 0000:03:00.0: amdgpu: PSP is resuming...\n\
                   28,15,3,-;amdgpu 0000:03:00.0: amdgpu: GPU reset begin!\n\
                   4,16,4,-;NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory \
                   [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal\n\
                   no record\n";
        let lines: Vec<GpuLine> =
            split_records(log).iter().filter_map(|record| parse_gpu_line(record)).collect();
        assert_eq!(lines.iter().map(|line| line.sequence).collect::<Vec<_>>(), [11, 12, 15]);
        assert!(lines[0].text.starts_with("NVRM: Xid") && lines[1].text.contains("timeout"));
    }

    #[test]
    fn a_kill_is_found_by_its_process() {
        let of_host = "3,1201,77112233,-;Out of memory: Killed process 4711 (llama-bench) \
                       total-vm:41943040kB, anon-rss:32000000kB\n SUBSYSTEM=x\n";
        let of_cgroup =
            "3,1202,77112234,-;Memory cgroup out of memory: Killed process 4712 (python3)";
        assert!(parse_oom_kill(of_host, 4711).unwrap().ends_with("anon-rss:32000000kB"));
        assert_eq!(parse_oom_kill(of_host, 471), None);
        assert!(parse_oom_kill(of_cgroup, 4712).unwrap().starts_with("Memory cgroup"));
        assert_eq!(parse_oom_kill("6,1,1,-;Killed process 4711 (x)", 4711), None);
        assert_eq!(parse_oom_kill("6,1,1,-;usb 1-1: new device", 4711), None);
    }
}
