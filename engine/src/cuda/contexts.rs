//! The contexts that the program has used, each under a number of its own.
//!
//! A driver may give a new context the handle of one that is gone. The cache must not take the two
//! for one, so it knows contexts by numbers that are never used again: they are the `device` of its
//! streams.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use super::calls;

#[derive(Debug, Clone, Copy)]
struct Context {
    handle: usize,
    /// The device, for a primary context that was retained through the hooks.
    primary_of: Option<c_int>,
    retained: u32,
    alive: bool,
    /// A stream beside the program's, for what must stay out of a capture; 0 until it is needed.
    aside: usize,
}

static CONTEXTS: Mutex<Vec<Context>> = Mutex::new(Vec::new());

fn contexts() -> MutexGuard<'static, Vec<Context>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of a context; one that is new, or that has the handle of one that is gone, gets the
/// next.
pub(super) fn number_of(handle: usize) -> u32 {
    let mut contexts = contexts();
    if let Some(known) = contexts.iter().position(|known| known.alive && known.handle == handle) {
        return known as u32;
    }
    contexts.push(Context { handle, primary_of: None, retained: 0, alive: true, aside: 0 });
    (contexts.len() - 1) as u32
}

/// The number of the context that is current in this thread; `None` where none is.
pub(super) fn current() -> Option<u32> {
    let handle = current_handle();
    (handle != 0).then(|| number_of(handle))
}

/// The number of a stream's context.
pub(super) fn of_stream(stream: usize) -> Option<u32> {
    let mut handle: sys::CUcontext = ptr::null_mut();
    let stream = ptr::with_exposed_provenance_mut::<c_void>(stream).cast();
    // SAFETY: the place is valid; a handle that is no stream is refused with a code.
    let code = unsafe { sys::cuStreamGetCtx(stream, &mut handle) };
    (code == sys::CUresult::CUDA_SUCCESS && !handle.is_null())
        .then(|| number_of(handle.expose_provenance()))
}

/// A device's primary context was retained.
pub(super) fn note_retained(device: c_int, handle: usize) {
    let number = number_of(handle) as usize;
    let mut contexts = contexts();
    contexts[number].primary_of = Some(device);
    contexts[number].retained += 1;
}

/// A device's primary context is about to be released. Returns its number where this is the last
/// time that the program does.
pub(super) fn note_released(device: c_int) -> Option<u32> {
    let mut contexts = contexts();
    let number =
        contexts.iter().position(|known| known.alive && known.primary_of == Some(device))?;
    let context = &mut contexts[number];
    context.retained = context.retained.saturating_sub(1);
    (context.retained == 0).then_some(number as u32)
}

/// The context is about to go: nothing is called in it any more.
pub(super) fn end(number: u32) {
    let aside = {
        let mut contexts = contexts();
        let Some(context) = contexts.get_mut(number as usize) else { return };
        context.alive = false;
        std::mem::take(&mut context.aside)
    };
    if aside != 0 {
        // SAFETY: the stream was created by `aside`, nothing else knows it, and its context lives.
        unsafe { calls::stream_destroy(aside) };
    }
}

pub(super) fn alive() -> Vec<u32> {
    let contexts = contexts();
    (0..).zip(contexts.iter()).filter(|(_, known)| known.alive).map(|(number, _)| number).collect()
}

fn handle_of(number: u32) -> Option<usize> {
    contexts().get(number as usize).filter(|known| known.alive).map(|known| known.handle)
}

fn current_handle() -> usize {
    let mut handle: sys::CUcontext = ptr::null_mut();
    // SAFETY: the place is valid.
    let code = unsafe { sys::cuCtxGetCurrent(&mut handle) };
    if code == sys::CUresult::CUDA_SUCCESS { handle.expose_provenance() } else { 0 }
}

fn set_current(handle: usize) {
    let handle = ptr::with_exposed_provenance_mut::<c_void>(handle).cast();
    // SAFETY: the handle is that of a live context, or null for none.
    unsafe { sys::cuCtxSetCurrent(handle) };
}

/// Does something with the context current, and leaves the thread as it was. `None` where the
/// context is gone.
pub(super) fn within<T>(number: u32, work: impl FnOnce() -> T) -> Option<T> {
    let wanted = handle_of(number)?;
    let before = current_handle();
    if before == wanted {
        return Some(work());
    }
    set_current(wanted);
    let result = work();
    set_current(before);
    Some(result)
}

/// The stream beside the program's, of the context that is current. Nothing but memory is asked for
/// on it, so it is never captured.
///
/// # Errors
/// The driver's code.
pub(super) fn aside(number: u32) -> Result<usize, c_int> {
    if let Some(known) = contexts().get(number as usize).filter(|known| known.aside != 0) {
        return Ok(known.aside);
    }
    let mut stream: sys::CUstream = ptr::null_mut();
    // SAFETY: the place is valid; 1 is `CU_STREAM_NON_BLOCKING`.
    let code = unsafe { sys::cuStreamCreate(&mut stream, 1 as c_uint) };
    if code != sys::CUresult::CUDA_SUCCESS {
        return Err(code as c_int);
    }
    let created = stream.expose_provenance();
    let mut contexts = contexts();
    let Some(context) = contexts.get_mut(number as usize) else { return Ok(created) };
    if context.aside == 0 {
        context.aside = created;
        return Ok(created);
    }
    let known = context.aside;
    drop(contexts);
    // SAFETY: another thread was first; nothing knows the stream that was just created.
    unsafe { calls::stream_destroy(created) };
    Ok(known)
}
