//! The CUDA functions that the program links against, found at their first call.
//!
//! cudarc declares them as functions of shared libraries. If the program were linked with those, it
//! would not start on a machine without a driver. So each has a definition here instead, which jumps
//! to the real one and looks it up the first time. [`check_libraries`] says beforehand, in words,
//! what is missing; a call that comes without that check, and finds nothing, returns an error of its
//! library's own instead of stopping the program.
//!
//! The functions that memory goes through are defined in `hooks` and only looked up here.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::codes::SHARED_OBJECT_SYMBOL_NOT_FOUND;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("feature `cuda` of `engine` is made for Linux on x86-64 and AArch64");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    Driver,
    Blas,
    BlasLt,
    Rand,
    Compiler,
}

impl Library {
    const ALL: [Library; 5] =
        [Library::Driver, Library::Blas, Library::BlasLt, Library::Rand, Library::Compiler];

    /// The names under which it is looked for, the one that the build is made for first.
    fn file_names(self) -> &'static [&'static CStr] {
        match self {
            Library::Driver => &[c"libcuda.so.1"],
            Library::Blas => &[c"libcublas.so.13", c"libcublas.so.12", c"libcublas.so"],
            Library::BlasLt => &[c"libcublasLt.so.13", c"libcublasLt.so.12", c"libcublasLt.so"],
            Library::Rand => &[c"libcurand.so.10", c"libcurand.so"],
            Library::Compiler => &[c"libnvrtc.so.13", c"libnvrtc.so.12", c"libnvrtc.so"],
        }
    }

    /// Who brings it, for messages.
    fn origin(self) -> &'static str {
        match self {
            Library::Driver => "it comes with the NVIDIA driver",
            _ => "it comes with the CUDA toolkit or its wheels; add its folder to LD_LIBRARY_PATH",
        }
    }

    /// What is called in place of a function of its that does not exist here.
    fn unresolved(self) -> *mut c_void {
        match self {
            Library::Driver => no_symbol as *mut c_void,
            Library::Blas | Library::BlasLt => no_blas as *mut c_void,
            Library::Rand => no_rand as *mut c_void,
            Library::Compiler => no_compiler as *mut c_void,
        }
    }

    /// Its handle, opened once; or why it cannot be opened.
    fn open(self) -> Result<*mut c_void, &'static str> {
        static OPENED: [OnceLock<Result<usize, String>>; Library::ALL.len()] =
            [const { OnceLock::new() }; Library::ALL.len()];
        OPENED[self as usize]
            .get_or_init(|| self.open_now())
            .as_ref()
            .map(|&handle| ptr::with_exposed_provenance_mut(handle))
            .map_err(String::as_str)
    }

    fn open_now(self) -> Result<usize, String> {
        let mut first_error = None;
        for name in self.file_names() {
            // SAFETY: the name is a C string. The library's initialisers are those that the program
            // would run if it were linked with it.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if !handle.is_null() {
                return Ok(handle.expose_provenance());
            }
            first_error.get_or_insert_with(last_dl_error);
        }
        Err(first_error.unwrap_or_default())
    }
}

fn last_dl_error() -> String {
    // SAFETY: `dlerror` returns null or a C string that lasts until this thread's next `dl` call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "unknown error".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// A library that the program needs on a CUDA device cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot load {library}: {reason} ({origin})")]
pub struct MissingLibrary {
    library: String,
    reason: String,
    origin: &'static str,
}

/// Opens every library that candle's CUDA backend calls.
///
/// # Errors
/// The first that cannot be opened, with the loader's reason.
pub fn check_libraries() -> Result<(), MissingLibrary> {
    // cuBLASLt and NVRTC are declared by cudarc and not called by candle's decode path: they are
    // looked for when they are called.
    for library in [Library::Driver, Library::Blas, Library::Rand] {
        library.open().map_err(|reason| MissingLibrary {
            library: library.file_names()[0].to_string_lossy().into_owned(),
            reason: reason.to_owned(),
            origin: library.origin(),
        })?;
    }
    Ok(())
}

/// One function: where it is, once that is known.
#[repr(C)]
pub(super) struct Slot {
    /// Read by the assembly below; must be the first field.
    target: AtomicPtr<c_void>,
    name: &'static CStr,
    library: Library,
}

impl Slot {
    pub(super) const fn new(name: &'static CStr, library: Library) -> Self {
        Slot { target: AtomicPtr::new(ptr::null_mut()), name, library }
    }

    /// The real function, or [`Library::unresolved`] where there is none.
    pub(super) fn target(&self) -> *mut c_void {
        let known = self.target.load(Ordering::Acquire);
        if known.is_null() { self.resolve() } else { known }
    }

    pub(super) fn is_found(&self) -> bool {
        self.target() != self.library.unresolved()
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        let found = match self.library.open() {
            // SAFETY: the handle is an open library's, the name a C string.
            Ok(handle) => unsafe { libc::dlsym(handle, self.name.as_ptr()) },
            Err(_) => ptr::null_mut(),
        };
        let target = if found.is_null() { self.library.unresolved() } else { found };
        self.target.store(target, Ordering::Release);
        target
    }
}

// These stand for functions that do not exist here. They take no arguments, which no caller of the C
// convention notices; what they return must be a value of their library's own enumeration, because its
// callers have one in hand then.

extern "C" fn no_symbol() -> c_int {
    SHARED_OBJECT_SYMBOL_NOT_FOUND
}

/// `CUBLAS_STATUS_NOT_INITIALIZED`.
extern "C" fn no_blas() -> c_int {
    1
}

/// `CURAND_STATUS_NOT_INITIALIZED`.
extern "C" fn no_rand() -> c_int {
    101
}

/// `NVRTC_ERROR_INTERNAL_ERROR`.
extern "C" fn no_compiler() -> c_int {
    11
}

/// Called by [`resolve_and_jump`] with the slot of the function that was called.
extern "C" fn resolve_slot(slot: &Slot) -> *mut c_void {
    slot.resolve()
}

/// Keeps the arguments of the call that is under way, resolves its slot, which arrives in `r11`, and
/// goes on to the real function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn resolve_and_jump() {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        // With the return address and six registers the stack is 8 bytes off 16.
        "sub rsp, 136",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov rdi, r11",
        "call {resolve}",
        "mov r11, rax",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 136",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp r11",
        resolve = sym resolve_slot,
    )
}

/// As above; the slot arrives in `x16`, which like `x17` is free between caller and callee.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn resolve_and_jump() {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #-16]!",
        "stp x2, x3, [sp, #-16]!",
        "stp x4, x5, [sp, #-16]!",
        "stp x6, x7, [sp, #-16]!",
        "str x8, [sp, #-16]!",
        "stp q0, q1, [sp, #-32]!",
        "stp q2, q3, [sp, #-32]!",
        "stp q4, q5, [sp, #-32]!",
        "stp q6, q7, [sp, #-32]!",
        "mov x0, x16",
        "bl {resolve}",
        "mov x16, x0",
        "ldp q6, q7, [sp], #32",
        "ldp q4, q5, [sp], #32",
        "ldp q2, q3, [sp], #32",
        "ldp q0, q1, [sp], #32",
        "ldr x8, [sp], #16",
        "ldp x6, x7, [sp], #16",
        "ldp x4, x5, [sp], #16",
        "ldp x2, x3, [sp], #16",
        "ldp x0, x1, [sp], #16",
        "ldp x29, x30, [sp], #16",
        "br x16",
        resolve = sym resolve_slot,
    )
}

/// Defines a function that jumps to where its slot says.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($slot:path) => {
        std::arch::naked_asm!(
            "mov r11, qword ptr [rip + {slot}]",
            "test r11, r11",
            "je 2f",
            "jmp r11",
            "2:",
            "lea r11, [rip + {slot}]",
            "jmp {resolve}",
            slot = sym $slot,
            resolve = sym resolve_and_jump,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($slot:path) => {
        std::arch::naked_asm!(
            "adrp x16, {slot}",
            "add x16, x16, :lo12:{slot}",
            "ldar x17, [x16]",
            "cbz x17, 2f",
            "br x17",
            "2:",
            "b {resolve}",
            slot = sym $slot,
            resolve = sym resolve_and_jump,
        )
    };
}

macro_rules! lazy_functions {
    ($($library:ident: $($name:ident)*;)*) => {$($(
        mod $name {
            pub(super) static SLOT: super::super::Slot = super::super::Slot::new(
                match ::std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("a function's name holds a zero byte"),
                },
                super::super::Library::$library,
            );
        }

        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            jump!($name::SLOT)
        }
    )*)*};
}

// Whatever candle and cudarc call. A function that is missing here is taken from the library by the
// linker, and the program then needs that library to start: a test over the built program says so.
#[allow(non_snake_case)]
mod functions {
    use super::resolve_and_jump;

    lazy_functions! {
        Driver:
            cuCtxCreate_v4 cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetDevice cuCtxGetLimit
            cuCtxGetStreamPriorityRange cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetFlags
            cuCtxSetLimit cuCtxSynchronize cuDestroyExternalMemory cuDeviceGet cuDeviceGetAttribute
            cuDeviceGetCount cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceGetName
            cuDeviceGetPCIBusId cuDeviceGetUuid cuDeviceGetUuid_v2 cuDeviceSetMemPool
            cuDeviceTotalMem_v2 cuDriverGetVersion cuEventCreate cuEventDestroy_v2
            cuEventElapsedTime cuEventElapsedTime_v2 cuEventQuery cuEventRecord cuEventSynchronize
            cuExternalMemoryGetMappedBuffer cuFuncGetAttribute cuFuncSetAttribute
            cuFuncSetCacheConfig cuGetErrorName cuGetErrorString cuGraphGetNodes
            cuGraphLaunch cuGraphUpload cuImportExternalMemory cuInit
            cuLaunchCooperativeKernel cuLaunchHostFunc cuLaunchKernel cuMemAdvise_v2
            cuMemAllocManaged cuMemFreeHost cuMemGetInfo_v2 cuMemHostAlloc cuMemPoolCreate
            cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo cuMemPrefetchAsync_v2
            cuMemcpyDtoDAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2
            cuMemcpyHtoDAsync_v2 cuMemcpyHtoD_v2 cuMemcpyPeerAsync cuMemsetD8Async cuMemsetD8_v2
            cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleLoad cuModuleLoadData cuModuleUnload
            cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor
            cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters
            cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialBlockSizeWithFlags
            cuOccupancyMaxPotentialClusterSize cuProfilerStart cuProfilerStop cuStreamAttachMemAsync
            cuStreamCreate cuStreamCreateWithPriority cuStreamGetCtx cuStreamIsCapturing
            cuStreamQuery cuStreamSynchronize cuStreamWaitEvent cuThreadExchangeStreamCaptureMode;
        Blas:
            cublasCreate_v2 cublasDasum_v2 cublasDestroy_v2 cublasDgemmStridedBatched cublasDgemm_v2
            cublasDgemv_v2 cublasGemmEx cublasGemmGroupedBatchedEx cublasGemmStridedBatchedEx
            cublasGetPointerMode_v2 cublasSasum_v2 cublasSetPointerMode_v2 cublasSetStream_v2
            cublasSgemmStridedBatched cublasSgemm_v2 cublasSgemv_v2;
        BlasLt:
            cublasLtCreate cublasLtDestroy cublasLtLoggerOpenFile cublasLtLoggerSetLevel
            cublasLtMatmul cublasLtMatmulAlgoGetHeuristic cublasLtMatmulDescCreate
            cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute cublasLtMatmulPreferenceCreate
            cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute
            cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy cublasLtMatrixLayoutSetAttribute;
        Rand:
            curandCreateGenerator curandDestroyGenerator curandGenerate curandGenerateLogNormal
            curandGenerateLogNormalDouble curandGenerateLongLong curandGenerateNormal
            curandGenerateNormalDouble curandGeneratePoisson curandGenerateUniform
            curandGenerateUniformDouble curandSetGeneratorOffset curandSetPseudoRandomGeneratorSeed
            curandSetStream;
        Compiler:
            nvrtcCompileProgram nvrtcCreateProgram nvrtcDestroyProgram nvrtcGetPTX nvrtcGetPTXSize
            nvrtcGetProgramLog nvrtcGetProgramLogSize;
    }
}
