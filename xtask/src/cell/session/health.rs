//! The watch over the driver's health between the launches of a session.

use std::time::Duration;

use crate::base::diagnostic::HintExt as _;
use crate::cell::executor::Executor;
use crate::cell::health::{Look, SYSTEM_MEMORY, Waited, Watched, await_health};
use crate::cell::outcome::CellOutcome;

/// How long a driver has to be well again.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the machine was before the first launch, and whether a launch since may have changed it.
///
/// Who computes on the GPU before the first launch is not judged here: that belongs to the watch for
/// quiet, which every command has that uses this one.
#[derive(Debug, Default)]
pub(super) struct HealthWatch {
    healthy: Option<Look>,
    is_due: bool,
}

/// Whether a cell may be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    /// An interrupt came while it was waited for.
    Interrupted,
}

impl HealthWatch {
    /// Looks where a launch since the last look may have left the driver ill. Where there is no GPU, only
    /// the first launch is looked at.
    ///
    /// # Errors
    /// When the driver stays ill.
    pub(super) fn check(&mut self, executor: &mut impl Executor) -> anyhow::Result<Fit> {
        let Some(healthy) = &self.healthy else {
            self.healthy = Some(executor.look().with_all_standing());
            return Ok(Fit::Yes);
        };
        if !self.is_due || !healthy.has_gpu() {
            return Ok(Fit::Yes);
        }
        match await_health(executor, Some(healthy), Watched::Gpus, PATIENCE, |_| {}) {
            Waited::Healthy(_) => {
                self.is_due = false;
                Ok(Fit::Yes)
            }
            Waited::Interrupted => Ok(Fit::Interrupted),
            Waited::Sick(sick) => Err(anyhow::anyhow!("the driver is not healthy: {sick}")).hint(
                "nothing was launched since, and everything finished is on disk; end what else runs on the \
                 GPU, reset it (`sudo nvidia-smi --gpu-reset`) or reboot, then go on",
            ),
        }
    }

    pub(super) fn note(&mut self, outcome: &CellOutcome) {
        let memory =
            |look: &Look| look.pools.iter().find(|pool| pool.name == SYSTEM_MEMORY).cloned();
        let memory_bytes = self.healthy.as_ref().and_then(memory).map(|pool| pool.total_bytes);
        self.is_due |= outcome.may_have_hurt_driver(memory_bytes);
    }
}
