//! The driver's own memory pool as the fallback, where candle's allocations do not reach the hooks.
//!
//! It caches what is freed, as the driver sees fit; Arc bounds what it may keep and empties it where
//! the policy drains. It counts no requests: those go by unseen.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys;

use super::calls::{describe, memory_info};
use super::codes::SUCCESS;
use crate::alloc::driver::sim::SimDriver;
use crate::alloc::policy::{
    Action, Cap, CapRequest, EffectiveCap, KillSwitch, alloc_cache_action, plan_cap,
};
use crate::alloc::stats::{Counter, Known, Mode, Snapshot};
use crate::alloc::steps::Monitored;
use crate::alloc::{Cache, Config, PeakWindow, Peaks};

/// Why the driver's pool cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the driver's memory pool cannot be set up: {call} failed with {code}")]
pub struct PoolError {
    call: &'static str,
    code: String,
}

fn check(call: &'static str, code: sys::CUresult) -> Result<(), PoolError> {
    let code = code as c_int;
    if code == SUCCESS { Ok(()) } else { Err(PoolError { call, code: describe(code) }) }
}

/// A pool of the driver's that serves a device in place of the default one.
#[derive(Debug)]
pub struct DriverPool {
    pool: usize,
    cap: EffectiveCap,
    killed: bool,
    enabled: Cell<bool>,
    steps: Cell<u64>,
    drains: Cell<u64>,
    /// Never used: peaks are not known here, but windows must be handed out.
    windows: Cache<SimDriver>,
}

impl DriverPool {
    /// Makes a pool for the current context's device, no larger than the memory that is free now,
    /// and lets the device allocate from it.
    ///
    /// # Errors
    /// Where the device has no pools, or the driver refuses.
    pub fn install(config: Config) -> Result<Self, PoolError> {
        let mut device = 0;
        // SAFETY: the place is valid.
        check("cuCtxGetDevice", unsafe { sys::cuCtxGetDevice(&mut device) })?;
        let free_bytes = memory_info().map(|(free_bytes, _)| free_bytes);
        // SAFETY: all-zero properties are valid: no export, no security attributes, no limit.
        let mut props: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        props.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        set_device(&mut props.location, device);
        props.maxSize = free_bytes.unwrap_or(0) as usize;
        let mut pool: sys::CUmemoryPool = ptr::null_mut();
        // SAFETY: the place and the properties are valid.
        check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&mut pool, &props) })?;
        // SAFETY: the pool was just made for this device.
        check("cuDeviceSetMemPool", unsafe { sys::cuDeviceSetMemPool(device, pool) })?;
        Ok(DriverPool {
            pool: pool.expose_provenance(),
            cap: plan_cap(config.cap, free_bytes),
            killed: config.kill_switch == KillSwitch::Killed,
            enabled: Cell::new(false),
            steps: Cell::new(0),
            drains: Cell::new(0),
            windows: Cache::new(SimDriver::new(), Config { cap: CapRequest::Default, ..config }),
        })
    }

    fn handle(&self) -> sys::CUmemoryPool {
        ptr::with_exposed_provenance_mut::<c_void>(self.pool).cast()
    }

    fn attribute(&self, attribute: sys::CUmemPool_attribute) -> Option<u64> {
        let mut value = 0_u64;
        // SAFETY: the attributes that are asked for are 64-bit numbers, and the pool lives as long
        // as the process.
        let code = unsafe {
            sys::cuMemPoolGetAttribute(self.handle(), attribute, (&raw mut value).cast())
        };
        (code == sys::CUresult::CUDA_SUCCESS).then_some(value)
    }

    fn set_threshold(&self, mut bytes: u64) {
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the value is a 64-bit number. A refusal leaves the threshold at 0: nothing is
        // kept, which is within every bound.
        unsafe {
            sys::cuMemPoolSetAttribute(self.handle(), attribute, (&raw mut bytes).cast());
        }
    }

    fn used_bytes(&self) -> Option<u64> {
        self.attribute(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    }
}

/// Names a device in a location; the field is a union in some versions of the bindings.
fn set_device(location: &mut sys::CUmemLocation, device: c_int) {
    location.id = device;
}

impl Monitored for DriverPool {
    /// Enabled, the pool may keep the cap above what is in use; drained, nothing.
    fn before_forward(&self, seq_len: usize) -> Action {
        let action = alloc_cache_action(seq_len, self.enabled.get(), self.killed);
        match action {
            // `alloc_cache_action` gives neither: a pool knows nothing of blocks to hold.
            Action::Leave | Action::Hold | Action::ServePrefill => {}
            Action::Enable => {
                self.enabled.set(true);
                let threshold_bytes = match (self.cap.cap, self.used_bytes()) {
                    (Cap::Bounded(cap_bytes), Some(used_bytes)) => used_bytes + cap_bytes,
                    (Cap::Bounded(cap_bytes), None) => cap_bytes,
                    (Cap::Unbounded, _) => u64::MAX,
                };
                self.set_threshold(threshold_bytes);
            }
            Action::DrainAndDisable => {
                self.enabled.set(false);
                self.drains.set(self.drains.get() + 1);
                self.set_threshold(0);
                // A pool gives back only what the host has seen to be free.
                // SAFETY: the context is the device's, and the pool lives as long as the process.
                unsafe {
                    sys::cuCtxSynchronize();
                    sys::cuMemPoolTrimTo(self.handle(), 0);
                }
            }
        }
        if seq_len == 1 {
            self.steps.set(self.steps.get() + 1);
        }
        action
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.windows.snapshot();
        snapshot.counters[Counter::Steps] = self.steps.get();
        snapshot.counters[Counter::Drains] = self.drains.get();
        snapshot.cap = Some(self.cap);
        snapshot.mode = match (self.killed, self.enabled.get()) {
            (true, _) => Mode::Killed,
            (false, true) => Mode::On,
            (false, false) => Mode::Off,
        };
        let reserved =
            self.attribute(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        if let (Some(used_bytes), Some(reserved_bytes)) = (self.used_bytes(), reserved) {
            snapshot.gauges.live_bytes = used_bytes;
            snapshot.gauges.idle_bytes = reserved_bytes.saturating_sub(used_bytes);
            snapshot.gauges.held_bytes = reserved_bytes;
        }
        snapshot
    }

    fn open_window(&self) -> PeakWindow {
        self.windows.open_window()
    }

    fn restart_window(&self, window: &PeakWindow) -> Peaks {
        self.windows.restart_window(window)
    }

    fn known(&self) -> Known {
        Known { peaks: false, held_bytes: true, driver_time: false }
    }
}
