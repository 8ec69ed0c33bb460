//! The host allocator in `decode-bench`: set up from the environment, driven by the decode loop's
//! steps, written into the report.

use std::cell::RefCell;

use cell_report::{AllocatorSettings, CellReport, EnvVar};

use super::term;
use super::windows::WINDOW_STEPS;
use crate::alloc::Config;
use crate::alloc::driver::host::HostDriverKind;
use crate::alloc::global::{HostAllocator, HostConfig, HostTwin};
use crate::alloc::policy::{Action, EnvSettings, KillSwitch};
use crate::alloc::steps::{Monitored as _, StepLog, StepLogConfig, fill_memory};
use crate::decode::{Pass, StepObserver};

/// Steps that are recorded one by one; a longer run keeps its totals and windows.
const RECORDED_STEPS: usize = 16_384;

/// The allocator of this process and what is recorded of it.
#[derive(Debug)]
pub struct AllocatorRun {
    twin: &'static HostTwin,
    driver: HostDriverKind,
    kill_switch: KillSwitch,
    environment: Vec<EnvVar>,
    stats_steps: Option<u64>,
    max_steps: usize,
    log: RefCell<Option<StepLog<'static, HostTwin>>>,
}

impl AllocatorRun {
    /// Reads the environment and installs the cache under the program's global allocator. Values
    /// that are not understood are warned of, once each.
    ///
    /// # Errors
    /// Where it was installed before.
    pub fn install(
        allocator: &HostAllocator,
        driver: HostDriverKind,
        max_tokens: usize,
    ) -> anyhow::Result<Self> {
        let settings = EnvSettings::parse(|name| {
            std::env::var_os(name).map(std::os::unix::ffi::OsStringExt::into_vec)
        });
        for warning in settings.warnings() {
            term::log(&format!("warning: {warning}"));
        }
        let kill_switch = settings.kill_switch.value;
        let cache = Config { kill_switch, cap: settings.cap.value };
        Ok(AllocatorRun {
            twin: allocator.install(HostConfig { driver, cache })?,
            driver,
            kill_switch,
            environment: settings.to_report(),
            stats_steps: settings.stats_steps.value,
            max_steps: max_tokens.min(RECORDED_STEPS),
            log: RefCell::new(None),
        })
    }

    /// An observer that applies the policy before each forward and records each decode step.
    pub fn observer(&self) -> AllocatorObserver<'_> {
        AllocatorObserver { run: self }
    }

    /// Fills in the report what the allocator knows.
    pub fn complete(&self, report: &mut CellReport) {
        report.environment.extend(self.environment.iter().cloned());
        report.settings.allocator = Some(self.settings());
        fill_memory(&mut report.memory, self.twin);
        let Some(log) = self.log.take() else { return };
        let (allocator, windows) = log.finish();
        report.allocator = Some(allocator);
        for (window, known) in report.memory.windows.iter_mut().zip(windows) {
            debug_assert_eq!(window.first_step, known.first_step);
            *window = cell_report::MemoryWindow { rss_end_bytes: window.rss_end_bytes, ..known };
        }
    }

    fn settings(&self) -> AllocatorSettings {
        let cap = self.twin.snapshot().cap;
        let (state, reason) = match self.kill_switch {
            KillSwitch::Policy => ("policy", "on for decode, drained for prefill"),
            KillSwitch::Killed => ("killed", "the kill switch keeps it off"),
        };
        AllocatorSettings {
            state: state.to_owned(),
            reason: Some(reason.to_owned()),
            driver: Some(self.driver.as_str().to_owned()),
            cap_bytes: cap.and_then(|effective| effective.cap.bytes()),
            cap_source: cap.map(|effective| effective.source.as_str().to_owned()),
        }
    }

    fn warn_of_cap(&self) {
        if let Some(cap) = self.twin.snapshot().cap
            && cap.exceeds_free_memory
        {
            term::log(&format!(
                "warning: the allocator cache's cap ({}) is larger than the memory that is free",
                cap.source.as_str()
            ));
        }
    }
}

/// See [`AllocatorRun::observer`].
#[derive(Debug)]
pub struct AllocatorObserver<'a> {
    run: &'a AllocatorRun,
}

impl StepObserver for AllocatorObserver<'_> {
    fn before_pass(&mut self, pass: Pass) {
        if pass == Pass::Measured {
            let config = StepLogConfig {
                steps: self.run.max_steps,
                window_steps: WINDOW_STEPS,
                stats_steps: self.run.stats_steps,
            };
            *self.run.log.borrow_mut() = Some(StepLog::start(self.run.twin, config));
        }
    }

    fn before_forward(&mut self, seq_len: usize) {
        let was_settled = self.run.twin.snapshot().cap.is_some();
        if seq_len == 1
            && let Some(log) = &mut *self.run.log.borrow_mut()
        {
            log.begin_decode_step();
        }
        let action = self.run.twin.before_forward(seq_len);
        if action == Action::Enable && !was_settled {
            self.run.warn_of_cap();
        }
    }

    fn after_decode_step(&mut self, _step: usize) {
        let line = self.run.log.borrow_mut().as_mut().and_then(StepLog::after_decode_step);
        if let Some(line) = line {
            term::log(&line);
        }
    }
}
