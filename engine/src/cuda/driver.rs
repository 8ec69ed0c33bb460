//! CUDA's memory as the cache's driver.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys;

use super::codes::{
    INVALID_CONTEXT, INVALID_HANDLE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, is_lost,
};
use super::{calls, contexts, outside};
use crate::alloc::driver::{
    Address, Driver, DriverBlock, DriverError, DriverRequest, DriverStream, EventId, EventState,
    Origin, Window,
};

/// What the driver promises for addresses, in bytes.
const BLOCK_ALIGN: u64 = 256;

/// The stream of memory that was allocated, or is freed, without a stream: `cuMemAlloc_v2` and
/// `cuMemFree_v2`. It is no handle of the driver's.
pub(super) const NO_STREAM: u64 = u64::MAX;

thread_local! {
    /// The code of this thread's last free of a block that is not the cache's.
    static LAST_FREE: Cell<c_int> = const { Cell::new(SUCCESS) };
}

/// The code of this thread's last free of a block that is not the cache's, for whoever freed it.
/// Reading it clears it.
pub(super) fn take_last_free() -> c_int {
    LAST_FREE.replace(SUCCESS)
}

/// A code as the cache's error.
fn error_of(code: c_int) -> DriverError {
    if code == OUT_OF_MEMORY {
        return DriverError::OutOfMemory;
    }
    DriverError::Failed { code: i64::from(code), message: calls::describe(code) }
}

fn check(code: c_int) -> Result<(), DriverError> {
    if code == SUCCESS { Ok(()) } else { Err(error_of(code)) }
}

fn stream_of(raw: u64) -> sys::CUstream {
    ptr::with_exposed_provenance_mut::<c_void>(raw as usize).cast()
}

/// See the module.
#[derive(Debug)]
pub struct CudaDriver;

impl Driver for CudaDriver {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn block_align(&self) -> u64 {
        BLOCK_ALIGN
    }

    fn alloc(&self, request: DriverRequest) -> Result<Address, DriverError> {
        let DriverStream { device, raw } = request.stream;
        if request.align > BLOCK_ALIGN {
            return Err(DriverError::Failed {
                code: i64::from(NOT_SUPPORTED),
                message: format!("the device aligns blocks to {BLOCK_ALIGN} bytes, no more"),
            });
        }
        let bytes = usize::try_from(request.bytes).map_err(|_| DriverError::OutOfMemory)?;
        let result = match (request.window, raw) {
            (Window::Capture, _) => alloc_aside(device, bytes),
            (Window::Eager, NO_STREAM) => {
                contexts::within(device, || calls::alloc(bytes)).unwrap_or(Err(INVALID_CONTEXT))
            }
            (Window::Eager, raw) => {
                let result = calls::alloc_async(bytes, raw as usize);
                if result == Err(OUT_OF_MEMORY) {
                    // A refusal may stay on the stream as its next error. It is dealt with here and
                    // now, so nobody else needs to see it.
                    let _ = self.synchronize(Some(request.stream));
                }
                result
            }
        };
        result.map(Address).map_err(error_of)
    }

    unsafe fn free(&self, block: DriverBlock) -> Result<(), DriverError> {
        let DriverStream { device, raw } = block.stream;
        let address = block.address.0;
        let code = match (block.origin, raw) {
            // A block whose stream is gone has no order to keep to: its work was waited for.
            (_, NO_STREAM) | (Origin::Cache, 0) => {
                // SAFETY: the caller gives the same guarantees.
                contexts::within(device, || unsafe { calls::free(address) })
                    .unwrap_or(INVALID_CONTEXT)
            }
            // SAFETY: the caller gives the same guarantees.
            (_, raw) => unsafe { calls::free_async(address, raw as usize) },
        };
        if block.origin == Origin::Foreign {
            LAST_FREE.set(code);
        }
        check(code)
    }

    fn synchronize(&self, stream: Option<DriverStream>) -> Result<(), DriverError> {
        let once = || match stream {
            Some(DriverStream { device, raw: 0 | NO_STREAM }) => synchronize_context(device),
            // SAFETY: the handle is a stream's that the cache was told of and that is not gone.
            Some(DriverStream { raw, .. }) => unsafe {
                sys::cuStreamSynchronize(stream_of(raw)) as c_int
            },
            None => contexts::alive().into_iter().map(synchronize_context).fold(SUCCESS, i32::max),
        };
        match once() {
            // An earlier refusal that had stayed there: it is gone once it was returned.
            OUT_OF_MEMORY => check(once()),
            code => check(code),
        }
    }

    fn may_wait(&self) -> bool {
        !outside::is_open()
    }

    fn trim(&self) {
        for context in contexts::alive() {
            contexts::within(context, trim_current);
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let context = contexts::current().or_else(|| contexts::alive().first().copied())?;
        contexts::within(context, || calls::memory_info().map(|(free_bytes, _)| free_bytes))?
    }

    fn record_event(&self, stream: DriverStream) -> Result<EventId, DriverError> {
        let DriverStream { device, raw } = stream;
        if raw == NO_STREAM {
            return Err(error_of(INVALID_HANDLE));
        }
        let mut event: sys::CUevent = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the place is valid.
        let create = || unsafe { sys::cuEventCreate(&mut event, flags) as c_int };
        check(contexts::within(device, create).unwrap_or(INVALID_CONTEXT))?;
        // SAFETY: the event was just created; the handle is a stream's that is not gone.
        let code = unsafe { sys::cuEventRecord(event, stream_of(raw)) as c_int };
        if code != SUCCESS {
            // SAFETY: nothing else knows the event.
            unsafe { sys::cuEventDestroy_v2(event) };
            return Err(error_of(code));
        }
        Ok(EventId(event.expose_provenance() as u64))
    }

    fn poll_event(&self, event: EventId) -> EventState {
        let event: sys::CUevent =
            ptr::with_exposed_provenance_mut::<c_void>(event.0 as usize).cast();
        // SAFETY: the event came from `record_event` and was not destroyed since.
        let code = unsafe { sys::cuEventQuery(event) as c_int };
        // Not ready, or a capture is in the way of the question: neither says that the work is done.
        if code != SUCCESS && !is_lost(code) {
            return EventState::Pending;
        }
        // SAFETY: as above, and nobody asks for it again.
        unsafe { sys::cuEventDestroy_v2(event) };
        EventState::Done
    }
}

/// Memory for a request within a capture, from beside it: on the captured stream the request would
/// become a node of the graph.
fn alloc_aside(device: u32, bytes: usize) -> Result<u64, c_int> {
    let work = || {
        let mode = exchange_capture_mode(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
        let result = contexts::aside(device).and_then(|stream| {
            let address = calls::alloc_async(bytes, stream)?;
            // SAFETY: the stream is the context's own and lives as long as it.
            let code = unsafe { sys::cuStreamSynchronize(stream_of(stream as u64)) as c_int };
            if code == SUCCESS { Ok(address) } else { Err(code) }
        });
        exchange_capture_mode(mode)?;
        result
    };
    contexts::within(device, work).unwrap_or(Err(INVALID_CONTEXT))
}

fn exchange_capture_mode(
    mut mode: sys::CUstreamCaptureMode,
) -> Result<sys::CUstreamCaptureMode, c_int> {
    // SAFETY: the place is valid and holds a mode; the driver writes the one before.
    let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) as c_int };
    if code == SUCCESS { Ok(mode) } else { Err(code) }
}

fn synchronize_context(context: u32) -> c_int {
    // SAFETY: the context is current meanwhile.
    contexts::within(context, || unsafe { sys::cuCtxSynchronize() as c_int }).unwrap_or(SUCCESS)
}

/// Gives back what the pool of the current context's device holds without an allocation in it.
fn trim_current() {
    let mut device = 0;
    let mut pool: sys::CUmemoryPool = ptr::null_mut();
    // SAFETY: the places are valid and a context is current. A device without pools says so, and
    // has nothing to trim.
    unsafe {
        if sys::cuCtxGetDevice(&mut device) == sys::CUresult::CUDA_SUCCESS
            && sys::cuDeviceGetMemPool(&mut pool, device) == sys::CUresult::CUDA_SUCCESS
        {
            sys::cuMemPoolTrimTo(pool, 0);
        }
    }
}
