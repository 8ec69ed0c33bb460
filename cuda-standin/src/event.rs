//! Events. Work is done at once, so a recorded event has always happened; what is kept is only the
//! capture that it was recorded in.

use std::ffi::c_uint;

use crate::capture;
use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::state::{State, code_of, enter, enter_context};

fn check(state: &mut State, call: &str, event: usize) -> Result<(), Code> {
    if state.events.contains_key(&event) {
        return Ok(());
    }
    state.violate(format!("{call}: event {event:#x} does not exist (any more)"));
    Err(code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuEventCreate(event: *mut usize, _flags: c_uint) -> Code {
    code_of(enter_context("cuEventCreate").map(|(mut state, _)| {
        let handle = state.new_handle();
        state.events.insert(handle, None);
        COUNTERS.event_create.add();
        // SAFETY: the caller passes a place for one handle.
        unsafe { event.write(handle) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventDestroy_v2(event: usize) -> Code {
    code_of(enter("cuEventDestroy").and_then(|mut state| {
        check(&mut state, "cuEventDestroy", event)?;
        state.events.remove(&event);
        COUNTERS.event_destroy.add();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventRecord(event: usize, stream: usize) -> Code {
    code_of(enter("cuEventRecord").and_then(|mut state| {
        check(&mut state, "cuEventRecord", event)?;
        state.check_stream("cuEventRecord", stream)?;
        let capture = capture::id_of(&state, stream);
        state.events.insert(event, capture);
        COUNTERS.event_record.add();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> Code {
    code_of(enter("cuStreamWaitEvent").and_then(|mut state| {
        check(&mut state, "cuStreamWaitEvent", event)?;
        state.check_stream("cuStreamWaitEvent", stream)?;
        // Waiting within a capture for what was recorded outside of it breaks the capture's
        // isolation; candle's event tracking does just that.
        if capture::id_of(&state, stream) != state.events[&event]
            && capture::invalidate_if_capturing(&mut state, stream)
        {
            state.violate("cuStreamWaitEvent: the event is not from this capture".to_owned());
            return Err(code::CAPTURE_ISOLATION);
        }
        COUNTERS.event_wait.add();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventSynchronize(event: usize) -> Code {
    code_of(
        enter("cuEventSynchronize")
            .and_then(|mut state| check(&mut state, "cuEventSynchronize", event)),
    )
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventQuery(event: usize) -> Code {
    code_of(enter("cuEventQuery").and_then(|mut state| {
        check(&mut state, "cuEventQuery", event)?;
        match state.event_answer {
            code::SUCCESS => Ok(()),
            code => Err(code),
        }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuEventElapsedTime_v2(
    ms: *mut f32,
    start: usize,
    end: usize,
) -> Code {
    code_of(enter("cuEventElapsedTime").and_then(|mut state| {
        check(&mut state, "cuEventElapsedTime", start)?;
        check(&mut state, "cuEventElapsedTime", end)?;
        // SAFETY: the caller passes a place for one float.
        unsafe { ms.write(0.0) };
        Ok(())
    }))
}
