//! Real device memory under unmodified candle.
//!
//! candle allocates through four functions of the CUDA driver. This module defines functions of the
//! same names, which the linker binds instead, and serves them from the cache of [`crate::alloc`].
//! `docs/CUDA.md` has the whole picture, with what the hooks cannot see.
//!
//! From the bottom: `codes` and `symbols`; `calls`, the real driver; `contexts`; `outside`, captures
//! without the cache; `driver`, what the cache calls; `installed`, the cache itself; `window`, its part in
//! graph capture; `streams`; `hooks`, the seam. Beside the hooks, [`capture`] captures a step, [`pool`] is the fallback where they are not
//! reached, [`memory`] what the device says of itself. No module names one above it: a test walks them.

use std::sync::OnceLock;

use candle_core::Device;

use crate::alloc::policy::{Action, KillSwitch};
use crate::alloc::stats::{AllocCause, Bypass, Counter, FreeCause, Known, Snapshot};
use crate::alloc::steps::Monitored;
use crate::alloc::{Config, PeakWindow, Peaks};

use installed::Unserved;
use passed::PASSED;

pub use driver::CudaDriver;
pub use failure::last_failure;
pub use installed::CudaCache;
pub use symbols::{MissingLibrary, check_libraries};

mod calls;
pub mod capture;
mod codes;
mod contexts;
mod driver;
mod failure;
mod hooks;
mod installed;
pub mod memory;
mod outside;
mod passed;
pub mod pool;
mod streams;
mod symbols;
mod window;

/// A cudarc that looks its functions up at run time would never reach the hooks. It has a function
/// `culib`; there the name below is ambiguous, and this does not compile.
#[deny(ambiguous_glob_imports)]
mod linked_at_build_time {
    #[allow(unused_imports)]
    use cudarc::driver::sys::*;
    use marker::*;

    mod marker {
        pub(super) const fn culib() {}
    }

    const _: () = culib();
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// A library is missing.
    #[error(transparent)]
    MissingLibrary(#[from] MissingLibrary),
    /// The driver is older than what the hooks were made for.
    #[error("the CUDA driver has no `{function}`: it is too old for this program")]
    MissingFunction {
        /// The function.
        function: &'static str,
    },
    /// candle or the driver refuses.
    #[error("cannot open CUDA device {ordinal}")]
    Device {
        /// The device.
        ordinal: usize,
        /// The reason.
        source: candle_core::Error,
    },
}

/// Opens a device with a stream of its own, for everything that this process does there.
///
/// Event tracking is switched off: candle would record two events for each tensor, so that tensors
/// may move between streams, and they cost more than an allocation from the cache. It is sound here
/// because all work, cuBLAS's and cuRAND's too, is on the device's one stream, which orders it.
///
/// # Errors
/// See [`DeviceError`].
pub fn open_device(ordinal: usize) -> Result<Device, DeviceError> {
    check_libraries()?;
    if let Some(function) = calls::find_missing() {
        return Err(DeviceError::MissingFunction { function });
    }
    let device = Device::new_cuda_with_stream(ordinal)
        .map_err(|source| DeviceError::Device { ordinal, source })?;
    if let Device::Cuda(device) = &device {
        // SAFETY: the device's one stream orders everything, see above.
        unsafe { device.disable_event_tracking() };
    }
    Ok(device)
}

/// Why the cache does not serve candle's allocations.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A process installs it once.
    #[error("the CUDA allocator is installed already; a process sets it up once")]
    AlreadyInstalled,
    /// The check's allocation was made and never came by.
    #[error(
        "candle's allocations do not reach the hooks: another definition of `cuMemAllocAsync` comes \
         first, or cudarc was built to load the driver at run time"
    )]
    Shadowed,
    /// The check's allocation came by on a stream that the cache keeps nothing for.
    #[error(
        "the device works on the null stream or on the per-thread stream, for which the cache keeps \
         nothing; open it with a stream of its own"
    )]
    SpecialStream,
    /// The check's allocation failed.
    #[error("the allocation that checks the hooks failed")]
    Check(#[source] candle_core::Error),
}

/// The cache under candle's CUDA backend, as the decode loop sees it.
#[derive(Debug)]
pub struct CudaAllocator {
    cache: CudaCache,
    /// Whether the kill switch makes the hooks hand every call on.
    passes_through: bool,
}

static INSTALLED: OnceLock<CudaAllocator> = OnceLock::new();

/// Serves candle's allocations on every CUDA device of this process from a cache, or, with the kill
/// switch, hands them on and counts them; and checks that they come by.
///
/// # Errors
/// See [`InstallError`]. Nothing is served then.
pub fn install(device: &Device, config: Config) -> Result<&'static CudaAllocator, InstallError> {
    install_and_check(config, &mut || {
        let probe = candle_core::Tensor::zeros(1024, candle_core::DType::F32, device)?;
        drop(probe);
        device.synchronize()
    })
}

/// [`install`] with the check's allocation given: `probe` allocates and frees once, the way that the
/// program is going to.
///
/// # Errors
/// See [`InstallError`].
pub fn install_and_check(
    config: Config,
    probe: &mut dyn FnMut() -> candle_core::Result<()>,
) -> Result<&'static CudaAllocator, InstallError> {
    let passes_through = config.kill_switch == KillSwitch::Killed;
    let allocator = CudaAllocator { cache: CudaCache::new(CudaDriver, config), passes_through };
    if INSTALLED.set(allocator).is_err() {
        return Err(InstallError::AlreadyInstalled);
    }
    let Some(allocator) = INSTALLED.get() else { return Err(InstallError::AlreadyInstalled) };
    if passes_through {
        installed::set_unserved(Unserved::Killed);
    } else {
        installed::publish(&allocator.cache);
    }
    let before = allocator.snapshot().counters;
    let probed = probe();
    let seen = allocator.snapshot().counters.since(&before);
    if let Err(error) = probed {
        allocator.withdraw();
        return Err(InstallError::Check(error));
    }
    if seen[Counter::Requests] == 0 {
        allocator.withdraw();
        return Err(InstallError::Shadowed);
    }
    if seen[Bypass::Stream] == seen[Counter::Requests] {
        allocator.withdraw();
        return Err(InstallError::SpecialStream);
    }
    if !passes_through {
        // SAFETY: the handler is a function without arguments that does not unwind.
        unsafe { libc::atexit(close_at_exit) };
    }
    Ok(allocator)
}

/// Gives idle blocks back and closes the cache, before the driver's own end: its handler was
/// registered when the device was opened, and they run last in, first out.
extern "C" fn close_at_exit() {
    if let Some(cache) = installed::cache() {
        installed::close(cache);
    }
}

impl CudaAllocator {
    /// The cache. With the kill switch it serves nobody.
    pub fn cache(&self) -> &CudaCache {
        &self.cache
    }

    /// Whether the kill switch makes the hooks hand every call on.
    #[must_use]
    pub fn passes_through(&self) -> bool {
        self.passes_through
    }

    /// Gives idle blocks back and never calls the driver again, as at the end of the process.
    pub fn shutdown(&self) {
        installed::close(&self.cache);
    }

    fn withdraw(&self) {
        self.cache.flush();
        installed::withdraw();
        installed::set_unserved(Unserved::NotInstalled);
    }
}

impl Monitored for CudaAllocator {
    /// Leaves the cache off while a stream is captured without it.
    fn before_forward(&self, seq_len: usize) -> Action {
        if outside::is_open() { Action::Leave } else { self.cache.before_forward(seq_len) }
    }

    /// The cache's snapshot with the calls that were handed on.
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.cache.snapshot();
        let passed = PASSED.read();
        let counters = &mut snapshot.counters;
        counters[Counter::Requests] += passed.not_installed + passed.killed;
        counters[Bypass::NotInstalled] += passed.not_installed;
        counters[Bypass::Killed] += passed.killed;
        counters[AllocCause::Bypass] += passed.not_installed + passed.killed;
        counters[FreeCause::Off] += passed.frees;
        counters[Counter::DriverNs] += passed.driver_ns;
        snapshot
    }

    fn open_window(&self) -> PeakWindow {
        self.cache.open_window()
    }

    fn restart_window(&self, window: &PeakWindow) -> Peaks {
        self.cache.restart_window(window)
    }

    fn known(&self) -> Known {
        let blocks = !self.passes_through;
        Known { peaks: blocks, held_bytes: blocks, driver_time: true }
    }
}
