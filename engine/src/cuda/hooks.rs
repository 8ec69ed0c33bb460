//! The driver's memory functions as the program calls them.
//!
//! The linker binds candle's calls to the functions of these names. Until a cache is published, and
//! with the kill switch, they hand every call on as it is and count it. What a block belongs to
//! (stream, context, pool, graph) is told to the cache before the driver lets go of it.
//!
//! Each function is called with the arguments of the driver function of its name, under that
//! function's conditions; its result is a `CUresult`.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::ptr;

use super::calls::{self, Handle, Stream};
use super::codes::{
    DEINITIALIZED, ILLEGAL_STATE, INVALID_VALUE, OUT_OF_MEMORY, STREAM_CAPTURE_INVALIDATED, SUCCESS,
};
use super::driver::{NO_STREAM, take_last_free};
use super::installed::{self, CudaCache, Route, route};
use super::passed::PASSED;
use super::window::{self, GRAPHS, Opening};
use super::{contexts, failure, outside, streams};
use crate::alloc::driver::{Address, AllocError, Driver as _, DriverError, Fill};
use crate::alloc::stats::Bypass;
use crate::alloc::{FreeRequest, Freed, Request, StreamKey};

/// Serves an allocation from the cache, and writes the address.
///
/// # Safety
/// The place is valid.
#[inline]
unsafe fn serve(cache: &CudaCache, address: *mut u64, bytes: usize, stream: StreamKey) -> c_int {
    let request = Request { bytes: bytes as u64, align: 1, fill: Fill::Any, stream };
    match cache.alloc(request) {
        Ok(allocation) => {
            // SAFETY: the caller's place is valid.
            unsafe { address.write(allocation.address.0) };
            SUCCESS
        }
        Err(error) => refuse(error),
    }
}

/// The code for an error; the error itself is kept for whoever asks.
#[cold]
fn refuse(error: AllocError) -> c_int {
    let code = match &error {
        AllocError::Driver { source: DriverError::Failed { code, .. }, .. } if *code > 0 => {
            c_int::try_from(*code).unwrap_or(DEINITIALIZED)
        }
        AllocError::Driver { .. } => DEINITIALIZED,
        AllocError::RequestTooLarge { .. }
        | AllocError::OutOfMemory { .. }
        | AllocError::CapExceeded { .. } => OUT_OF_MEMORY,
    };
    failure::remember(error);
    code
}

/// Gives a block back to the cache.
///
/// # Safety
/// Nobody uses the block after what the stream does now.
#[inline]
unsafe fn give_back(cache: &CudaCache, address: u64, stream: StreamKey) -> c_int {
    let free = FreeRequest { address: Address(address), stream, bytes: 0, align: 0 };
    // SAFETY: the caller gives the same guarantees.
    match unsafe { cache.free(free) } {
        Freed::Own | Freed::Ignored | Freed::Empty => SUCCESS,
        // The driver's own answer.
        Freed::Foreign => take_last_free(),
        Freed::Double => INVALID_VALUE,
    }
}

/// Writes the address of an allocation that was handed on.
///
/// # Safety
/// The place is valid.
unsafe fn hand_over(address: *mut u64, result: Result<u64, c_int>) -> c_int {
    match result {
        Ok(found) => {
            // SAFETY: the caller's place is valid.
            unsafe { address.write(found) };
            SUCCESS
        }
        Err(code) => code,
    }
}

/// Hands an allocation on that the cache does not keep. Where there is no memory, what is idle in the
/// cache is given back first.
fn alloc_beside(cache: &CudaCache, alloc: impl Fn() -> Result<u64, c_int>) -> Result<u64, c_int> {
    let mut result = alloc();
    if result == Err(OUT_OF_MEMORY) && !outside::is_open() {
        cache.flush();
        if cache.synchronize() {
            cache.driver().trim();
        }
        result = alloc();
    }
    if result.is_ok() {
        cache.count_bypass(Bypass::Stream);
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Stream) -> c_int {
    let raw = stream.addr();
    let result = match route() {
        Route::Serve(cache) => match streams::cacheable(cache, raw) {
            // SAFETY: the caller's place is valid.
            Some(key) => return unsafe { serve(cache, address, bytes, key) },
            None => alloc_beside(cache, || calls::alloc_async(bytes, raw)),
        },
        Route::PassThrough => PASSED.alloc(|| calls::alloc_async(bytes, raw)),
        Route::Closed => Err(DEINITIALIZED),
    };
    // SAFETY: the caller's place is valid.
    unsafe { hand_over(address, result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    let result = match route() {
        Route::Serve(cache) => match contexts::current() {
            Some(context) => {
                let key = streams::key_of(cache, context, NO_STREAM);
                // SAFETY: the caller's place is valid.
                return unsafe { serve(cache, address, bytes, key) };
            }
            // The driver says what is wrong without a context.
            None => calls::alloc(bytes),
        },
        Route::PassThrough => PASSED.alloc(|| calls::alloc(bytes)),
        Route::Closed => Err(DEINITIALIZED),
    };
    // SAFETY: the caller's place is valid.
    unsafe { hand_over(address, result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: Stream) -> c_int {
    let raw = stream.addr();
    match route() {
        Route::Serve(cache) => match streams::any(cache, raw) {
            // SAFETY: the caller gives the same guarantees.
            Some(key) => unsafe { give_back(cache, address, key) },
            // The driver says what is wrong with the stream.
            // SAFETY: as above.
            None => unsafe { calls::free_async(address, raw) },
        },
        // SAFETY: as above.
        Route::PassThrough => PASSED.free(|| unsafe { calls::free_async(address, raw) }),
        Route::Closed => SUCCESS,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    let cache = match route() {
        Route::Serve(cache) => cache,
        // SAFETY: the caller gives the same guarantees.
        Route::PassThrough => return PASSED.free(|| unsafe { calls::free(address) }),
        Route::Closed => return SUCCESS,
    };
    let key = match cache.lookup(Address(address)) {
        Some(block) => {
            // Callers rely on the driver's waiting for the device before it frees, and what is kept
            // here may be handed out at once.
            if !cache.synchronize() && !cache.wait_at_end_of_capture() {
                cache.never_keep(Address(address));
            }
            block.stream
        }
        None => match contexts::current() {
            Some(context) => streams::key_of(cache, context, NO_STREAM),
            // SAFETY: the caller gives the same guarantees.
            None => return unsafe { calls::free(address) },
        },
    };
    // SAFETY: the caller gives the same guarantees.
    unsafe { give_back(cache, address, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy_v2(stream: Stream) -> c_int {
    match route() {
        Route::Serve(cache) => {
            // A captured stream takes its capture with it.
            if window::is_of(stream.addr()) {
                let mut graph = ptr::null_mut();
                // SAFETY: the place is valid; a graph that was made is nobody else's.
                unsafe {
                    if calls::end_capture(stream, &mut graph) == SUCCESS && !graph.is_null() {
                        calls::graph_destroy(graph);
                    }
                }
                window::give_up();
            }
            outside::note(stream.addr(), false);
            streams::end(cache, stream.addr());
        }
        Route::PassThrough => {}
        Route::Closed => return SUCCESS,
    }
    // SAFETY: the caller gives the same guarantees.
    unsafe { calls::stream_destroy(stream.expose_provenance()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> c_int {
    if matches!(route(), Route::Closed) {
        return DEINITIALIZED;
    }
    // SAFETY: the caller's place is valid.
    let code = unsafe { calls::primary_retain(context, device) };
    if code == SUCCESS {
        // SAFETY: the driver has just written the handle.
        contexts::note_retained(device, unsafe { context.read() }.expose_provenance());
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    if matches!(route(), Route::Closed) {
        return SUCCESS;
    }
    if let Some(context) = contexts::note_released(device) {
        end_context(context);
    }
    // SAFETY: the caller gives the same guarantees.
    unsafe { calls::primary_release(device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxDestroy_v2(context: Handle) -> c_int {
    if matches!(route(), Route::Closed) {
        return SUCCESS;
    }
    if !context.is_null() {
        end_context(contexts::number_of(context.expose_provenance()));
    }
    // SAFETY: the caller gives the same guarantees.
    unsafe { calls::context_destroy(context) }
}

/// Gives back what belongs to a context while it is still there.
fn end_context(context: u32) {
    if let Some(cache) = installed::cache() {
        cache.destroy_device(context);
        streams::forget_all();
    }
    contexts::end(context);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolDestroy(pool: Handle) -> c_int {
    // Which of the blocks are this pool's is not known: idle ones are given back while it is there,
    // and none that is handed out is kept when its time comes, so that nothing of a pool that is gone
    // is ever served again.
    match route() {
        Route::Serve(cache) => {
            cache.flush();
            cache.keep_no_live_block();
        }
        Route::PassThrough => {}
        Route::Closed => return SUCCESS,
    }
    // SAFETY: the caller gives the same guarantees.
    unsafe { calls::pool_destroy(pool) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2(stream: Stream, mode: c_uint) -> c_int {
    let opening = match route() {
        Route::Serve(cache) => window::open(cache, stream.addr()),
        Route::PassThrough => {
            // SAFETY: the caller gives the same guarantees.
            return unsafe { calls::begin_capture(stream, mode) };
        }
        Route::Closed => return DEINITIALIZED,
    };
    match opening {
        Opening::Busy => return ILLEGAL_STATE,
        Opening::Outside => outside::note(stream.addr(), true),
        Opening::Opened => {}
    }
    // SAFETY: the caller gives the same guarantees.
    let code = unsafe { calls::begin_capture(stream, mode) };
    match opening {
        _ if code == SUCCESS => {}
        Opening::Opened => window::give_up(),
        Opening::Outside | Opening::Busy => outside::note(stream.addr(), false),
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: Stream, graph: *mut Handle) -> c_int {
    if matches!(route(), Route::Closed) {
        return DEINITIALIZED;
    }
    // SAFETY: the caller's place is valid.
    let code = unsafe { calls::end_capture(stream, graph) };
    outside::note(stream.addr(), false);
    if !window::is_of(stream.addr()) {
        return code;
    }
    // SAFETY: the driver has written the handle where it returned success.
    let made = if code == SUCCESS { unsafe { graph.read() } } else { ptr::null_mut() };
    if made.is_null() {
        window::give_up();
        return code;
    }
    let streams =
        installed::cache().map_or_else(Vec::new, |cache| streams::of_work(cache, stream.addr()));
    if window::close(made.expose_provenance(), &streams).is_ok() {
        return code;
    }
    // The graph would use memory that nothing keeps: it must not be launched.
    // SAFETY: the graph was just made and nobody else has it; the place is valid.
    unsafe {
        calls::graph_destroy(made);
        graph.write(ptr::null_mut());
    }
    STREAM_CAPTURE_INVALIDATED
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut Handle,
    graph: Handle,
    flags: c_ulonglong,
) -> c_int {
    if matches!(route(), Route::Closed) {
        return DEINITIALIZED;
    }
    // SAFETY: the caller's place is valid.
    let code = unsafe { calls::instantiate(executable, graph, flags) };
    if code == SUCCESS {
        // SAFETY: the driver has just written the handle.
        let made = unsafe { executable.read() };
        GRAPHS.note_executable(graph.addr(), made.addr());
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecDestroy(executable: Handle) -> c_int {
    if matches!(route(), Route::Closed) {
        return SUCCESS;
    }
    let gone = GRAPHS.take_executable(executable.addr());
    // SAFETY: the caller gives the same guarantees.
    let code = unsafe { calls::executable_destroy(executable) };
    GRAPHS.end(gone);
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphDestroy(graph: Handle) -> c_int {
    if matches!(route(), Route::Closed) {
        return SUCCESS;
    }
    let gone = GRAPHS.take_graph(graph.addr());
    // SAFETY: the caller gives the same guarantees.
    let code = unsafe { calls::graph_destroy(graph) };
    GRAPHS.end(gone);
    code
}
