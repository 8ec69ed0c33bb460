//! The line with the counters, for people.

use std::fmt::Write as _;

use super::{Bypass, Counters, FreeCause, Known, Snapshot};
use crate::alloc::policy::Cap;

/// One line for people over `steps` decode steps: what reached the driver, and what is held against
/// the cap. `delta` is what was counted over these steps.
#[must_use]
pub fn render_line(
    step: u64,
    steps: u64,
    delta: &Counters,
    now: &Snapshot,
    known: Known,
) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let mib = |bytes: u64| bytes as f64 / MIB;
    let per_step = |count: u64| count as f64 / steps.max(1) as f64;
    let mut line = format!(
        "alloc cache: step {step}: driver allocs/step {:.2}, driver frees/step {:.2}, hit rate ",
        per_step(delta.driver_allocs()),
        per_step(delta.driver_frees()),
    );
    match delta.hit_rate() {
        Some(rate) => write!(line, "{rate:.4}"),
        None => write!(line, "none"),
    }
    .expect("writing to a string");
    let cap = match now.cap.map(|effective| effective.cap) {
        Some(Cap::Bounded(bytes)) => format!("{:.1} MiB", mib(bytes)),
        Some(Cap::Unbounded) => "unbounded".to_owned(),
        None => "not set yet".to_owned(),
    };
    if known.held_bytes {
        let (live, idle) = (mib(now.gauges.live_bytes), mib(now.gauges.idle_bytes));
        write!(line, ", live {live:.1} MiB, idle {idle:.1} MiB of cap {cap}")
            .expect("writing to a string");
    }
    if known.peaks {
        write!(line, ", high water {:.1} MiB", mib(now.peaks.total_bytes))
            .expect("writing to a string");
    }
    if now.gauges.pinned_bytes > 0 {
        let over = if now.pins_exceed_cap { ", more than the cap" } else { "" };
        write!(line, ", pinned {:.1} MiB{over}", mib(now.gauges.pinned_bytes))
            .expect("writing to a string");
    }
    write!(
        line,
        ", bypasses {}, evictions {}",
        render_reasons(Bypass::ALL.iter().map(|&why| (why.as_str(), delta[why]))),
        render_reasons(
            FreeCause::ALL
                .iter()
                .filter(|cause| cause.is_eviction())
                .map(|&cause| (cause.as_str(), delta[cause])),
        ),
    )
    .expect("writing to a string");
    line
}

fn render_reasons(counts: impl Iterator<Item = (&'static str, u64)>) -> String {
    let mut total = 0;
    let mut reasons = vec![];
    for (name, count) in counts.filter(|(_, count)| *count > 0) {
        total += count;
        reasons.push(format!("{name} {count}"));
    }
    match total {
        0 => "0".to_owned(),
        _ => format!("{total} ({})", reasons.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::counters;
    use super::super::{Gauges, Mode};
    use super::*;
    use crate::alloc::peaks::Peaks;
    use crate::alloc::policy::{CapSource, EffectiveCap};

    #[test]
    fn the_line_says_what_reached_the_driver_and_what_is_held() {
        let snapshot = Snapshot {
            counters: counters(),
            gauges: Gauges { live_bytes: 3 << 20, idle_bytes: 1 << 19, ..Gauges::default() },
            peaks: Peaks { total_bytes: 5 << 20, ..Peaks::default() },
            mode: Mode::On,
            cap: Some(EffectiveCap {
                cap: Cap::Bounded(1 << 30),
                source: CapSource::Default,
                exceeds_free_memory: false,
            }),
            blocks: 0,
            block_records: 0,
            pins_exceed_cap: true,
        };
        assert_eq!(
            render_line(64, 4, &counters(), &snapshot, Known::ALL),
            "alloc cache: step 64: driver allocs/step 3.00, driver frees/step 1.75, hit rate \
             0.9000, live 3.0 MiB, idle 0.5 MiB of cap 1024.0 MiB, high water 5.0 MiB, bypasses 3 \
             (off 2, small 1), evictions 4 (surplus 4)"
        );
        let pinned =
            Snapshot { gauges: Gauges { pinned_bytes: 2 << 20, ..Gauges::default() }, ..snapshot };
        let unknown = Known { peaks: false, held_bytes: false, driver_time: true };
        assert_eq!(
            render_line(64, 4, &counters(), &pinned, unknown),
            "alloc cache: step 64: driver allocs/step 3.00, driver frees/step 1.75, hit rate \
             0.9000, pinned 2.0 MiB, more than the cap, bypasses 3 (off 2, small 1), evictions 4 \
             (surplus 4)"
        );
    }
}
