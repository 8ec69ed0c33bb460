//! What a test sets and reads. None of these names exists in a real driver.

use std::ffi::{CStr, c_char, c_int};

use crate::counters::COUNTERS;
use crate::state::lock;

/// The value of a counter or gauge by its name in the report, -1 for an unknown one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn standin_counter(name: *const c_char) -> i64 {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let state = lock();
    match name {
        b"live_blocks" => return state.blocks.len() as i64,
        b"live_bytes" => return state.live_bytes as i64,
        b"reserved_bytes" => return state.reserved_bytes() as i64,
        b"peak_bytes" => return state.peak_bytes as i64,
        _ => {}
    }
    let all = COUNTERS.all();
    all.iter().find(|(known, _)| known.as_bytes() == name).map_or(-1, |(_, value)| *value as i64)
}

/// Copies the whole report into `buffer`, cut to fit and ended by a 0; returns its length.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn standin_report(buffer: *mut c_char, len: usize) -> usize {
    let text = lock().render_report();
    if len > 0 {
        let fit = text.len().min(len - 1);
        // SAFETY: the caller passes `len` writable characters.
        unsafe {
            buffer.copy_from(text.as_ptr().cast(), fit);
            buffer.add(fit).write(0);
        }
    }
    text.len()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn standin_set_capacity(bytes: u64) {
    lock().settings.capacity_bytes = bytes;
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn standin_refuse_allocs(count: u64) {
    lock().refuse_allocs = count;
}

/// What every question about an event is answered with, a `CUresult`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn standin_answer_event_queries(code: c_int) {
    lock().event_answer = code;
}

/// Whether a refused allocation also fails the next synchronisation of its stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn standin_set_sticky_errors(on: c_int) {
    lock().sticky_errors = on != 0;
}

/// Ends the driver, as the end of the process does.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn standin_shut_down() {
    lock().shut_down();
}
