//! The line with the counters, for people.

use std::fmt::Write as _;

use super::{AllocCause, Bypass, Counters, FreeCause, Known, Snapshot};
use crate::alloc::peaks::Peaks;
use crate::alloc::policy::Cap;

const MIB: f64 = (1 << 20) as f64;

/// What a line for people is about: some decode steps.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// The last of them.
    pub step: u64,
    /// How many.
    pub steps: u64,
    /// What was counted over them.
    pub delta: &'a Counters,
    /// The highest values within them.
    pub peaks: Peaks,
    /// What there is at their end.
    pub now: &'a Snapshot,
}

impl Line<'_> {
    /// One line: what reached the driver, what is held against the cap, and the cap with which less
    /// would reach it.
    #[must_use]
    pub fn render(&self, known: Known) -> String {
        let Self { step, delta, now, .. } = *self;
        let mib = |bytes: u64| bytes as f64 / MIB;
        let mut line = format!(
            "alloc cache: step {step}: driver allocs/step {:.2}, driver frees/step {:.2}, hit rate ",
            self.per_step(delta.driver_allocs()),
            self.per_step(delta.driver_frees()),
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
        let evictions = FreeCause::ALL.iter().filter(|cause| cause.is_eviction());
        write!(
            line,
            ", bypasses {}, evictions {}",
            render_reasons(Bypass::ALL.iter().map(|&why| (why.as_str(), delta[why]))),
            render_reasons(evictions.map(|&cause| (cause.as_str(), delta[cause]))),
        )
        .expect("writing to a string");
        if let Some(better) = self.better_cap().filter(|_| known.peaks && known.held_bytes) {
            let calls = self.per_step(self.calls_by_cap());
            write!(
                line,
                "; a cap of {:.0} MiB would end {calls:.0} driver calls a step",
                mib(better)
            )
            .expect("writing to a string");
        }
        line
    }

    fn per_step(&self, count: u64) -> f64 {
        count as f64 / self.steps.max(1) as f64
    }

    /// Driver calls that the cap caused: blocks that went back for it, and as many that had to come
    /// again.
    fn calls_by_cap(&self) -> u64 {
        let delta = self.delta;
        let causes = [FreeCause::Surplus, FreeCause::LeastRecent, FreeCause::LargerThanCap];
        let freed: u64 = causes.iter().map(|&cause| delta[cause]).sum();
        let larger = delta[Bypass::LargerThanCap];
        // Such a block is of no class's size, so it went back for that reason.
        let freed = freed + larger.min(delta[FreeCause::Unclassed]);
        let asked = delta[AllocCause::Miss] + larger;
        freed + freed.min(asked)
    }

    /// The cap, in whole MiB, within which all blocks of a step would have been idle at its end;
    /// `None` where the present one is no less, or caused less than one driver call a step.
    fn better_cap(&self) -> Option<u64> {
        let Some(Cap::Bounded(cap_bytes)) = self.now.cap.map(|effective| effective.cap) else {
            return None;
        };
        // Between the highest and what is live after a step lies what a step takes and gives back.
        let swing_bytes = self.peaks.live_bytes.saturating_sub(self.now.gauges.live_bytes);
        // Some room for blocks that wait for their windows to age out.
        let better = (swing_bytes + swing_bytes / 32).next_multiple_of(1 << 20);
        (better > cap_bytes && self.calls_by_cap() >= self.steps.max(1)).then_some(better)
    }
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
    use super::super::{Counter, Gauges, Mode};
    use super::*;
    use crate::alloc::peaks::Peaks;
    use crate::alloc::policy::{CapSource, EffectiveCap};

    #[test]
    fn the_line_says_what_reached_the_driver_and_what_is_held() {
        let counters = counters();
        let snapshot = Snapshot {
            counters,
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
        let line =
            Line { step: 64, steps: 4, delta: &counters, peaks: snapshot.peaks, now: &snapshot };
        assert_eq!(
            line.render(Known::ALL),
            "alloc cache: step 64: driver allocs/step 3.00, driver frees/step 1.75, hit rate \
             0.9000, live 3.0 MiB, idle 0.5 MiB of cap 1024.0 MiB, high water 5.0 MiB, bypasses 3 \
             (off 2, small 1), evictions 4 (surplus 4)"
        );
        let pinned =
            Snapshot { gauges: Gauges { pinned_bytes: 2 << 20, ..Gauges::default() }, ..snapshot };
        let unknown = Known { peaks: false, held_bytes: false, driver_time: true };
        let line = Line { now: &pinned, ..line };
        assert_eq!(
            line.render(unknown),
            "alloc cache: step 64: driver allocs/step 3.00, driver frees/step 1.75, hit rate \
             0.9000, pinned 2.0 MiB, more than the cap, bypasses 3 (off 2, small 1), evictions 4 \
             (surplus 4)"
        );
    }
    #[test]
    fn a_cap_that_a_step_does_not_fit_into_is_named_with_one_that_it_fits_into() {
        let mut delta = Counters::default();
        for (freed, count) in [(FreeCause::LeastRecent, 300), (FreeCause::Surplus, 100)] {
            delta[freed] = count;
        }
        delta[AllocCause::Miss] = 420;
        delta[Counter::Misses] = 420;
        let bounded = |bytes| EffectiveCap {
            cap: Cap::Bounded(bytes),
            source: CapSource::Default,
            exceeds_free_memory: false,
        };
        let now = Snapshot {
            counters: delta,
            gauges: Gauges { live_bytes: 1 << 30, ..Gauges::default() },
            peaks: Peaks::default(),
            mode: Mode::On,
            cap: Some(bounded(1 << 30)),
            blocks: 0,
            block_records: 0,
            pins_exceed_cap: false,
        };
        let peaks = Peaks { live_bytes: 4 << 30, ..Peaks::default() };
        let line = Line { step: 8, steps: 8, delta: &delta, peaks, now: &now };
        let text = line.render(Known::ALL);
        let end = "; a cap of 3168 MiB would end 100 driver calls a step";
        assert!(text.ends_with(end), "{text}");
        // With that cap, without calls that it caused, or without knowing the peaks: nothing.
        let wide = Snapshot { cap: Some(bounded(3168 << 20)), ..now };
        let quiet = Counters::default();
        for line in [Line { now: &wide, ..line }, Line { delta: &quiet, ..line }] {
            assert!(!line.render(Known::ALL).contains("would end"));
        }
        assert!(!line.render(Known { peaks: false, ..Known::ALL }).contains("would end"));
    }
}
