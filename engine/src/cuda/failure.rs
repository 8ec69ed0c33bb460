//! The last refused allocation, in full.
//!
//! A hook can only return a code, which candle turns into "out of memory". What was requested, and
//! what the cache held then, is kept here for the program's own message.

use std::sync::{Mutex, PoisonError};

use crate::alloc::driver::AllocError;

static LAST: Mutex<Option<AllocError>> = Mutex::new(None);

pub(super) fn remember(error: AllocError) {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
}

/// The last allocation that was refused, of any thread.
pub fn last_failure() -> Option<AllocError> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
