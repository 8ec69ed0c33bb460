//! The driver's own functions of the hooked names.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::mem::transmute;
use std::ptr;

use super::super::driver::SUCCESS;
use super::super::symbols::{Library, Slot};
use super::{Handle, Stream};

macro_rules! slots {
    ($($slot:ident = $name:literal;)*) => {
        $(static $slot: Slot = Slot::new($name, Library::Driver);)*

        /// The first of the hooked functions that the driver does not have.
        pub(in crate::cuda) fn find_missing() -> Option<&'static str> {
            [$(($name, &$slot)),*]
                .into_iter()
                .find(|(_, slot)| !slot.is_found())
                .and_then(|(name, _): (&CStr, _)| name.to_str().ok())
        }
    };
}

slots! {
    ALLOC_ASYNC = c"cuMemAllocAsync";
    ALLOC = c"cuMemAlloc_v2";
    FREE_ASYNC = c"cuMemFreeAsync";
    FREE = c"cuMemFree_v2";
    STREAM_DESTROY = c"cuStreamDestroy_v2";
    PRIMARY_RETAIN = c"cuDevicePrimaryCtxRetain";
    PRIMARY_RELEASE = c"cuDevicePrimaryCtxRelease_v2";
    CONTEXT_DESTROY = c"cuCtxDestroy_v2";
    POOL_DESTROY = c"cuMemPoolDestroy";
    BEGIN_CAPTURE = c"cuStreamBeginCapture_v2";
    END_CAPTURE = c"cuStreamEndCapture";
    INSTANTIATE = c"cuGraphInstantiateWithFlags";
    EXECUTABLE_DESTROY = c"cuGraphExecDestroy";
    GRAPH_DESTROY = c"cuGraphDestroy";
    ERROR_NAME = c"cuGetErrorName";
}

/// Calls the function of a slot with its type in C.
macro_rules! call {
    ($slot:ident($($arg:expr => $type:ty),*)) => {{
        // SAFETY: the slot holds the driver's function of its name, whose arguments these are,
        // or a stand-in for it that reads none and returns an error code.
        let function = unsafe {
            transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> c_int>(
                $slot.target(),
            )
        };
        // SAFETY: the caller vouches for the arguments, see each function.
        unsafe { function($($arg),*) }
    }};
}

fn handle(raw: usize) -> Handle {
    ptr::with_exposed_provenance_mut(raw)
}

/// The address of `bytes` new bytes, in the order of a stream.
pub(in crate::cuda) fn alloc_async(bytes: usize, stream: usize) -> Result<u64, c_int> {
    let mut address = 0_u64;
    let code = call!(ALLOC_ASYNC(
        &raw mut address => *mut u64, bytes => usize, handle(stream) => Stream
    ));
    if code == SUCCESS { Ok(address) } else { Err(code) }
}

/// The address of `bytes` new bytes in the current context.
pub(in crate::cuda) fn alloc(bytes: usize) -> Result<u64, c_int> {
    let mut address = 0_u64;
    let code = call!(ALLOC(&raw mut address => *mut u64, bytes => usize));
    if code == SUCCESS { Ok(address) } else { Err(code) }
}

/// # Safety
/// Nobody uses the block after what the stream does now.
pub(in crate::cuda) unsafe fn free_async(address: u64, stream: usize) -> c_int {
    call!(FREE_ASYNC(address => u64, handle(stream) => Stream))
}

/// # Safety
/// Nobody uses the block after what the device does now.
pub(in crate::cuda) unsafe fn free(address: u64) -> c_int {
    call!(FREE(address => u64))
}

/// # Safety
/// Nobody uses the stream any more.
pub(in crate::cuda) unsafe fn stream_destroy(stream: usize) -> c_int {
    call!(STREAM_DESTROY(handle(stream) => Stream))
}

/// # Safety
/// The place is valid.
pub(in crate::cuda) unsafe fn primary_retain(context: *mut Handle, device: c_int) -> c_int {
    call!(PRIMARY_RETAIN(context => *mut Handle, device => c_int))
}

/// # Safety
/// As for the driver's function.
pub(in crate::cuda) unsafe fn primary_release(device: c_int) -> c_int {
    call!(PRIMARY_RELEASE(device => c_int))
}

/// # Safety
/// As for the driver's function.
pub(in crate::cuda) unsafe fn context_destroy(context: Handle) -> c_int {
    call!(CONTEXT_DESTROY(context => Handle))
}

/// # Safety
/// As for the driver's function.
pub(in crate::cuda) unsafe fn pool_destroy(pool: Handle) -> c_int {
    call!(POOL_DESTROY(pool => Handle))
}

/// # Safety
/// As for the driver's function.
pub(in crate::cuda) unsafe fn begin_capture(stream: Stream, mode: c_uint) -> c_int {
    call!(BEGIN_CAPTURE(stream => Stream, mode => c_uint))
}

/// # Safety
/// The place is valid.
pub(in crate::cuda) unsafe fn end_capture(stream: Stream, graph: *mut Handle) -> c_int {
    call!(END_CAPTURE(stream => Stream, graph => *mut Handle))
}

/// # Safety
/// The place is valid.
pub(in crate::cuda) unsafe fn instantiate(
    executable: *mut Handle,
    graph: Handle,
    flags: c_ulonglong,
) -> c_int {
    call!(INSTANTIATE(
        executable => *mut Handle, graph => Handle, flags => c_ulonglong
    ))
}

/// # Safety
/// Nobody uses the executable graph any more.
pub(in crate::cuda) unsafe fn executable_destroy(executable: Handle) -> c_int {
    call!(EXECUTABLE_DESTROY(executable => Handle))
}

/// # Safety
/// Nobody uses the graph any more.
pub(in crate::cuda) unsafe fn graph_destroy(graph: Handle) -> c_int {
    call!(GRAPH_DESTROY(graph => Handle))
}

/// The driver's name for a code.
pub(in crate::cuda) fn error_name(code: c_int) -> Option<String> {
    let mut text: *const c_char = ptr::null();
    let known = call!(ERROR_NAME(code => c_int, &raw mut text => *mut *const c_char));
    if known != SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: the driver's names are static C strings.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
