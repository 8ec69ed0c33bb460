//! A buffer that the threads of a region write disjoint parts of.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice whose parts are handed out by whoever knows that they do not overlap.
#[derive(Debug)]
pub(in crate::model) struct Share<'a, T> {
    base: *mut T,
    len: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Share<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Share<'_, T> {}

// SAFETY: it is an exclusive borrow of a slice, whose parts go to one thread at a time, as the
// callers of its functions vouch.
unsafe impl<T: Send + Sync> Sync for Share<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Share<'_, T> {}

impl<'a, T> Share<'a, T> {
    /// Borrows `slice` for as long as parts of it are used.
    pub(in crate::model) fn new(slice: &'a mut [T]) -> Self {
        Self { base: slice.as_mut_ptr(), len: slice.len(), borrowed: PhantomData }
    }

    /// A part to be written.
    ///
    /// # Safety
    /// While the part is used, nobody else uses an element of it.
    #[allow(clippy::mut_from_ref, reason = "that is what the type is for")]
    pub(in crate::model) unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range lies within the slice, and the caller vouches that it is not shared.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.len()) }
    }

    /// A part to be read.
    ///
    /// # Safety
    /// While the part is used, nobody writes an element of it.
    pub(in crate::model) unsafe fn read(&self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range lies within the slice, and the caller vouches that it is not written.
        unsafe { std::slice::from_raw_parts(self.base.add(range.start), range.len()) }
    }

    /// Everything, to be read.
    ///
    /// # Safety
    /// While it is used, nobody writes an element.
    pub(in crate::model) unsafe fn all(&self) -> &'a [T] {
        // SAFETY: as the caller vouches.
        unsafe { self.read(0..self.len) }
    }
}
