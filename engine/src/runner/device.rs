//! The device that a cell runs on: opened by name, described for the report, and asked for its
//! memory.

use candle_core::Device;
use formats::cell_report::{DeviceInfo, Memory, MemoryWindow};

use super::args::DeviceKind;
#[cfg(feature = "cuda")]
use super::term;
#[cfg(feature = "cuda")]
use crate::cuda::memory::{Ballast, DeviceProbe};
use crate::decode::{Pass, StepObserver};
use crate::host;

/// Opens a device.
///
/// # Errors
/// What is missing: the feature, a library, the device.
pub(super) fn open(kind: DeviceKind) -> anyhow::Result<Device> {
    match kind {
        DeviceKind::Cpu => Ok(Device::Cpu),
        #[cfg(feature = "cuda")]
        DeviceKind::Cuda(ordinal) => Ok(crate::cuda::open_device(ordinal)?),
        #[cfg(not(feature = "cuda"))]
        DeviceKind::Cuda(_) => Err(without_cuda()),
    }
}

/// The error for a CUDA device in a program that was built without CUDA.
#[cfg(not(feature = "cuda"))]
pub(super) fn without_cuda() -> anyhow::Error {
    anyhow::anyhow!(
        "this program was built without CUDA: build it with `cargo xtask cuda-setup`, or use \
         `--device cpu`"
    )
}

/// What can be asked of a device that is open.
#[derive(Debug)]
pub(super) struct Monitor {
    #[cfg(feature = "cuda")]
    probe: Option<DeviceProbe>,
}

impl Monitor {
    pub(super) fn new(device: &Device) -> Self {
        let _ = device;
        Monitor {
            #[cfg(feature = "cuda")]
            probe: device.is_cuda().then(|| DeviceProbe::new(device)),
        }
    }

    pub(super) fn info(&self) -> DeviceInfo {
        #[cfg(feature = "cuda")]
        if let Some(probe) = &self.probe {
            return DeviceInfo {
                backend: Some("cuda".to_owned()),
                name: probe.name.clone(),
                total_memory_bytes: probe.total_bytes,
            };
        }
        DeviceInfo {
            backend: Some("cpu".to_owned()),
            name: host::chip_name(),
            total_memory_bytes: host::total_memory_bytes(),
        }
    }

    /// Fills in what memory looks like at the end of a window.
    pub(super) fn end_window(&self, window: &mut MemoryWindow) {
        window.rss_end_bytes = host::rss_bytes();
        #[cfg(feature = "cuda")]
        if let Some(probe) = &self.probe {
            let memory = probe.read();
            window.device_used_end_bytes = memory.process_bytes;
            window.device_free_end_bytes = memory.free_bytes;
            window.host_free_end_bytes = memory.host_free_bytes;
            window.host_available_end_bytes = memory.host_available_bytes;
        }
    }

    /// Fills in what this process holds on the device at the end, as far as it is known.
    pub(super) fn complete(&self, memory: &mut Memory) {
        let _ = memory;
        #[cfg(feature = "cuda")]
        if let Some(probe) = &self.probe {
            memory.device_used_bytes = probe.read().process_bytes;
        }
    }
}

/// Leaves a device without memory when decode begins, and passes everything on.
pub(super) struct Squeeze<'a> {
    inner: &'a mut dyn StepObserver,
    #[cfg(feature = "cuda")]
    wanted: Option<(Device, u64)>,
    #[cfg(feature = "cuda")]
    ballast: Option<Ballast>,
    measured: bool,
}

impl<'a> Squeeze<'a> {
    /// Squeezes the measured pass where `leave_free_mb` asks for it, on a CUDA device.
    pub(super) fn new(
        inner: &'a mut dyn StepObserver,
        device: &Device,
        leave_free_mb: Option<u64>,
    ) -> Self {
        let _ = (device, leave_free_mb);
        Squeeze {
            inner,
            #[cfg(feature = "cuda")]
            wanted: leave_free_mb.map(|mb| (device.clone(), mb.saturating_mul(1 << 20))),
            #[cfg(feature = "cuda")]
            ballast: None,
            measured: false,
        }
    }

    /// Fills the cache, as earlier work would have, and takes what is free beside it.
    #[cfg(feature = "cuda")]
    fn squeeze(&mut self) {
        let Some((device, leave_bytes)) = self.wanted.take() else { return };
        let squeezed = crate::cuda::memory::fill_cache(&device)
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(Ballast::take(&device, leave_bytes)?));
        match squeezed {
            Ok(ballast) => self.ballast = Some(ballast),
            Err(error) => term::log(&format!("warning: --leave-free-mb has no effect: {error:#}")),
        }
    }
}

impl StepObserver for Squeeze<'_> {
    fn before_pass(&mut self, pass: Pass) {
        self.measured = pass == Pass::Measured;
        self.inner.before_pass(pass);
    }

    fn before_decode_step(&mut self) {
        self.inner.before_decode_step();
    }

    fn before_forward(&mut self, seq_len: usize) {
        self.inner.before_forward(seq_len);
        #[cfg(feature = "cuda")]
        if self.measured && seq_len == 1 {
            self.squeeze();
        }
    }

    fn after_decode_step(&mut self, step: usize) {
        self.inner.after_decode_step(step);
    }
}
