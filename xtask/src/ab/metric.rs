//! The quantities that runs are compared by: their names, their better direction, and how each is
//! read from one run's cell report. It compares nothing.

use std::collections::BTreeMap;

use formats::cell_report::{AllocCounters, CellReport};
use serde::{Deserialize, Serialize};

use crate::base::nearest::nearest;
use crate::cell::runner::Measured;
use crate::stats::memory_curve::{curve_from_windows, curve_slope};
use crate::stats::verdict::Better;

const MIB: f64 = (1_u64 << 20) as f64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Decode steps over their time, in tokens a second.
    DecodeTokS,
    /// Time of one decode step: decode time over steps, in milliseconds.
    MsPerToken,
    /// Prompt tokens over prefill time, in tokens a second.
    PrefillTokS,
    /// Model load time in milliseconds.
    LoadMs,
    /// Real allocations by the driver for each decode step.
    DriverAllocsPerStep,
    /// Real frees by the driver for each decode step.
    DriverFreesPerStep,
    /// Host time within the allocator for each decode step, in milliseconds.
    AllocMsPerStep,
    /// Highest bytes handed out by the allocator in the process's life, in MiB.
    LivePeakMib,
    /// Highest resident set of the process, in MiB.
    RssPeakMib,
    /// Growth of held memory over the decode windows, in MiB for each token.
    SlopeMibPerToken,
}

/// What kind of number a metric is: it decides how it is shown and which gates make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A throughput or a time: never the same twice.
    Time,
    /// A count of calls: the same in every run of a deterministic program.
    Count,
    Memory,
    /// Bytes a token, of either sign.
    Slope,
}

impl Metric {
    /// In the order in which tables show them.
    pub(crate) const ALL: [Metric; 10] = [
        Metric::DecodeTokS,
        Metric::MsPerToken,
        Metric::PrefillTokS,
        Metric::LoadMs,
        Metric::DriverAllocsPerStep,
        Metric::DriverFreesPerStep,
        Metric::AllocMsPerStep,
        Metric::LivePeakMib,
        Metric::RssPeakMib,
        Metric::SlopeMibPerToken,
    ];

    /// Its name in gates and result files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::DecodeTokS => "decode_tok_s",
            Metric::MsPerToken => "ms_per_token",
            Metric::PrefillTokS => "prefill_tok_s",
            Metric::LoadMs => "load_ms",
            Metric::DriverAllocsPerStep => "driver_allocs_per_step",
            Metric::DriverFreesPerStep => "driver_frees_per_step",
            Metric::AllocMsPerStep => "alloc_ms_per_step",
            Metric::LivePeakMib => "live_peak_mib",
            Metric::RssPeakMib => "rss_peak_mib",
            Metric::SlopeMibPerToken => "slope_mib_per_token",
        }
    }

    /// Its name in tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Metric::DecodeTokS => "tok/s",
            Metric::MsPerToken => "ms/token",
            Metric::PrefillTokS => "prefill tok/s",
            Metric::LoadMs => "load ms",
            Metric::DriverAllocsPerStep => "driver allocs per step",
            Metric::DriverFreesPerStep => "driver frees per step",
            Metric::AllocMsPerStep => "host ms per step",
            Metric::LivePeakMib => "peak live MiB",
            Metric::RssPeakMib => "peak resident MiB",
            Metric::SlopeMibPerToken => "MiB/token",
        }
    }

    pub(crate) fn better(self) -> Better {
        match self {
            Metric::DecodeTokS | Metric::PrefillTokS => Better::Higher,
            _ => Better::Lower,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Metric::DecodeTokS | Metric::MsPerToken | Metric::PrefillTokS | Metric::LoadMs => {
                Kind::Time
            }
            Metric::AllocMsPerStep => Kind::Time,
            Metric::DriverAllocsPerStep | Metric::DriverFreesPerStep => Kind::Count,
            Metric::LivePeakMib | Metric::RssPeakMib => Kind::Memory,
            Metric::SlopeMibPerToken => Kind::Slope,
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Metric> {
        Metric::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// A value with the digits that it deserves.
    pub(crate) fn render(self, value: f64) -> String {
        match self {
            Metric::DecodeTokS | Metric::PrefillTokS | Metric::LoadMs => format!("{value:.2}"),
            Metric::MsPerToken | Metric::AllocMsPerStep => format!("{value:.3}"),
            Metric::DriverAllocsPerStep | Metric::DriverFreesPerStep => format!("{value:.2}"),
            Metric::LivePeakMib | Metric::RssPeakMib => format!("{value:.1}"),
            Metric::SlopeMibPerToken => format!("{value:.4}"),
        }
    }
}

/// What is wrong with a name that is not a metric's, the nearest one and all others.
pub(crate) fn describe_unknown(name: &str) -> String {
    let known = Metric::ALL.map(Metric::name);
    let near = nearest(name, known.into_iter())
        .map(|near| format!(", did you mean `{near}`?"))
        .unwrap_or_default();
    format!("no metric `{name}`{near}; the metrics are {}", known.join(", "))
}

/// The metrics of one run. What was not measured is not in it.
pub(crate) type Values = BTreeMap<Metric, f64>;

/// Reads the metrics of one run from what its runner measured and, where there is one, its report.
///
/// `child_rss_peak_bytes` is what the system says of the process; the report's own figure, where it
/// has one, is of the same process and is preferred.
pub(crate) fn read_values(
    measured: &Measured,
    report: Option<&CellReport>,
    child_rss_peak_bytes: Option<u64>,
) -> Values {
    let steps = report.and_then(per_step);
    let memory = report.map(|report| &report.memory);
    let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / MIB);
    let value = |metric| match metric {
        Metric::DecodeTokS => measured.decode_tok_s,
        Metric::MsPerToken => measured.decode_tok_s.map(|tok_s| 1e3 / tok_s),
        Metric::PrefillTokS => measured.prefill_tok_s,
        Metric::LoadMs => report.and_then(|report| report.timing.load_ms),
        Metric::DriverAllocsPerStep => steps.map(|steps| steps.driver_allocs),
        Metric::DriverFreesPerStep => steps.map(|steps| steps.driver_frees),
        Metric::AllocMsPerStep => steps.and_then(|steps| steps.host_ms),
        Metric::LivePeakMib => mib(memory.and_then(|memory| memory.live_peak_bytes)),
        Metric::RssPeakMib => {
            mib(memory.and_then(|memory| memory.rss_peak_bytes).or(child_rss_peak_bytes))
        }
        Metric::SlopeMibPerToken => {
            memory.and_then(|memory| curve_slope(&curve_from_windows(&memory.windows)?))
        }
    };
    Metric::ALL
        .into_iter()
        .filter_map(|metric| Some((metric, value(metric)?)))
        .filter(|(_, value)| value.is_finite())
        .collect()
}

/// Means over the decode steps.
#[derive(Debug, Clone, Copy)]
struct PerStep {
    driver_allocs: f64,
    driver_frees: f64,
    host_ms: Option<f64>,
}

fn per_step(report: &CellReport) -> Option<PerStep> {
    let steps = &report.allocator.as_ref()?.decode_steps;
    if steps.is_empty() {
        return None;
    }
    let count = steps.len() as f64;
    let mean = |of: fn(&AllocCounters) -> u64| steps.iter().map(of).sum::<u64>() as f64 / count;
    let host_ns: Option<u64> = steps.iter().map(|step| step.host_ns).sum();
    Some(PerStep {
        driver_allocs: mean(|step| step.driver_allocs),
        driver_frees: mean(|step| step.driver_frees),
        host_ms: host_ns.map(|ns| ns as f64 / count / 1e6),
    })
}

#[cfg(test)]
mod tests {
    use formats::cell_report::{AllocatorReport, MemoryWindow};

    use super::*;

    #[test]
    fn names_are_read_back_and_unique() {
        for metric in Metric::ALL {
            assert_eq!(Metric::parse(metric.name()), Some(metric));
            assert_eq!(
                serde_json::to_value(metric).unwrap(),
                serde_json::Value::from(metric.name()),
                "the name in gates is the name in files"
            );
        }
        assert_eq!(Metric::parse("decode"), None);
    }

    #[test]
    fn values_of_a_report_by_hand() {
        let mut report = CellReport::default();
        report.timing.load_ms = Some(12.5);
        report.memory.live_peak_bytes = Some(3 << 20);
        report.memory.rss_peak_bytes = Some(10 << 20);
        report.memory.windows = (0..6)
            .map(|index| MemoryWindow {
                first_step: index * 8,
                steps: 8,
                held_end_bytes: Some((100 + 16 * index) << 20),
                ..MemoryWindow::default()
            })
            .collect();
        let step = |allocs, frees, ns| AllocCounters {
            driver_allocs: allocs,
            driver_frees: frees,
            host_ns: Some(ns),
            ..AllocCounters::default()
        };
        report.allocator = Some(AllocatorReport {
            totals: AllocCounters::default(),
            decode_steps: vec![step(5, 1, 2_000_000), step(0, 2, 1_000_000)],
        });
        let measured = Measured { decode_tok_s: Some(20.0), ..Measured::default() };
        let values = read_values(&measured, Some(&report), Some(11 << 20));
        let expected = [
            (Metric::DecodeTokS, 20.0),
            (Metric::MsPerToken, 50.0),
            (Metric::LoadMs, 12.5),
            (Metric::DriverAllocsPerStep, 2.5),
            (Metric::DriverFreesPerStep, 1.5),
            (Metric::AllocMsPerStep, 1.5),
            (Metric::LivePeakMib, 3.0),
            (Metric::RssPeakMib, 10.0),
            (Metric::SlopeMibPerToken, 2.0),
        ];
        assert_eq!(values, Values::from(expected));
    }

    #[test]
    fn what_was_not_measured_is_not_there() {
        let values = read_values(&Measured::default(), Some(&CellReport::default()), None);
        assert!(values.is_empty(), "{values:?}");
        let foreign = Measured { prefill_tok_s: Some(400.0), ..Measured::default() };
        let values = read_values(&foreign, None, Some(1 << 20));
        assert_eq!(values, Values::from([(Metric::PrefillTokS, 400.0), (Metric::RssPeakMib, 1.0)]));
    }

    #[test]
    fn host_time_is_unknown_if_one_step_does_not_tell() {
        let told = AllocCounters { host_ns: Some(1), ..AllocCounters::default() };
        let report = CellReport {
            allocator: Some(AllocatorReport {
                totals: AllocCounters::default(),
                decode_steps: vec![told, AllocCounters::default()],
            }),
            ..CellReport::default()
        };
        let values = read_values(&Measured::default(), Some(&report), None);
        assert_eq!(values.get(&Metric::AllocMsPerStep), None);
        assert_eq!(values.get(&Metric::DriverAllocsPerStep), Some(&0.0));
    }
}
