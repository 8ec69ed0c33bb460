//! Bytes that begin at the border of a cache line, in huge pages where there are many.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Border that the bytes begin at.
const ALIGNMENT: usize = 64;

/// Bytes of a fixed number.
pub(in crate::model) struct Buffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes, as a `Vec` does.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeros.
    pub(in crate::model) fn zeroed(len: usize) -> Self {
        let Some(layout) = Self::layout(len) else {
            return Self { start: NonNull::dangling(), len: 0 };
        };
        // SAFETY: the layout is not empty.
        match NonNull::new(unsafe { alloc_zeroed(layout) }) {
            Some(start) => {
                ask_for_huge_pages(start, len);
                Self { start, len }
            }
            None => handle_alloc_error(layout),
        }
    }

    /// `None` where nothing is allocated.
    fn layout(len: usize) -> Option<Layout> {
        let layout = Layout::from_size_align(len, ALIGNMENT).expect("less than the address space");
        (len > 0).then_some(layout)
    }

    pub(in crate::model) fn bytes(&self) -> &[u8] {
        // SAFETY: there are so many bytes, which were zeroed, or none at a dangling pointer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(in crate::model) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `bytes`, and they are borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Asks for pages of 2 MiB where they fit wholly, so that reading all weights once a token does not
/// wait for page tables. They take no more memory: what is not a whole huge page stays as it was.
fn ask_for_huge_pages(start: NonNull<u8>, len: usize) {
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let at = start.as_ptr() as usize;
        let (first, end) = (at.next_multiple_of(HUGE), (at + len) / HUGE * HUGE);
        if first < end {
            // SAFETY: the range lies within the allocation, and the advice changes no byte of it.
            // Where it is not taken, nothing but speed is lost.
            unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.len) {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
