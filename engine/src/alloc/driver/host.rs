//! Host memory as a driver: the system allocator, or one `mmap` and one `munmap` a block.
//!
//! `mmap` has no cache in user space, so that it shows on a CPU what a driver call costs. Neither
//! calls back into an allocator of Arc.

use std::alloc::{GlobalAlloc as _, Layout, System};
use std::ptr::NonNull;

use super::{Address, Driver, DriverBlock, DriverError, DriverRequest, Fill, Origin};

/// What is below the cache on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HostDriverKind {
    /// The system allocator.
    #[default]
    System,
    /// One `mmap` and one `munmap` for each block.
    Mmap,
}

impl HostDriverKind {
    /// The name that the command line and reports use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            HostDriverKind::System => "system",
            HostDriverKind::Mmap => "mmap",
        }
    }
}

impl std::str::FromStr for HostDriverKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "system" => Ok(HostDriverKind::System),
            "mmap" => Ok(HostDriverKind::Mmap),
            _ => Err(format!("no host driver `{word}`: it is `system` or `mmap`")),
        }
    }
}

/// Alignment of every block of the system allocator: a cache line, which is what vectorised code
/// asks for.
const SYSTEM_ALIGN_BYTES: u64 = 64;
const PAGE_BYTES: u64 = 4096;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HostDriver {
    kind: HostDriverKind,
}

impl HostDriver {
    /// The driver of that kind.
    #[must_use]
    pub const fn new(kind: HostDriverKind) -> Self {
        HostDriver { kind }
    }
}

impl Driver for HostDriver {
    fn name(&self) -> &'static str {
        self.kind.as_str()
    }

    fn block_align(&self) -> u64 {
        match self.kind {
            HostDriverKind::System => SYSTEM_ALIGN_BYTES,
            HostDriverKind::Mmap => PAGE_BYTES,
        }
    }

    fn alloc(&self, request: DriverRequest) -> Result<Address, DriverError> {
        let pointer = match self.kind {
            HostDriverKind::System => {
                let layout = layout_of(request.bytes, request.align)?;
                // SAFETY: the layout's size is not zero: the cache sends no empty requests.
                unsafe {
                    match request.fill {
                        Fill::Any => System.alloc(layout),
                        Fill::Zeroed => System.alloc_zeroed(layout),
                    }
                }
            }
            // Fresh pages are zeroed whether that was asked for or not.
            HostDriverKind::Mmap => map_pages(request.bytes, request.align)?,
        };
        let pointer = NonNull::new(pointer).ok_or(DriverError::OutOfMemory)?;
        Ok(Address(pointer.as_ptr().expose_provenance() as u64))
    }

    unsafe fn free(&self, block: DriverBlock) -> Result<(), DriverError> {
        let pointer = std::ptr::with_exposed_provenance_mut::<u8>(block.address.0 as usize);
        // A foreign block was made by the system allocator, before the cache was installed.
        if self.kind == HostDriverKind::System || block.origin == Origin::Foreign {
            let layout = layout_of(block.bytes, block.align)?;
            // SAFETY: the caller guarantees that the block came from the system allocator with this
            // layout and is not used any more.
            unsafe { System.dealloc(pointer, layout) };
            return Ok(());
        }
        // SAFETY: the caller guarantees that these pages were mapped by `alloc` and are not used
        // any more.
        let unmapped = unsafe { libc::munmap(pointer.cast(), page_bytes_of(block.bytes)?) };
        match unmapped {
            0 => Ok(()),
            _ => Err(last_error("munmap")),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
        parse_available_bytes(&meminfo)
    }
}

fn layout_of(bytes: u64, align: u64) -> Result<Layout, DriverError> {
    let size = usize::try_from(bytes).ok();
    let align = usize::try_from(align).ok();
    size.zip(align).and_then(|(size, align)| Layout::from_size_align(size, align).ok()).ok_or_else(
        || DriverError::Failed {
            code: -1,
            message: format!("{bytes} bytes aligned to {align:?} is not a valid layout"),
        },
    )
}

fn page_bytes_of(bytes: u64) -> Result<usize, DriverError> {
    bytes
        .checked_next_multiple_of(PAGE_BYTES)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or(DriverError::OutOfMemory)
}

/// Maps pages at an alignment that may be more than a page.
fn map_pages(bytes: u64, align: u64) -> Result<*mut u8, DriverError> {
    let wanted = page_bytes_of(bytes)?;
    let align = usize::try_from(align.max(PAGE_BYTES)).map_err(|_| DriverError::OutOfMemory)?;
    let slack = align - PAGE_BYTES as usize;
    let mapped = wanted.checked_add(slack).ok_or(DriverError::OutOfMemory)?;
    // SAFETY: an anonymous mapping at an address that the kernel chooses touches no memory in use.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            mapped,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOMEM) => Err(DriverError::OutOfMemory),
            _ => Err(last_error("mmap")),
        };
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(align);
    let after = slack - before;
    // SAFETY: `before` and `after` lie within the mapping and are whole pages on either side of the
    // part that is handed out; nobody knows of them.
    unsafe {
        let block = start.add(before);
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        if after > 0 {
            libc::munmap(block.add(wanted).cast(), after);
        }
        Ok(block)
    }
}

fn last_error(call: &str) -> DriverError {
    let error = std::io::Error::last_os_error();
    DriverError::Failed {
        code: error.raw_os_error().unwrap_or(-1).into(),
        message: format!("{call}: {error}"),
    }
}

/// The memory that the kernel says is available, from the text of `/proc/meminfo`.
fn parse_available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_kib() {
        let meminfo = "MemTotal:       24000000 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(parse_available_bytes(meminfo), Some(23_000_000 * 1024));
        assert_eq!(parse_available_bytes("MemTotal: 1 kB\n"), None);
        assert_eq!(parse_available_bytes("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn pages_are_mapped_at_large_alignments() {
        let driver = HostDriver::new(HostDriverKind::Mmap);
        for align in [1, 4096, 1 << 16, 1 << 21] {
            let request = DriverRequest {
                bytes: 5000,
                align,
                fill: Fill::Zeroed,
                stream: super::super::DriverStream::HOST,
                window: super::super::Window::Eager,
            };
            let address = driver.alloc(request).unwrap();
            assert_eq!(address.0 % align.max(4096), 0);
            let pointer = std::ptr::with_exposed_provenance_mut::<u8>(address.0 as usize);
            // SAFETY: 5,000 bytes were mapped there, readable and writable, and are freed below.
            unsafe {
                assert!((0..5000).all(|i| pointer.add(i).read() == 0));
                pointer.write_bytes(7, 5000);
                let block = DriverBlock {
                    address,
                    bytes: 5000,
                    align,
                    stream: request.stream,
                    origin: Origin::Cache,
                };
                driver.free(block).unwrap();
            }
        }
    }
}
