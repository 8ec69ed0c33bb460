//! Stream capture and graphs: while a stream is captured, work on it is recorded; launching the
//! graph does it, in the order of recording.

use std::cell::Cell;
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::{Arc, MutexGuard};

use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::release::release;
use crate::state::capture::{Capture, Executable, Graph};
use crate::state::{PER_THREAD, State, Stream, code_of, enter, is_special};

pub(crate) fn id_of(state: &State, stream: usize) -> Option<u64> {
    state.streams.get(&stream)?.capture.as_ref().map(Capture::id)
}

/// If the stream is captured, invalidates the capture and says so.
pub(crate) fn invalidate_if_capturing(state: &mut State, stream: usize) -> bool {
    match state.streams.get_mut(&stream).and_then(|stream| stream.capture.as_mut()) {
        Some(capture) => {
            capture.invalidate();
            true
        }
        None => false,
    }
}

/// Invalidates every capture, as a call that no capture allows does; says whether there was one.
pub(crate) fn invalidate_all(state: &mut State) -> bool {
    let captures = state.streams.values_mut().filter_map(|stream| stream.capture.as_mut());
    captures.map(Capture::invalidate).count() > 0
}

/// Does work on a stream: at once, or recorded where the stream is captured.
pub(crate) fn submit(
    call: &str,
    mut state: MutexGuard<'_, State>,
    stream: usize,
    work: impl Fn() + Send + Sync + 'static,
) -> Result<(), Code> {
    if let Some(capture) = state.streams.get_mut(&stream).and_then(|s| s.capture.as_mut()) {
        return if capture.record(Arc::new(work)) {
            Ok(())
        } else {
            Err(code::CAPTURE_INVALIDATED)
        };
    }
    if is_special(stream) && stream != PER_THREAD && invalidate_all(&mut state) {
        state.violate(format!("{call}: the null stream is used during a capture"));
        return Err(code::CAPTURE_UNSUPPORTED);
    }
    drop(state);
    work();
    Ok(())
}

/// Gives memory of a graph back that nothing else has been made with.
fn release_orphans(state: &mut State, gone: &Graph) {
    for &address in &gone.owned {
        let executables = state.executables.values().map(|executable| &executable.graph);
        let held =
            state.graphs.values().chain(executables).any(|graph| graph.owned.contains(&address));
        if !held && state.blocks.get(&address).is_some_and(|block| block.of_graph) {
            release(state, address);
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamBeginCapture_v2(stream: usize, _mode: c_uint) -> Code {
    code_of(enter("cuStreamBeginCapture").and_then(|mut state| {
        state.check_stream("cuStreamBeginCapture", stream)?;
        let id = state.new_handle() as u64;
        if stream == PER_THREAD {
            // It is known for as long as it is captured, and of one thread at a time.
            let context = crate::state::CURRENT.get();
            state.streams.entry(stream).or_insert(Stream { context, ..Stream::default() });
        }
        let Some(found) = state.streams.get_mut(&stream) else {
            return Err(code::CAPTURE_UNSUPPORTED);
        };
        if found.capture.is_some() {
            return Err(code::ILLEGAL_STATE);
        }
        found.capture = Some(Capture::new(id));
        COUNTERS.capture_begin.add();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> Code {
    code_of(enter("cuStreamEndCapture").and_then(|mut state| {
        state.check_stream("cuStreamEndCapture", stream)?;
        let capture = state.streams.get_mut(&stream).and_then(|stream| stream.capture.take());
        let Some(capture) = capture else { return Err(code::ILLEGAL_STATE) };
        COUNTERS.capture_end.add();
        if stream == PER_THREAD {
            state.streams.remove(&PER_THREAD);
        }
        let (handle, result) = match capture.end() {
            Ok(recorded) => {
                let handle = state.new_handle();
                state.graphs.insert(handle, recorded);
                (handle, Ok(()))
            }
            Err(lost) => {
                release_orphans(&mut state, &lost);
                (0, Err(code::CAPTURE_INVALIDATED))
            }
        };
        // SAFETY: the caller passes a place for one handle.
        unsafe { graph.write(handle) };
        result
    }))
}

/// The mode is kept for the thread and changes nothing: the stand-in refuses the same calls in all
/// of them, on the captured stream and, without a stream, at any time.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> Code {
    thread_local! {
        static MODE: Cell<c_uint> = const { Cell::new(0) };
    }
    code_of(enter("cuThreadExchangeStreamCaptureMode").map(|_| {
        // SAFETY: the caller passes a readable mode, and takes the one before.
        unsafe { mode.write(MODE.replace(mode.read())) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_uint) -> Code {
    code_of(enter("cuStreamIsCapturing").and_then(|mut state| {
        state.check_stream("cuStreamIsCapturing", stream)?;
        let capture = state.streams.get(&stream).and_then(|stream| stream.capture.as_ref());
        let answer = match capture {
            None => 0,
            Some(capture) if capture.is_valid() => 1,
            Some(_) => 2,
        };
        // SAFETY: the caller passes a place for one enumerator.
        unsafe { status.write(answer) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut usize,
    graph: usize,
    _flags: c_ulonglong,
) -> Code {
    code_of(enter("cuGraphInstantiate").and_then(|mut state| {
        let Some(recorded) = state.graphs.get(&graph).cloned() else {
            state.violate(format!("cuGraphInstantiate: graph {graph:#x} does not exist"));
            return Err(code::INVALID_HANDLE);
        };
        let handle = state.new_handle();
        state.executables.insert(handle, Executable { graph: recorded, launched: false });
        COUNTERS.graph_instantiate.add();
        // SAFETY: the caller passes a place for one handle.
        unsafe { executable.write(handle) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> Code {
    code_of(enter("cuGraphLaunch").and_then(|mut state| {
        state.check_stream("cuGraphLaunch", stream)?;
        let Some(found) = state.executables.get_mut(&executable) else {
            state.violate(format!("cuGraphLaunch: graph {executable:#x} does not exist"));
            return Err(code::INVALID_HANDLE);
        };
        // The memory that the launch before has left allocated would be allocated once more. (It is
        // refused even where the program has freed it since, which a real driver allows.)
        if std::mem::replace(&mut found.launched, true) && !found.graph.unfreed.is_empty() {
            return Err(code::INVALID_VALUE);
        }
        let work = found.graph.work.clone();
        COUNTERS.graph_launch.add();
        drop(state);
        for piece in work {
            piece();
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphUpload(_executable: usize, _stream: usize) -> Code {
    code_of(enter("cuGraphUpload").map(|_| ()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphExecDestroy(executable: usize) -> Code {
    code_of(enter("cuGraphExecDestroy").and_then(|mut state| {
        COUNTERS.graph_destroy.add();
        let gone = state.executables.remove(&executable).ok_or(code::INVALID_HANDLE)?;
        release_orphans(&mut state, &gone.graph);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphDestroy(graph: usize) -> Code {
    code_of(enter("cuGraphDestroy").and_then(|mut state| {
        let gone = state.graphs.remove(&graph).ok_or(code::INVALID_HANDLE)?;
        release_orphans(&mut state, &gone);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGraphGetNodes(
    graph: usize,
    _nodes: *mut c_void,
    count: *mut usize,
) -> Code {
    code_of(enter("cuGraphGetNodes").and_then(|state| {
        let found = state.graphs.get(&graph).ok_or(code::INVALID_HANDLE)?;
        // SAFETY: the caller passes a place for one size.
        unsafe { count.write(found.work.len() + found.owned.len()) };
        Ok(())
    }))
}
