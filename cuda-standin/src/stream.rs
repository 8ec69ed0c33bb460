//! Streams. Work is done at once, so a synchronisation only trims pools and hands out what went
//! wrong before.

use std::ffi::{c_int, c_uint};

use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::state::{State, Stream, code_of, enter, enter_context, is_special};

fn create(state: &mut State, context: usize) -> usize {
    let handle = state.stream_handles.pop().unwrap_or_else(|| state.new_handle());
    state.streams.insert(handle, Stream { context, ..Stream::default() });
    COUNTERS.stream_create.add();
    handle
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamCreate(stream: *mut usize, _flags: c_uint) -> Code {
    code_of(enter_context("cuStreamCreate").map(|(mut state, context)| {
        // SAFETY: the caller passes a place for one handle.
        unsafe { stream.write(create(&mut state, context)) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut usize,
    flags: c_uint,
    _priority: c_int,
) -> Code {
    // SAFETY: the caller's promises are those of `cuStreamCreate`.
    unsafe { cuStreamCreate(stream, flags) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamDestroy_v2(stream: usize) -> Code {
    code_of(enter("cuStreamDestroy").and_then(|mut state| {
        if is_special(stream) {
            return Err(code::INVALID_HANDLE);
        }
        state.check_stream("cuStreamDestroy", stream)?;
        state.streams.remove(&stream);
        state.stream_handles.push(stream);
        COUNTERS.stream_destroy.add();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamSynchronize(stream: usize) -> Code {
    code_of(enter("cuStreamSynchronize").and_then(|mut state| {
        state.check_stream("cuStreamSynchronize", stream)?;
        COUNTERS.stream_sync.add();
        if let Some(found) = state.streams.get_mut(&stream) {
            if let Some(capture) = found.capture.as_mut() {
                capture.invalidate();
                state.violate("cuStreamSynchronize: the stream is captured".to_owned());
                return Err(code::CAPTURE_UNSUPPORTED);
            }
            if let Some(pending) = found.pending_error.take() {
                return Err(pending);
            }
        }
        for pool in state.pools.values_mut() {
            pool.shrink_to_threshold();
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamQuery(stream: usize) -> Code {
    code_of(
        enter("cuStreamQuery").and_then(|mut state| state.check_stream("cuStreamQuery", stream)),
    )
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamGetCtx(stream: usize, context: *mut usize) -> Code {
    code_of(enter("cuStreamGetCtx").and_then(|mut state| {
        state.check_stream("cuStreamGetCtx", stream)?;
        let current = crate::state::CURRENT.get();
        let found = state.streams.get(&stream).map_or(current, |stream| stream.context);
        // SAFETY: the caller passes a place for one handle.
        unsafe { context.write(found) };
        Ok(())
    }))
}
