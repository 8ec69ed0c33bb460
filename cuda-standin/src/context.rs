//! Initialisation, devices and contexts.

use std::ffi::{c_int, c_uint, c_void};

use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::state::{
    CURRENT, Context, Phase, State, code_of, enter, enter_context, is_special, lock,
};

fn primary_handle(device: i32) -> usize {
    0x1000 + (device as usize) * 16
}

/// Ends a context: its streams go, and what was not freed ends with it.
fn end_context(state: &mut State, context: usize) {
    state.contexts.remove(&context);
    let blocks: Vec<u64> = state
        .blocks
        .iter()
        .filter(|(_, block)| block.context == context)
        .map(|(&address, _)| address)
        .collect();
    for address in blocks {
        COUNTERS.ended_with_context.add();
        crate::release::release(state, address);
    }
    let streams: Vec<usize> = state
        .streams
        .iter()
        .filter(|(_, stream)| stream.context == context)
        .map(|(&handle, _)| handle)
        .collect();
    for handle in streams {
        state.streams.remove(&handle);
        if !is_special(handle) {
            state.stream_handles.push(handle);
        }
    }
    COUNTERS.context_destroy.add();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuInit(_flags: c_uint) -> Code {
    let mut state = lock();
    match state.phase {
        Phase::Fresh => state.phase = Phase::Running,
        Phase::Running => {}
        Phase::ShutDown => {
            state.violate("cuInit: called after shutdown".to_owned());
            return code::DEINITIALIZED;
        }
    }
    code::SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Code {
    code_of(enter("cuDeviceGetCount").map(|state| {
        // SAFETY: the caller passes a place for one int.
        unsafe { count.write(state.settings.devices) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Code {
    code_of(enter("cuDeviceGet").and_then(|state| {
        if ordinal < 0 || ordinal >= state.settings.devices {
            return Err(code::INVALID_DEVICE);
        }
        // SAFETY: the caller passes a place for one int.
        unsafe { device.write(ordinal) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut usize,
    device: c_int,
) -> Code {
    code_of(enter("cuDevicePrimaryCtxRetain").map(|mut state| {
        let handle = primary_handle(device);
        let entry = state.contexts.entry(handle).or_insert_with(|| {
            COUNTERS.context_create.add();
            Context { device, retained: 0 }
        });
        entry.retained += 1;
        // SAFETY: the caller passes a place for one handle.
        unsafe { context.write(handle) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    code_of(enter("cuDevicePrimaryCtxRelease").and_then(|mut state| {
        let handle = primary_handle(device);
        let Some(context) = state.contexts.get_mut(&handle) else {
            state.violate(format!("cuDevicePrimaryCtxRelease: device {device} is not retained"));
            return Err(code::INVALID_CONTEXT);
        };
        context.retained -= 1;
        if context.retained == 0 {
            end_context(&mut state, handle);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxCreate_v4(
    context: *mut usize,
    _params: *mut c_void,
    _flags: c_uint,
    device: c_int,
) -> Code {
    code_of(enter("cuCtxCreate").map(|mut state| {
        let handle = state.new_handle();
        state.contexts.insert(handle, Context { device, retained: 1 });
        COUNTERS.context_create.add();
        CURRENT.set(handle);
        // SAFETY: the caller passes a place for one handle.
        unsafe { context.write(handle) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxDestroy_v2(context: usize) -> Code {
    code_of(enter("cuCtxDestroy").and_then(|mut state| {
        if !state.contexts.contains_key(&context) {
            state.violate(format!("cuCtxDestroy: context {context:#x} does not exist"));
            return Err(code::INVALID_CONTEXT);
        }
        end_context(&mut state, context);
        if CURRENT.get() == context {
            CURRENT.set(0);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> Code {
    code_of(enter("cuCtxGetCurrent").map(|_| {
        // SAFETY: the caller passes a place for one handle.
        unsafe { context.write(CURRENT.get()) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSetCurrent(context: usize) -> Code {
    code_of(enter("cuCtxSetCurrent").and_then(|mut state| {
        if context != 0 && !state.contexts.contains_key(&context) {
            state.violate(format!("cuCtxSetCurrent: context {context:#x} does not exist"));
            return Err(code::INVALID_CONTEXT);
        }
        CURRENT.set(context);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Code {
    code_of(enter_context("cuCtxGetDevice").map(|(state, context)| {
        // SAFETY: the caller passes a place for one int.
        unsafe { device.write(state.contexts[&context].device) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSynchronize() -> Code {
    code_of(enter_context("cuCtxSynchronize").and_then(|(mut state, _)| {
        if crate::capture::invalidate_all(&mut state) {
            state.violate("cuCtxSynchronize: a stream is captured".to_owned());
            return Err(code::CAPTURE_UNSUPPORTED);
        }
        COUNTERS.context_sync.add();
        for pool in state.pools.values_mut() {
            pool.shrink_to_threshold();
        }
        Ok(())
    }))
}
