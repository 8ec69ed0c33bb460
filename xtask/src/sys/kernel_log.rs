//! The kernel's log, where this user may read it: whether it killed a process for memory.

/// The line that says that the kernel killed this process for memory. `None` where it did not, or where
/// the log cannot be read; a container's process has another number in it.
pub(crate) fn read_oom_kill(pid: i32) -> Option<String> {
    read_log().iter().rev().find_map(|record| parse_oom_kill(record, pid))
}

/// The records that the kernel still has, oldest first.
#[cfg(target_os = "linux")]
fn read_log() -> Vec<String> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut records = Vec::new();
    let mut options = std::fs::OpenOptions::new();
    let Ok(mut log) = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg") else {
        return records;
    };
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
    records
}

#[cfg(not(target_os = "linux"))]
fn read_log() -> Vec<String> {
    Vec::new()
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
