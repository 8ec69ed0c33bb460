//! Real calls: the driver's own functions of the hooked names, and what several modules ask it for.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::transmute;
use std::ptr;

use cudarc::driver::sys;

use super::codes::SUCCESS;
use super::symbols::{Library, Slot};

pub(super) type Stream = *mut c_void;
pub(super) type Handle = *mut c_void;

macro_rules! slots {
    ($($slot:ident = $name:literal;)*) => {
        $(static $slot: Slot = Slot::new($name, Library::Driver);)*

        /// The first of the hooked functions that the driver does not have.
        pub(super) fn find_missing() -> Option<&'static str> {
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
            transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(
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
pub(super) fn alloc_async(bytes: usize, stream: usize) -> Result<u64, c_int> {
    let mut address = 0_u64;
    let code = call!(ALLOC_ASYNC(
        &raw mut address => *mut u64, bytes => usize, handle(stream) => Stream
    ));
    if code == SUCCESS { Ok(address) } else { Err(code) }
}

/// The address of `bytes` new bytes in the current context.
pub(super) fn alloc(bytes: usize) -> Result<u64, c_int> {
    let mut address = 0_u64;
    let code = call!(ALLOC(&raw mut address => *mut u64, bytes => usize));
    if code == SUCCESS { Ok(address) } else { Err(code) }
}

/// # Safety
/// Nobody uses the block after what the stream does now.
pub(super) unsafe fn free_async(address: u64, stream: usize) -> c_int {
    call!(FREE_ASYNC(address => u64, handle(stream) => Stream))
}

/// # Safety
/// Nobody uses the block after what the device does now.
pub(super) unsafe fn free(address: u64) -> c_int {
    call!(FREE(address => u64))
}

/// # Safety
/// Nobody uses the stream any more.
pub(super) unsafe fn stream_destroy(stream: usize) -> c_int {
    call!(STREAM_DESTROY(handle(stream) => Stream))
}

/// # Safety
/// The place is valid.
pub(super) unsafe fn primary_retain(context: *mut Handle, device: c_int) -> c_int {
    call!(PRIMARY_RETAIN(context => *mut Handle, device => c_int))
}

/// # Safety
/// As for the driver's function.
pub(super) unsafe fn primary_release(device: c_int) -> c_int {
    call!(PRIMARY_RELEASE(device => c_int))
}

/// # Safety
/// As for the driver's function.
pub(super) unsafe fn context_destroy(context: Handle) -> c_int {
    call!(CONTEXT_DESTROY(context => Handle))
}

/// # Safety
/// As for the driver's function.
pub(super) unsafe fn pool_destroy(pool: Handle) -> c_int {
    call!(POOL_DESTROY(pool => Handle))
}

/// # Safety
/// As for the driver's function.
pub(super) unsafe fn begin_capture(stream: Stream, mode: c_uint) -> c_int {
    call!(BEGIN_CAPTURE(stream => Stream, mode => c_uint))
}

/// # Safety
/// The place is valid.
pub(super) unsafe fn end_capture(stream: Stream, graph: *mut Handle) -> c_int {
    call!(END_CAPTURE(stream => Stream, graph => *mut Handle))
}

/// # Safety
/// The place is valid.
pub(super) unsafe fn instantiate(
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
pub(super) unsafe fn executable_destroy(executable: Handle) -> c_int {
    call!(EXECUTABLE_DESTROY(executable => Handle))
}

/// # Safety
/// Nobody uses the graph any more.
pub(super) unsafe fn graph_destroy(graph: Handle) -> c_int {
    call!(GRAPH_DESTROY(graph => Handle))
}

fn error_name(code: c_int) -> Option<String> {
    let mut text: *const c_char = ptr::null();
    let known = call!(ERROR_NAME(code => c_int, &raw mut text => *mut *const c_char));
    if known != SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: the driver's names are static C strings.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

pub(super) fn describe(code: c_int) -> String {
    error_name(code).unwrap_or_else(|| format!("CUDA error {code}"))
}

/// Free and total bytes of the current context's device.
pub(super) fn memory_info() -> Option<(u64, u64)> {
    let (mut free_bytes, mut total_bytes) = (0, 0);
    // SAFETY: the places are valid.
    let code = unsafe { sys::cuMemGetInfo_v2(&mut free_bytes, &mut total_bytes) };
    (code == sys::CUresult::CUDA_SUCCESS).then_some((free_bytes as u64, total_bytes as u64))
}
