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
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use super::capture::{self, GRAPHS, Opening};
use super::contexts;
use super::driver::{CudaDriver, NO_STREAM, OUT_OF_MEMORY, SUCCESS, take_last_free};
use super::failure;
use super::streams;
use crate::alloc::driver::{Address, AllocError, Driver as _, DriverError, Fill};
use crate::alloc::stats::Bypass;
use crate::alloc::{Cache, FreeRequest, Freed, Request, StreamKey};

pub(super) use passed::PASSED;

mod passed;
pub(super) mod real;

/// The cache under candle's CUDA backend.
pub type CudaCache = Cache<CudaDriver>;

type Stream = *mut std::ffi::c_void;
type Handle = *mut std::ffi::c_void;

/// The cache that serves the hooks; null for pass-through.
static CACHE: AtomicPtr<CudaCache> = AtomicPtr::new(ptr::null_mut());
/// What the hooks do while there is none: one of [`Unserved`].
static UNSERVED: AtomicU8 = AtomicU8::new(Unserved::NotInstalled as u8);

/// Why no cache serves the hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Unserved {
    /// Nothing was installed yet.
    NotInstalled = 0,
    /// The kill switch.
    Killed = 1,
}

/// Whether the driver must not be called any more: the cache was shut down at the end of the process,
/// or this is a forked child, which shares neither the context nor the threads that may hold a lock.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// What a hook does with a call.
enum Route {
    Serve(&'static CudaCache),
    PassThrough,
    /// Nothing: see [`CLOSED`].
    Closed,
}

#[inline]
fn route() -> Route {
    match cache() {
        Some(cache) if CLOSED.load(Ordering::Relaxed) || cache.is_forked_child() => Route::Closed,
        Some(cache) => Route::Serve(cache),
        None => Route::PassThrough,
    }
}

/// Closes the cache: the hooks call the driver no more.
pub(super) fn close(cache: &CudaCache) {
    cache.shutdown();
    CLOSED.store(true, Ordering::Release);
}

/// The cache that serves the hooks.
#[inline]
pub(super) fn cache() -> Option<&'static CudaCache> {
    // SAFETY: the pointer is null or was published from a leaked box.
    unsafe { CACHE.load(Ordering::Acquire).as_ref() }
}

/// Makes a cache serve the hooks from now on.
pub(super) fn publish(cache: &'static CudaCache) {
    CACHE.store(ptr::from_ref(cache).cast_mut(), Ordering::Release);
}

/// Back to pass-through. The caller sees to it that the cache holds nothing.
pub(super) fn withdraw() {
    CACHE.store(ptr::null_mut(), Ordering::Release);
}

fn unserved() -> Unserved {
    match UNSERVED.load(Ordering::Relaxed) {
        killed if killed == Unserved::Killed as u8 => Unserved::Killed,
        _ => Unserved::NotInstalled,
    }
}

pub(super) fn set_unserved(why: Unserved) {
    UNSERVED.store(why as u8, Ordering::Release);
}

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

/// `CUDA_ERROR_DEINITIALIZED`: the cache is shut down, or this is a forked child.
const DEINITIALIZED: c_int = 4;
/// `CUDA_ERROR_INVALID_VALUE`: what the driver says to a double free.
const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_ILLEGAL_STATE`: another stream is captured.
const ILLEGAL_STATE: c_int = 401;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
const CAPTURE_INVALIDATED: c_int = 901;

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
    if result == Err(OUT_OF_MEMORY) && !capture::has_outside() {
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
            None => alloc_beside(cache, || real::alloc_async(bytes, raw)),
        },
        Route::PassThrough => PASSED.alloc(|| real::alloc_async(bytes, raw)),
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
            None => real::alloc(bytes),
        },
        Route::PassThrough => PASSED.alloc(|| real::alloc(bytes)),
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
            None => unsafe { real::free_async(address, raw) },
        },
        // SAFETY: as above.
        Route::PassThrough => PASSED.free(|| unsafe { real::free_async(address, raw) }),
        Route::Closed => SUCCESS,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    let cache = match route() {
        Route::Serve(cache) => cache,
        // SAFETY: the caller gives the same guarantees.
        Route::PassThrough => return PASSED.free(|| unsafe { real::free(address) }),
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
            None => return unsafe { real::free(address) },
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
            if capture::is_of(stream.addr()) {
                let mut graph = ptr::null_mut();
                // SAFETY: the place is valid; a graph that was made is nobody else's.
                unsafe {
                    if real::end_capture(stream, &mut graph) == SUCCESS && !graph.is_null() {
                        real::graph_destroy(graph);
                    }
                }
                capture::give_up();
            }
            capture::note_outside(stream.addr(), false);
            streams::end(cache, stream.addr());
        }
        Route::PassThrough => {}
        Route::Closed => return SUCCESS,
    }
    // SAFETY: the caller gives the same guarantees.
    unsafe { real::stream_destroy(stream.expose_provenance()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> c_int {
    // SAFETY: the caller's place is valid.
    let code = unsafe { real::primary_retain(context, device) };
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
    unsafe { real::primary_release(device) }
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
    unsafe { real::context_destroy(context) }
}

/// Gives back what belongs to a context while it is still there.
fn end_context(context: u32) {
    if let Some(cache) = cache() {
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
    unsafe { real::pool_destroy(pool) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2(stream: Stream, mode: c_uint) -> c_int {
    let opening = match route() {
        Route::Serve(cache) => capture::open(cache, stream.addr()),
        Route::PassThrough => {
            // SAFETY: the caller gives the same guarantees.
            return unsafe { real::begin_capture(stream, mode) };
        }
        Route::Closed => return DEINITIALIZED,
    };
    match opening {
        Opening::Busy => return ILLEGAL_STATE,
        Opening::Outside => capture::note_outside(stream.addr(), true),
        Opening::Opened => {}
    }
    // SAFETY: the caller gives the same guarantees.
    let code = unsafe { real::begin_capture(stream, mode) };
    match opening {
        _ if code == SUCCESS => {}
        Opening::Opened => capture::give_up(),
        Opening::Outside | Opening::Busy => capture::note_outside(stream.addr(), false),
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: Stream, graph: *mut Handle) -> c_int {
    // SAFETY: the caller's place is valid.
    let code = unsafe { real::end_capture(stream, graph) };
    capture::note_outside(stream.addr(), false);
    if !capture::is_of(stream.addr()) {
        return code;
    }
    // SAFETY: the driver has written the handle where it returned success.
    let made = if code == SUCCESS { unsafe { graph.read() } } else { ptr::null_mut() };
    if made.is_null() {
        capture::give_up();
        return code;
    }
    if capture::close(made.expose_provenance()).is_ok() {
        return code;
    }
    // The graph would use memory that nothing keeps: it must not be launched.
    // SAFETY: the graph was just made and nobody else has it; the place is valid.
    unsafe {
        real::graph_destroy(made);
        graph.write(ptr::null_mut());
    }
    CAPTURE_INVALIDATED
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut Handle,
    graph: Handle,
    flags: c_ulonglong,
) -> c_int {
    // SAFETY: the caller's place is valid.
    let code = unsafe { real::instantiate(executable, graph, flags) };
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
    let code = unsafe { real::executable_destroy(executable) };
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
    let code = unsafe { real::graph_destroy(graph) };
    GRAPHS.end(gone);
    code
}
