//! Held memory over decode steps: how fast it grows, and when the device would be full.
//!
//! A count of driver calls that fell says nothing of the memory that it was bought with, so every
//! comparison shows this beside it.

use formats::cell_report::MemoryWindow;
use serde::{Deserialize, Serialize};

use crate::stats::Interval;
use crate::stats::interval::{Bootstrap, center};
use crate::stats::location::median;
use crate::stats::slope::{Slope, theil_sen};

const MIB: f64 = (1_u64 << 20) as f64;

/// From this many windows on, the first one is left out: a cache fills in it.
const WINDOWS_WITH_WARM_UP: usize = 4;
/// Fewer points than this have no slope worth a word.
const FEWEST_POINTS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HeldSource {
    /// What the allocator holds of the driver: live, idle, parked and pinned bytes.
    Held,
    /// The resident set of the process, where there is no allocator to tell.
    Resident,
}

/// Held memory at the ends of the windows of one run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MemoryCurve {
    pub(crate) source: HeldSource,
    /// (decode steps so far, MiB held), in the order of the windows.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Which word the slope deserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Growth {
    /// The whole interval lies at or below what counts as flat.
    Flat,
    /// The whole interval lies above it.
    Growing,
    /// The interval lies on both sides, or there are too few windows.
    Unclear,
}

impl Growth {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Growth::Flat => "flat",
            Growth::Growing => "growing",
            Growth::Unclear => "unclear",
        }
    }
}

/// What the curves of all runs of one leg say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurveJudgement {
    pub(crate) source: HeldSource,
    /// MiB for each decoded token: the centre of the slopes of the runs.
    pub(crate) slope_mib_per_token: f64,
    /// Where the slope lies with 95 % confidence: the wider of what the runs agree on and what one
    /// run allows.
    pub(crate) interval: Interval,
    pub(crate) growth: Growth,
    /// MiB held at the end of a run: the median of the runs.
    pub(crate) held_end_mib: f64,
    /// The decoded token at which the device is full, where the memory grows and its size is known.
    pub(crate) full_at_token: Option<f64>,
    /// Runs with a curve.
    pub(crate) runs: usize,
}

/// The curve of one run; `None` where the windows tell nothing.
pub(crate) fn curve_from_windows(windows: &[MemoryWindow]) -> Option<MemoryCurve> {
    let points = |bytes: fn(&MemoryWindow) -> Option<u64>| -> Option<Vec<(f64, f64)>> {
        windows
            .iter()
            .map(|window| {
                Some(((window.first_step + window.steps) as f64, bytes(window)? as f64 / MIB))
            })
            .collect()
    };
    let (source, mut points) = match points(|window| window.held_end_bytes) {
        Some(points) => (HeldSource::Held, points),
        None => (HeldSource::Resident, points(|window| window.rss_end_bytes)?),
    };
    if points.len() >= WINDOWS_WITH_WARM_UP {
        points.remove(0);
    }
    (points.len() >= FEWEST_POINTS).then_some(MemoryCurve { source, points })
}

/// MiB for each token; `None` where no two windows end at different steps.
pub(crate) fn curve_slope(curve: &MemoryCurve) -> Option<f64> {
    theil_sen(&curve.points).map(|line| line.slope)
}

/// Judges the curves of a leg's runs.
///
/// `flat_mib_per_token` is what still counts as flat. `None` without a curve, or where runs differ in
/// what they measured.
pub(crate) fn judge_curves(
    curves: &[MemoryCurve],
    flat_mib_per_token: f64,
    device_bytes: Option<u64>,
    bootstrap: Bootstrap,
) -> Option<CurveJudgement> {
    let source = curves.first()?.source;
    if curves.iter().any(|curve| curve.source != source) {
        return None;
    }
    let lines: Vec<Slope> =
        curves.iter().map(|curve| theil_sen(&curve.points)).collect::<Option<_>>()?;
    let of = |value: fn(&Slope) -> f64| lines.iter().map(value).collect::<Vec<_>>();
    let across = center(&of(|line| line.slope), bootstrap)?;
    let mut interval = Interval {
        low: median(&of(|line| line.interval.low))?,
        high: median(&of(|line| line.interval.high))?,
    };
    if lines.len() > 1 {
        interval = interval.hull(across.interval);
    }
    let growth = if interval.low > flat_mib_per_token {
        Growth::Growing
    } else if interval.high <= flat_mib_per_token {
        Growth::Flat
    } else {
        Growth::Unclear
    };
    let ends: Vec<(f64, f64)> =
        curves.iter().filter_map(|curve| curve.points.last().copied()).collect();
    let last_token = median(&ends.iter().map(|end| end.0).collect::<Vec<_>>())?;
    let held_end_mib = median(&ends.iter().map(|end| end.1).collect::<Vec<_>>())?;
    let full_at_token = device_bytes
        .filter(|_| growth == Growth::Growing)
        .map(|bytes| last_token + (bytes as f64 / MIB - held_end_mib).max(0.0) / across.estimate);
    Some(CurveJudgement {
        source,
        slope_mib_per_token: across.estimate,
        interval,
        growth,
        held_end_mib,
        full_at_token,
        runs: curves.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDED: Bootstrap = Bootstrap { seed: 1, stream: 0, resamples: 200 };
    const FLAT: f64 = 0.05;

    fn windows(held: impl Fn(u64) -> Option<u64>, rss: impl Fn(u64) -> u64) -> Vec<MemoryWindow> {
        (0..16)
            .map(|index| MemoryWindow {
                first_step: index * 8,
                steps: 8,
                held_end_bytes: held(index),
                rss_end_bytes: Some(rss(index)),
                ..MemoryWindow::default()
            })
            .collect()
    }

    fn judge(windows: &[MemoryWindow], runs: usize) -> CurveJudgement {
        let curve = curve_from_windows(windows).unwrap();
        judge_curves(&vec![curve; runs], FLAT, Some(143_771 << 20), SEEDED).unwrap()
    }

    #[test]
    fn a_leak_of_six_mib_a_token_is_growing_and_its_end_is_foretold() {
        let leaking = windows(|index| Some((79_043 + 6 * 8 * (index + 1)) << 20), |_| 0);
        let found = judge(&leaking, 6);
        assert!((found.slope_mib_per_token - 6.0).abs() < 1e-9);
        assert_eq!((found.growth, found.source), (Growth::Growing, HeldSource::Held));
        // 143,771 − 79,043 MiB at 6 MiB a token.
        let full_at = found.full_at_token.unwrap();
        assert!((full_at - (143_771.0 - 79_043.0) / 6.0).abs() < 1e-6, "{full_at}");
    }

    #[test]
    fn a_cache_that_fills_once_is_flat() {
        let filled = windows(|index| Some(if index == 0 { 1 << 20 } else { 60 << 20 }), |_| 0);
        let found = judge(&filled, 3);
        assert_eq!((found.slope_mib_per_token, found.growth), (0.0, Growth::Flat));
        assert_eq!(found.full_at_token, None);
    }

    #[test]
    fn without_an_allocator_the_resident_set_stands_in() {
        let resident = windows(|_| None, |index| (100 + index) << 20);
        let found = judge(&resident, 2);
        assert_eq!(found.source, HeldSource::Resident);
        assert!((found.slope_mib_per_token - 0.125).abs() < 1e-12);
        // One window that does not tell is enough to distrust the rest.
        let partly = windows(|index| (index != 5).then_some(7), |_| 3 << 20);
        assert_eq!(curve_from_windows(&partly).unwrap().source, HeldSource::Resident);
    }

    #[test]
    fn a_saw_tooth_within_the_tolerance_is_flat_and_one_spike_changes_nothing() {
        let teeth = windows(|index| Some((100 + index % 2) << 20), |_| 0);
        assert_eq!(judge(&teeth, 3).growth, Growth::Flat);
        let spike = windows(|index| Some(if index == 9 { 900 << 20 } else { 100 << 20 }), |_| 0);
        assert_eq!(judge(&spike, 3).slope_mib_per_token, 0.0);
    }

    #[test]
    fn too_few_windows_have_no_curve() {
        assert_eq!(curve_from_windows(&windows(Some, |_| 0)[..2]), None);
        assert_eq!(curve_from_windows(&[]), None);
        assert_eq!(judge_curves(&[], FLAT, None, SEEDED), None);
    }

    #[test]
    fn runs_that_disagree_widen_the_interval() {
        let at = |slope: u64| {
            curve_from_windows(&windows(|index| Some((100 + slope * index) << 20), |_| 0)).unwrap()
        };
        let curves: Vec<MemoryCurve> = [0, 0, 8, 16, 0, 8].into_iter().map(at).collect();
        let found = judge_curves(&curves, FLAT, None, SEEDED).unwrap();
        assert_eq!(found.growth, Growth::Unclear);
        assert!(found.interval.contains(0.0) && found.interval.contains(1.0), "{found:?}");
    }
}
