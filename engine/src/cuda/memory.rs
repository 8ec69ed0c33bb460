//! What the device says of its memory and of this process's part in it; `None` where it does not.
//!
//! NVML counts what a process holds on a device, with what no allocation explains: the context,
//! modules, cuBLAS's and cuRAND's workspaces. Machines with unified memory do not tell it there.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use candle_core::Device;
use cudarc::driver::sys;

use super::calls::{self, memory_info};

/// One reading of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceMemory {
    /// Bytes that are free, for all processes.
    pub free_bytes: Option<u64>,
    /// Bytes that this process holds, by NVML.
    pub process_bytes: Option<u64>,
    /// On machines with unified memory, the host's `MemFree`.
    pub host_free_bytes: Option<u64>,
    /// On machines with unified memory, the host's `MemAvailable`.
    pub host_available_bytes: Option<u64>,
}

/// A device that is asked for its memory.
#[derive(Debug)]
pub struct DeviceProbe {
    device: Device,
    nvml: Option<NvmlDevice>,
    /// Its name.
    pub name: Option<String>,
    /// All of its memory.
    pub total_bytes: Option<u64>,
    /// Whether it shares memory with the processor.
    pub unified: bool,
}

impl DeviceProbe {
    /// Looks a CUDA device up. Its context must be current in this thread, as it is after the device
    /// was opened.
    pub fn new(device: &Device) -> Self {
        let ordinal = current_device();
        DeviceProbe {
            device: device.clone(),
            nvml: ordinal.and_then(NvmlDevice::find),
            name: ordinal.and_then(device_name),
            total_bytes: memory_info().map(|(_, total_bytes)| total_bytes),
            unified: ordinal.is_some_and(is_integrated),
        }
    }

    /// Reads the device's memory now.
    pub fn read(&self) -> DeviceMemory {
        if self.device.synchronize().is_err() {
            return DeviceMemory::default();
        }
        let host = |key| if self.unified { crate::host::meminfo_bytes(key) } else { None };
        DeviceMemory {
            free_bytes: memory_info().map(|(free_bytes, _)| free_bytes),
            process_bytes: self.nvml.as_ref().and_then(NvmlDevice::process_bytes),
            host_free_bytes: host("MemFree:"),
            host_available_bytes: host("MemAvailable:"),
        }
    }
}

/// Blocks that [`fill_cache`] leaves in the cache, and bytes of each.
const FILL: (usize, usize) = (4, 32 << 20);

/// Leaves 128 MiB idle in the cache, or as much as its cap admits.
///
/// # Errors
/// Where that much cannot be allocated.
pub fn fill_cache(device: &Device) -> candle_core::Result<()> {
    let (blocks, bytes) = FILL;
    (0..blocks)
        .map(|_| candle_core::Tensor::zeros(bytes, candle_core::DType::U8, device))
        .collect::<candle_core::Result<Vec<_>>>()
        .map(drop)
}

/// Memory of a device that is kept from everybody until this is dropped.
#[derive(Debug)]
pub struct Ballast {
    blocks: Vec<u64>,
    /// Keeps the context alive that the blocks belong to.
    _device: Device,
}

/// The driver does not report how much memory is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the driver does not report how much of the device's memory is free")]
pub struct FreeMemoryUnknown;

/// Blocks of a ballast, from large to small.
const BALLAST_BYTES: [u64; 5] = [1 << 30, 64 << 20, 2 << 20, 64 << 10, 4 << 10];

impl Ballast {
    /// Takes memory, beside the cache, until no more than `leave_bytes` are free.
    ///
    /// # Errors
    /// Where the driver does not say what is free.
    pub fn take(device: &Device, leave_bytes: u64) -> Result<Self, FreeMemoryUnknown> {
        // What was freed before counts as free only once it is done.
        let _ = device.synchronize();
        let mut blocks = Vec::new();
        for block_bytes in BALLAST_BYTES {
            loop {
                let (free_bytes, _) = memory_info().ok_or(FreeMemoryUnknown)?;
                if free_bytes < leave_bytes + block_bytes {
                    break;
                }
                match calls::alloc(block_bytes as usize) {
                    Ok(address) => blocks.push(address),
                    // In pieces, or held by somebody else by now.
                    Err(_) => break,
                }
            }
        }
        Ok(Ballast { blocks, _device: device.clone() })
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        for &address in &self.blocks {
            // SAFETY: the block came from the driver, nobody has used it, and it is freed once. A
            // refusal loses it until the process ends, which is near.
            unsafe { calls::free(address) };
        }
    }
}

fn current_device() -> Option<c_int> {
    let mut device = 0;
    // SAFETY: the place is valid.
    let code = unsafe { sys::cuCtxGetDevice(&mut device) };
    (code == sys::CUresult::CUDA_SUCCESS).then_some(device)
}

fn device_name(device: c_int) -> Option<String> {
    let mut text = [0 as c_char; 256];
    // SAFETY: the buffer has as many characters as are announced; the driver ends them with a 0.
    unsafe {
        let code = sys::cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, device);
        (code == sys::CUresult::CUDA_SUCCESS)
            .then(|| CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
    }
}

fn is_integrated(device: c_int) -> bool {
    let mut value = 0;
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED;
    // SAFETY: the place is valid.
    let code = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
    code == sys::CUresult::CUDA_SUCCESS && value != 0
}

/// `nvmlProcessInfo_t`, version 2 of the structure.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProcessInfo {
    pid: c_uint,
    used_bytes: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u64 = u64::MAX;
/// Processes on one device that room is made for.
const PROCESSES: usize = 256;

type InitFn = unsafe extern "C" fn() -> c_int;
type FindFn = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type ProcessesFn = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_int;

#[derive(Debug, Clone, Copy)]
struct Nvml {
    find: FindFn,
    processes: ProcessesFn,
}

impl Nvml {
    /// Opened and initialised once per process.
    fn open() -> Option<Nvml> {
        static OPENED: OnceLock<Option<Nvml>> = OnceLock::new();
        *OPENED.get_or_init(|| {
            // SAFETY: the names are C strings, and the functions have these types in NVML's header.
            unsafe {
                let library = libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW);
                if library.is_null() {
                    return None;
                }
                let find_symbol = |name: &CStr| {
                    let symbol = libc::dlsym(library, name.as_ptr());
                    (!symbol.is_null()).then_some(symbol)
                };
                let init = find_symbol(c"nvmlInit_v2")?;
                let find = find_symbol(c"nvmlDeviceGetHandleByPciBusId_v2")?;
                let processes = find_symbol(c"nvmlDeviceGetComputeRunningProcesses_v3")?;
                if std::mem::transmute::<*mut c_void, InitFn>(init)() != 0 {
                    return None;
                }
                Some(Nvml {
                    find: std::mem::transmute::<*mut c_void, FindFn>(find),
                    processes: std::mem::transmute::<*mut c_void, ProcessesFn>(processes),
                })
            }
        })
    }
}

#[derive(Debug)]
struct NvmlDevice {
    nvml: Nvml,
    handle: usize,
}

impl NvmlDevice {
    /// Finds the device by its address on the bus: NVML numbers devices in another order.
    fn find(device: c_int) -> Option<NvmlDevice> {
        let nvml = Nvml::open()?;
        let mut bus_id = [0 as c_char; 64];
        let mut handle = std::ptr::null_mut();
        // SAFETY: the buffer has as many characters as are announced and ends with a 0.
        unsafe {
            let code = sys::cuDeviceGetPCIBusId(bus_id.as_mut_ptr(), bus_id.len() as c_int, device);
            if code != sys::CUresult::CUDA_SUCCESS || (nvml.find)(bus_id.as_ptr(), &mut handle) != 0
            {
                return None;
            }
        }
        Some(NvmlDevice { nvml, handle: handle.expose_provenance() })
    }

    fn process_bytes(&self) -> Option<u64> {
        let nothing = ProcessInfo { pid: 0, used_bytes: 0, gpu_instance: 0, compute_instance: 0 };
        let mut processes = [nothing; PROCESSES];
        let mut count = PROCESSES as c_uint;
        let handle = std::ptr::with_exposed_provenance_mut(self.handle);
        // SAFETY: the handle is NVML's, and there is room for as many entries as are announced.
        let code = unsafe { (self.nvml.processes)(handle, &mut count, processes.as_mut_ptr()) };
        if code != 0 {
            return None;
        }
        let own = std::process::id();
        let found = processes.iter().take(count as usize).find(|process| process.pid == own)?;
        (found.used_bytes != NOT_AVAILABLE).then_some(found.used_bytes)
    }
}
