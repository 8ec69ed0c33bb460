//! What the operating system says about this machine and this process; `None` where it does not.

#[cfg(all(target_os = "linux", feature = "cuda"))]
pub(crate) use linux::meminfo_bytes;
#[cfg(target_os = "linux")]
pub(crate) use linux::{chip_name, rss_bytes, rss_peak_bytes, total_memory_bytes};
#[cfg(target_os = "macos")]
pub(crate) use macos::{chip_name, rss_bytes, rss_peak_bytes, total_memory_bytes};
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) use other::{chip_name, rss_bytes, rss_peak_bytes, total_memory_bytes};

/// Free bytes that the C library keeps for later, where it tells.
pub(crate) fn libc_retained_bytes() -> Option<u64> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it only counts, under the library's own locks.
        let info = unsafe { libc::mallinfo2() };
        Some(info.fordblks as u64)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

/// From now on the C library takes blocks of 4 MiB and more from the system and gives them back when they
/// are freed. Left alone, its threshold grows with the largest such block that was freed, and the
/// activations of a prefill stay resident beside the decode steps after it.
pub(crate) fn give_large_blocks_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets one number, under the library's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 4 << 20);
    }
}

/// Gives back what the C library keeps for later of what loading used and freed.
pub(crate) fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it gives back free pages alone.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Asks for pages of 2 MiB wherever one fits wholly into these `len` bytes from `start` on, so that
/// reading them all does not wait for page tables. It is of use before they are first written, and takes
/// no more memory: what is not a whole huge page stays as it was. Where the system takes no advice,
/// nothing but speed is lost.
pub fn ask_for_huge_pages(start: *const u8, len: usize) {
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let at = start as usize;
        let (first, end) = (at.next_multiple_of(HUGE), (at + len) / HUGE * HUGE);
        if first < end {
            // SAFETY: this advice changes no byte, whatever lies there.
            unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    pub(crate) fn chip_name() -> Option<String> {
        let text = fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }

    pub(crate) fn total_memory_bytes() -> Option<u64> {
        meminfo_bytes("MemTotal:")
    }

    pub(crate) fn meminfo_bytes(key: &str) -> Option<u64> {
        read_kib("/proc/meminfo", key)
    }

    pub(crate) fn rss_bytes() -> Option<u64> {
        read_kib("/proc/self/status", "VmRSS:")
    }

    /// The high-water mark of this program's own memory. `getrusage` would not do: it carries over
    /// the peak of the process that forked this one.
    pub(crate) fn rss_peak_bytes() -> Option<u64> {
        read_kib("/proc/self/status", "VmHWM:")
    }

    fn read_kib(path: &str, key: &str) -> Option<u64> {
        parse_kib(&fs::read_to_string(path).ok()?, key)
    }

    fn parse_kib(text: &str, key: &str) -> Option<u64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn kib_lines_are_found_by_key() {
            let text = "VmPeak:\t  9 kB\nVmHWM:\t   12 kB\n";
            assert_eq!(parse_kib(text, "VmHWM:"), Some(12 * 1024));
            assert_eq!(parse_kib(text, "VmRSS:"), None);
        }

        #[test]
        fn this_process_has_a_resident_set_below_its_peak() {
            let (now, peak) = (rss_bytes().unwrap(), rss_peak_bytes().unwrap());
            assert!(now > 0 && peak >= 1 << 20);
        }
    }
}

#[cfg(target_os = "macos")]
mod macos {
    pub(crate) fn chip_name() -> Option<String> {
        let mut buffer = [0u8; 256];
        let size = read_sysctl(c"machdep.cpu.brand_string", &mut buffer)?;
        let text = buffer[..size].split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(text).trim().to_owned())
    }

    pub(crate) fn total_memory_bytes() -> Option<u64> {
        let mut buffer = [0u8; 8];
        let size = read_sysctl(c"hw.memsize", &mut buffer)?;
        (size == 8).then(|| u64::from_ne_bytes(buffer))
    }

    pub(crate) fn rss_bytes() -> Option<u64> {
        None
    }

    pub(crate) fn rss_peak_bytes() -> Option<u64> {
        // SAFETY: an all-zero `rusage` is a valid one.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a valid place to write a `rusage` to.
        let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        (status == 0).then_some(usage.ru_maxrss as u64)
    }

    fn read_sysctl(name: &std::ffi::CStr, buffer: &mut [u8]) -> Option<usize> {
        let mut size = buffer.len();
        // SAFETY: the name ends in 0, and the buffer has `size` bytes to write to.
        let status = unsafe {
            libc::sysctlbyname(
                name.as_ptr(),
                buffer.as_mut_ptr().cast(),
                &mut size,
                std::ptr::null_mut(),
                0,
            )
        };
        (status == 0).then_some(size)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod other {
    pub(crate) fn chip_name() -> Option<String> {
        None
    }

    pub(crate) fn total_memory_bytes() -> Option<u64> {
        None
    }

    pub(crate) fn rss_bytes() -> Option<u64> {
        None
    }

    pub(crate) fn rss_peak_bytes() -> Option<u64> {
        None
    }
}
