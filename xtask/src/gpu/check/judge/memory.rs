//! Checks of memory: the curve over many tokens, a tight cap, and a device that is full.

use formats::cell_report::MemoryWindow;
use serde_json::{Value, json};

use super::{Judged, Run, check_same_tokens, with_runs};
use crate::gpu::check::CheckResult;
use crate::gpu::check::plan::{Leg, Setting};
use crate::gpu::check::seen::LegNumbers;
use crate::stats::interval::Bootstrap;
use crate::stats::memory_curve::{
    CurveJudgement, Growth, HeldSource, curve_from_windows, judge_curves,
};

const MIB: f64 = (1_u64 << 20) as f64;
/// Growth that still counts as flat, in MiB a token; as in comparisons.
const FLAT_MIB_PER_TOKEN: f64 = 0.05;
const BOOTSTRAP: Bootstrap = Bootstrap { seed: 1, stream: 0, resamples: 200 };

/// Over many tokens the cache stays under its cap, holds no more than that allows, and changes no
/// token.
///
/// Whether memory grows is reported for each setting: under a cap that the run does not reach, a
/// cache may still be filling.
pub(crate) fn judge_memory(name: &str, runs: &[Run]) -> CheckResult {
    with_runs(name, runs, |measured| {
        let figures: serde_json::Map<String, Value> = measured
            .iter()
            .map(|(leg, numbers)| (leg.setting.name(), curve_figures(numbers)))
            .collect();
        let figures = Value::Object(figures);
        let Some((_, on)) = measured.iter().find(|(leg, _)| leg.setting == Setting::On) else {
            return Judged::not_possible("there was no time for a run with the cache on");
        };
        if let Err(why) = check_under_cap(on).and_then(|()| check_kept(on)) {
            return Judged::fail(format!("on: {why}")).with(figures);
        }
        if let Err(why) = check_same_tokens(measured) {
            return Judged::fail(why).with(figures);
        }
        if judge(on, &on.report.memory.windows).is_none() {
            let windows = on.report.memory.windows.len();
            return Judged::not_possible(format!("on: {windows} windows are too few for a curve"))
                .with(figures);
        }
        let curves: Vec<String> =
            measured.iter().map(|(leg, numbers)| describe_curve(leg, numbers)).collect();
        let tokens = on.report.output.token_ids.len();
        let same = if measured.len() > 1 { "; same tokens" } else { "" };
        Judged::pass(format!("over {tokens} tokens: {}{same}", curves.join(", ")), figures)
    })
}

/// A cap that almost nothing fits under is kept, and changes no token.
///
/// `other` is a run of the same prompt with the cache on.
pub(crate) fn judge_cap(
    name: &str,
    runs: &[Run],
    other: Option<(&Leg, &LegNumbers)>,
) -> CheckResult {
    with_runs(name, runs, |measured| {
        let (leg, numbers) = measured[0];
        let Setting::CapMib(wanted) = leg.setting else {
            return Judged::fail("the run has no cap");
        };
        let cap = numbers.cap_bytes();
        if cap != Some(wanted << 20) {
            let cap = cap.map_or("no cap".to_owned(), |bytes| format!("a cap of {bytes} bytes"));
            return Judged::fail(format!(
                "a cap of {wanted} MiB was requested, but {cap} is in force"
            ));
        }
        if let Err(why) = check_under_cap(numbers) {
            return Judged::fail(why);
        }
        let Some(other) = other else {
            return Judged::not_possible(
                "there is no run without the tight cap to compare tokens with",
            );
        };
        if let Err(why) = check_same_tokens(&[other, (leg, numbers)]) {
            return Judged::fail(why);
        }
        let step = numbers.per_step();
        let calls = step.map_or(String::new(), |step| {
            format!("; {:.1} allocs + {:.1} frees per step", step.driver_allocs, step.driver_frees)
        });
        let idle = numbers.idle_peak_mib().unwrap_or_default();
        // A cap that was never near proves little, and says so.
        let slack = if idle * 2.0 < wanted as f64 { ", which was never close" } else { "" };
        Judged::pass(
            format!(
                "at most {idle:.2} MiB idle under a cap of {wanted} MiB{slack}{calls}; same tokens"
            ),
            json!({ "idle_peak_mib": idle, "per_step": step }),
        )
    })
}

/// A full device is survived: the cache gives back, the allocation succeeds, no token changes.
///
/// `other` is the same run with the device's memory free.
pub(crate) fn judge_oom_rescue(
    name: &str,
    runs: &[Run],
    other: Option<(&Leg, &LegNumbers)>,
) -> CheckResult {
    with_runs(name, runs, |measured| {
        let (leg, numbers) = measured[0];
        let left = leg.leave_free_mib.unwrap_or_default();
        let counted = numbers.total("oom_retries").zip(numbers.total("oom_rescues"));
        let Some((retries, rescues)) = counted else {
            return Judged::fail("the report has no `oom_retries` or no `oom_rescues`");
        };
        let figures = json!({ "left_free_mib": left, "retries": retries, "rescues": rescues });
        if retries == 0 {
            return Judged::not_possible(format!(
                "memory never ran out with {left} MiB left free, so nothing had to be rescued"
            ))
            .with(figures);
        }
        if rescues == 0 {
            return Judged::fail(format!(
                "{retries} allocations were retried and none was rescued"
            ))
            .with(figures);
        }
        let Some(other) = other else {
            return Judged::not_possible("there is no run with free memory to compare tokens with")
                .with(figures);
        };
        if let Err(why) = check_same_tokens(&[other, (leg, numbers)]) {
            return Judged::fail(why).with(figures);
        }
        Judged::pass(
            format!(
                "with {left} MiB left free, {rescues} of {retries} failed allocations were rescued; \
                 same tokens"
            ),
            figures,
        )
    })
}

/// Idle memory never was above the cap.
fn check_under_cap(numbers: &LegNumbers) -> Result<(), String> {
    let cap = numbers.cap_bytes().ok_or("no cap is in force")?;
    let idle =
        numbers.report.memory.idle_peak_bytes.ok_or("the report has no peak of idle bytes")?;
    if idle > cap {
        return Err(format!("{idle} bytes were idle at once, above the cap of {cap}"));
    }
    Ok(())
}

/// Held memory does not grow beyond what was held first and a full cache.
fn check_kept(numbers: &LegNumbers) -> Result<(), String> {
    let windows = &numbers.report.memory.windows;
    let held: Option<Vec<u64>> = windows.iter().map(|window| window.held_end_bytes).collect();
    let held = held.ok_or("the report does not say for every window what is held")?;
    let (Some(&first), Some(&last)) = (held.first(), held.last()) else { return Ok(()) };
    let cap = numbers.cap_bytes().ok_or("no cap is in force")?;
    let is_flat = judge(numbers, windows).is_some_and(|found| found.growth == Growth::Flat);
    if !is_flat && last > first.saturating_add(cap) {
        let mib = |bytes: u64| bytes as f64 / MIB;
        return Err(format!(
            "held memory grew from {:.0} to {:.0} MiB, by more than the cap of {:.0} MiB",
            mib(first),
            mib(last),
            mib(cap)
        ));
    }
    Ok(())
}

fn curve_figures(numbers: &LegNumbers) -> Value {
    let memory = &numbers.report.memory;
    let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / MIB);
    json!({
        "held": judge(numbers, &memory.windows),
        "device": judge(numbers, &device_windows(numbers)),
        "live_peak_mib": mib(memory.live_peak_bytes),
        "idle_peak_mib": mib(memory.idle_peak_bytes),
        "total_peak_mib": mib(memory.total_peak_bytes),
        "device_used_mib": mib(memory.device_used_bytes),
        "device_unattributed_mib": mib(memory.device_unattributed_bytes),
    })
}

/// The windows with what the whole device has in use for what the allocator holds: all there is
/// without a cache, whose allocations nobody adds up.
fn device_windows(numbers: &LegNumbers) -> Vec<MemoryWindow> {
    let total = numbers.report.device.total_memory_bytes;
    let free = |index: usize| {
        let path = format!("/memory/windows/{index}/device_free_end_bytes");
        numbers.json.pointer(&path).and_then(Value::as_u64)
    };
    let windows = numbers.report.memory.windows.iter().enumerate();
    windows
        .map(|(index, window)| MemoryWindow {
            held_end_bytes: total
                .zip(free(index))
                .and_then(|(total, free)| total.checked_sub(free)),
            ..window.clone()
        })
        .collect()
}

/// The curve of one run. The resident set is the host's and says nothing about a device.
fn judge(numbers: &LegNumbers, windows: &[MemoryWindow]) -> Option<CurveJudgement> {
    let curve = curve_from_windows(windows).filter(|curve| curve.source == HeldSource::Held)?;
    judge_curves(&[curve], FLAT_MIB_PER_TOKEN, numbers.report.device.total_memory_bytes, BOOTSTRAP)
}

fn describe_curve(leg: &Leg, numbers: &LegNumbers) -> String {
    let name = leg.setting.name();
    let held = judge(numbers, &numbers.report.memory.windows);
    let device = judge(numbers, &device_windows(numbers));
    let (found, what) = match (held, device) {
        (Some(found), _) => (found, "held"),
        (None, Some(found)) => (found, "of the device in use"),
        (None, None) => return format!("{name} without a curve"),
    };
    format!(
        "{name} {} ({:+.3} MiB a token, {:.0} MiB {what} at the end)",
        found.growth.word(),
        found.slope_mib_per_token,
        found.held_end_mib
    )
}
