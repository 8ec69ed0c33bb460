//! Bytes that begin at the border of a cache line, in huge pages where there are many.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::host::ask_for_huge_pages;

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
                ask_for_huge_pages(start.as_ptr(), len);
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
