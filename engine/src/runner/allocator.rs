//! The allocator in `decode-bench`: set up from the environment for the device that is used, driven
//! by the decode loop's steps, written into the report.

use std::cell::{Cell, RefCell};

use anyhow::Context as _;
use candle_core::Device;
use formats::cell_report::{AllocatorSettings, CellReport, EnvVar};

use super::args::DeviceKind;
use super::threads::{Threads, init_threads};
use super::windows::WINDOW_STEPS;
use super::{Args, device, term};
use crate::alloc::driver::host::HostDriverKind;
use crate::alloc::global::{HostAllocator, HostConfig, HostTwin};
use crate::alloc::policy::{Action, EnvSettings, KillSwitch, Prefill};
use crate::alloc::stats::{Known, Snapshot};
use crate::alloc::steps::{Monitored, StepLog, StepLogConfig, fill_memory};
use crate::alloc::{Config, PeakWindow, Peaks};
#[cfg(feature = "cuda")]
use crate::cuda::{self, CudaAllocator, pool::DriverPool};
use crate::decode::{Pass, StepObserver};

/// Steps that are recorded one by one; a longer run keeps its totals and windows.
const RECORDED_STEPS: usize = 16_384;

/// What serves the allocations that are measured.
#[derive(Debug)]
enum Served {
    Host(&'static HostTwin, HostDriverKind),
    #[cfg(feature = "cuda")]
    Cuda(&'static CudaAllocator),
    /// The driver's own pool, because the cache could not be installed.
    #[cfg(feature = "cuda")]
    CudaPool(Box<DriverPool>, String),
}

impl Served {
    fn monitored(&self) -> &dyn Monitored {
        match self {
            Served::Host(twin, _) => *twin,
            #[cfg(feature = "cuda")]
            Served::Cuda(allocator) => *allocator,
            #[cfg(feature = "cuda")]
            Served::CudaPool(pool, _) => &**pool,
        }
    }
}

impl Monitored for Served {
    fn before_forward(&self, seq_len: usize) -> Action {
        self.monitored().before_forward(seq_len)
    }
    fn snapshot(&self) -> Snapshot {
        self.monitored().snapshot()
    }
    fn open_window(&self) -> PeakWindow {
        self.monitored().open_window()
    }
    fn restart_window(&self, window: &PeakWindow) -> Peaks {
        self.monitored().restart_window(window)
    }
    fn known(&self) -> Known {
        self.monitored().known()
    }
}

/// The allocator of this process.
#[derive(Debug)]
pub struct AllocatorRun {
    served: Served,
    kill_switch: KillSwitch,
    prefill: Prefill,
    environment: Vec<EnvVar>,
    stats_steps: Option<u64>,
    max_steps: usize,
}

impl AllocatorRun {
    /// Reads the environment, opens the device, and installs the cache there: under the program's
    /// global allocator on the processor, under candle's CUDA backend on a CUDA device. Values that
    /// are not understood are warned of, once each.
    ///
    /// # Errors
    /// Where it is installed already, or the device cannot be opened.
    pub fn install(
        allocator: &HostAllocator,
        args: &Args,
    ) -> anyhow::Result<(Self, Threads, Device)> {
        args.check()?;
        let settings = EnvSettings::parse(|name| {
            std::env::var_os(name).map(std::os::unix::ffi::OsStringExt::into_vec)
        });
        for warning in settings.warnings() {
            term::log(&format!("warning: {warning}"));
        }
        let kill_switch = settings.kill_switch.value;
        let prefill = settings.prefill.value;
        let config = Config { kill_switch, cap: settings.cap.value, prefill };
        let (served, threads, device) = match args.device {
            DeviceKind::Cpu => {
                let driver = args.host_driver.unwrap_or_default();
                let host = HostConfig { driver, cache: config };
                let served = Served::Host(allocator.install(host)?, driver);
                (served, init_threads(args.threads), Device::Cpu)
            }
            DeviceKind::Cuda(_) => {
                // A driver starts threads of its own, so the program's come first.
                let threads = init_threads(args.threads);
                let device = device::open(args.device)?;
                (serve_cuda(&device, config)?, threads, device)
            }
        };
        let run = AllocatorRun {
            served,
            kill_switch,
            prefill,
            environment: settings.to_report(),
            stats_steps: settings.stats_steps.value,
            max_steps: args.max_tokens.get().min(RECORDED_STEPS),
        };
        Ok((run, threads, device))
    }

    /// An observer that applies the policy before each forward and records each decode step.
    pub fn observer(&self) -> AllocatorObserver<'_> {
        AllocatorObserver {
            run: self,
            log: RefCell::new(None),
            cap_was_looked_at: Cell::new(false),
        }
    }

    fn settings(&self) -> AllocatorSettings {
        let cap = self.served.snapshot().cap;
        let policy = match self.prefill {
            Prefill::Drain => "on for decode, drained for prefill",
            Prefill::Hold => "on for decode, held over prefill",
            Prefill::On => "on for decode and prefill",
        };
        let (state, reason) = match (&self.served, self.kill_switch) {
            #[cfg(feature = "cuda")]
            (Served::CudaPool(_, why), _) => ("driver-pool", why.as_str()),
            (_, KillSwitch::Policy) => ("policy", policy),
            (_, KillSwitch::Killed) => ("killed", "the kill switch keeps it off"),
        };
        let driver = match &self.served {
            Served::Host(_, driver) => driver.as_str(),
            #[cfg(feature = "cuda")]
            Served::Cuda(_) => "cuda",
            #[cfg(feature = "cuda")]
            Served::CudaPool(..) => "cuda-pool",
        };
        AllocatorSettings {
            state: state.to_owned(),
            reason: Some(reason.to_owned()),
            driver: Some(driver.to_owned()),
            cap_bytes: cap.and_then(|effective| effective.cap.bytes()),
            cap_source: cap.map(|effective| effective.source.as_str().to_owned()),
        }
    }

    fn warn_of_cap(&self) {
        if let Some(cap) = self.served.snapshot().cap
            && cap.exceeds_free_memory
        {
            term::log(&format!(
                "warning: the allocator cache's cap ({}) exceeds the free memory",
                cap.source.as_str()
            ));
        }
    }
}

/// Installs the cache under candle's CUDA backend, or, where candle's calls do not come by, falls
/// back to the driver's own pool and says so.
#[cfg(feature = "cuda")]
fn serve_cuda(device: &Device, config: Config) -> anyhow::Result<Served> {
    let error = match cuda::install(device, config) {
        Ok(allocator) => return Ok(Served::Cuda(allocator)),
        Err(error @ cuda::InstallError::Shadowed) => error,
        Err(error) => return Err(error).context("cannot install the allocator cache"),
    };
    term::log(&format!("warning: {error}; using the driver's own memory pool instead"));
    let pool = DriverPool::install(config)
        .with_context(|| format!("there is no fallback either: {error}"))?;
    Ok(Served::CudaPool(Box::new(pool), error.to_string()))
}

#[cfg(not(feature = "cuda"))]
fn serve_cuda(_: &Device, _: Config) -> anyhow::Result<Served> {
    Err(device::without_cuda()).context("cannot install the allocator cache")
}

/// See [`AllocatorRun::observer`].
#[derive(Debug)]
pub struct AllocatorObserver<'a> {
    run: &'a AllocatorRun,
    log: RefCell<Option<StepLog<'a, Served>>>,
    cap_was_looked_at: Cell<bool>,
}

impl AllocatorObserver<'_> {
    /// Fills in the report what the allocator knows.
    pub fn complete(&self, report: &mut CellReport) {
        let run = self.run;
        report.environment.extend(run.environment.iter().cloned());
        report.settings.allocator = Some(run.settings());
        fill_memory(&mut report.memory, &run.served);
        let snapshot = run.served.snapshot();
        report.memory.device_unattributed_bytes = match report.memory.device_used_bytes {
            Some(used_bytes) if run.served.known().held_bytes => {
                Some(used_bytes.saturating_sub(snapshot.gauges.held_bytes))
            }
            _ => None,
        };
        let Some(log) = self.log.take() else { return };
        let (allocator, windows) = log.finish();
        #[cfg(feature = "cuda")]
        let counts_requests = !matches!(run.served, Served::CudaPool(..));
        #[cfg(not(feature = "cuda"))]
        let counts_requests = true;
        report.allocator = counts_requests.then_some(allocator);
        for (window, known) in report.memory.windows.iter_mut().zip(windows) {
            debug_assert_eq!(window.first_step, known.first_step);
            window.live_peak_bytes = known.live_peak_bytes;
            window.idle_peak_bytes = known.idle_peak_bytes;
            window.total_peak_bytes = known.total_peak_bytes;
            window.held_end_bytes = known.held_end_bytes;
        }
    }
}

impl StepObserver for &AllocatorObserver<'_> {
    fn before_pass(&mut self, pass: Pass) {
        if pass == Pass::Measured {
            let config = StepLogConfig {
                steps: self.run.max_steps,
                window_steps: WINDOW_STEPS,
                stats_steps: self.run.stats_steps,
            };
            *self.log.borrow_mut() = Some(StepLog::start(&self.run.served, config));
        }
    }

    fn before_decode_step(&mut self) {
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.begin_decode_step();
        }
    }

    fn before_forward(&mut self, seq_len: usize) {
        let action = self.run.served.before_forward(seq_len);
        let enables = matches!(action, Action::Enable | Action::ServePrefill);
        if enables && !self.cap_was_looked_at.replace(true) {
            self.run.warn_of_cap();
        }
    }

    fn after_decode_step(&mut self, _step: usize) {
        let line = self.log.borrow_mut().as_mut().and_then(StepLog::after_decode_step);
        if let Some(line) = line {
            term::log(&line);
        }
    }
}
