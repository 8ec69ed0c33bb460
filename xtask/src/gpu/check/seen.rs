//! What one run showed, as the checks read it.

use formats::cell_report::{AllocCounters, CellReport};

use crate::stats::location::median;

const MIB: f64 = (1_u64 << 20) as f64;

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LegEnd {
    Measured(Box<LegNumbers>),
    /// It left no numbers, through the program's fault.
    Failed(String),
    /// It was not made, or was ended because the time was up.
    Skipped(String),
}

impl LegEnd {
    pub(crate) fn numbers(&self) -> Option<&LegNumbers> {
        match self {
            LegEnd::Measured(numbers) => Some(numbers),
            LegEnd::Failed(_) | LegEnd::Skipped(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LegNumbers {
    pub(crate) report: CellReport,
    /// The same as it was written, with what this version does not know.
    pub(crate) json: serde_json::Value,
    /// Seconds from start to end of the process.
    pub(crate) wall_s: f64,
}

/// Driver calls of a decode step, on average over the second half of the steps: the first ones fill
/// the cache.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct PerStep {
    pub(crate) driver_allocs: f64,
    pub(crate) driver_frees: f64,
    /// Host time in driver calls; `None` where it was not measured.
    pub(crate) host_ms: Option<f64>,
}

impl LegNumbers {
    /// Driver calls of a step; `None` where the report counts none.
    pub(crate) fn per_step(&self) -> Option<PerStep> {
        let steps = &self.report.allocator.as_ref()?.decode_steps;
        let half = &steps[steps.len() / 2..];
        if half.is_empty() {
            return None;
        }
        let mean = |of: &dyn Fn(&AllocCounters) -> f64| {
            half.iter().map(of).sum::<f64>() / half.len() as f64
        };
        let has_times = half.iter().all(|step| step.host_ns.is_some());
        Some(PerStep {
            driver_allocs: mean(&|step| step.driver_allocs as f64),
            driver_frees: mean(&|step| step.driver_frees as f64),
            host_ms: has_times.then(|| mean(&|step| step.host_ns.unwrap_or_default() as f64 / 1e6)),
        })
    }

    pub(crate) fn step_ms(&self) -> Option<f64> {
        median(&self.report.timing.decode_step_ms)
    }

    pub(crate) fn tok_s(&self) -> Option<f64> {
        let timing = &self.report.timing;
        let ms = timing.decode_ms.filter(|ms| *ms > 0.0)?;
        Some(timing.decode_step_ms.len() as f64 / ms * 1e3)
    }

    pub(crate) fn idle_peak_mib(&self) -> Option<f64> {
        self.report.memory.idle_peak_bytes.map(|bytes| bytes as f64 / MIB)
    }

    /// A counter of the allocator's totals, which this version of the format may not know.
    pub(crate) fn total(&self, name: &str) -> Option<u64> {
        self.json.pointer(&format!("/allocator/totals/{name}"))?.as_u64()
    }

    /// The allocator's state and driver, as the report names them.
    pub(crate) fn allocator(&self) -> (&str, &str) {
        let settings = self.report.settings.allocator.as_ref();
        let state = settings.map_or("none", |settings| settings.state.as_str());
        let driver = settings.and_then(|settings| settings.driver.as_deref()).unwrap_or("none");
        (state, driver)
    }

    pub(crate) fn cap_bytes(&self) -> Option<u64> {
        self.report.settings.allocator.as_ref()?.cap_bytes
    }

    pub(crate) fn card(&self) -> Option<&str> {
        self.report.device.name.as_deref().filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_that_fill_the_cache_are_left_out() {
        let step = |allocs, host_ns| AllocCounters {
            driver_allocs: allocs,
            driver_frees: 1,
            host_ns,
            ..AllocCounters::default()
        };
        let mut numbers = LegNumbers {
            report: CellReport::default(),
            json: serde_json::Value::Null,
            wall_s: 1.0,
        };
        assert_eq!(numbers.per_step(), None);
        let steps = vec![
            step(900, Some(7)),
            step(800, None),
            step(2, Some(2_000_000)),
            step(4, Some(4_000_000)),
        ];
        numbers.report.allocator = Some(formats::cell_report::AllocatorReport {
            decode_steps: steps,
            ..Default::default()
        });
        let found = numbers.per_step().unwrap();
        assert_eq!((found.driver_allocs, found.driver_frees), (3.0, 1.0));
        assert!((found.host_ms.unwrap() - 3.0).abs() < 1e-12);
        // One step that was not timed is enough to have no time.
        numbers.report.allocator.as_mut().unwrap().decode_steps[3].host_ns = None;
        assert_eq!(numbers.per_step().unwrap().host_ms, None);
    }

    #[test]
    fn counters_that_the_types_lack_are_read_from_the_text() {
        let json = serde_json::json!({"allocator": {"totals": {"oom_retries": 2}}});
        let numbers = LegNumbers { report: CellReport::default(), json, wall_s: 1.0 };
        assert_eq!(numbers.total("oom_retries"), Some(2));
        assert_eq!(numbers.total("oom_rescues"), None);
        assert_eq!(numbers.allocator(), ("none", "none"));
    }
}
