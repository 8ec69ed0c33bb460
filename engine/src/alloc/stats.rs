//! Counters, gauges and how they are read.
//!
//! Counters never fall; two snapshots give the difference over a step. Gauges are what is held now.
//! `hits + misses + bypasses == requests` holds in every snapshot.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use formats::cell_report::AllocCounters;

use crate::alloc::peaks::Peaks;
use crate::alloc::policy::EffectiveCap;

pub use line::Line;

mod line;

/// An enum whose variants have names and index an array of counters.
macro_rules! counter_names {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Its name in reports.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

counter_names! {
    /// Why a request was not considered by the cache.
    Bypass {
        /// The policy has the cache off: prefill, or before the first decode step.
        Off => "off",
        /// The kill switch is thrown.
        Killed => "killed",
        /// Its class is larger than the cap on idle bytes.
        LargerThanCap => "larger_than_cap",
        /// Larger than an eighth of the cap, within a prefill that the cache serves.
        LargePrefill => "large_prefill",
        /// Its alignment is more than the driver gives every block.
        Alignment => "alignment",
        /// Its stream cannot be cached for: the null stream, a per-thread one, or one that is gone.
        Stream => "stream",
        /// It asks for nothing.
        ZeroSize => "zero_size",
        /// No block can be that large.
        TooLarge => "too_large",
        /// The cache was shut down, or this is a forked child.
        Closed => "closed",
        /// Below the size that is sent through the cache.
        Small => "small",
        /// Made before the cache was installed, or by the cache for itself.
        NotInstalled => "not_installed",
    }
}

counter_names! {
    /// Why a block went back to the driver.
    FreeCause {
        /// Evicted: more of its class than were needed over a window.
        Surplus => "surplus",
        /// Evicted: its class was the least recently used.
        LeastRecent => "least_recent",
        /// Evicted: not touched for several windows, without any pressure.
        Aged => "aged",
        /// The policy drained the cache.
        Drain => "drain",
        /// The driver was out of memory, or the owner asked for a flush.
        Flush => "flush",
        /// Freed while the cache was off.
        Off => "off",
        /// Not of a class's size, or allocated within a capture: never kept.
        Unclassed => "unclassed",
        /// Larger than the cap.
        LargerThanCap => "larger_than_cap",
        /// Its stream is gone.
        StreamGone => "stream_gone",
        /// The cache did not allocate it.
        Foreign => "foreign",
        /// The cache was shut down.
        Shutdown => "shutdown",
        /// There was no memory for the record of a new block.
        Metadata => "metadata",
    }
}

impl FreeCause {
    /// Whether this is an eviction: the block was idle and the bound or its age threw it out.
    #[must_use]
    pub fn is_eviction(self) -> bool {
        matches!(self, FreeCause::Surplus | FreeCause::LeastRecent | FreeCause::Aged)
    }
}

counter_names! {
    /// Why the driver was asked for a block.
    AllocCause {
        /// The cache was on and had none.
        Miss => "miss",
        /// The cache did not consider the request.
        Bypass => "bypass",
        /// The cache had none within a capture window.
        CaptureMiss => "capture_miss",
    }
}

counter_names! {
    /// Everything else that is counted.
    Counter {
        /// Requests.
        Requests => "requests",
        /// Served from the cache.
        Hits => "hits",
        /// Fell through to the driver while the cache was on.
        Misses => "misses",
        /// Decode steps that the policy has seen.
        Steps => "steps",
        /// Times that the policy drained the cache.
        Drains => "drains",
        /// Times that the policy held the idle blocks of decode over a prefill.
        Holds => "holds",
        /// Drains that a capture window put off.
        DrainsDeferred => "drains_deferred",
        /// Misses in place of blocks that a drain had given back: what re-warming costs.
        RewarmMisses => "rewarm_misses",
        /// Requests that the driver refused at first for want of memory.
        OomRetries => "oom_retries",
        /// Those of them that succeeded after everything idle was given back.
        OomRescues => "oom_rescues",
        /// Driver allocations that failed.
        AllocFailures => "alloc_failures",
        /// Frees of blocks that the cache did not allocate.
        ForeignFrees => "foreign_frees",
        /// Blocks that were freed on, or used on, another stream than their own.
        CrossStreamFrees => "cross_stream_frees",
        /// Graphs whose blocks were pinned.
        CapturesCommitted => "captures_committed",
        /// Captures that were aborted.
        CapturesAborted => "captures_aborted",
        /// Captures that were refused.
        CapturesRefused => "captures_refused",
        /// Requests within a capture window that the cache could not serve.
        CaptureMisses => "capture_misses",
        /// Frees after shutdown or in a forked child: the block was left alone.
        FreesAfterClose => "frees_after_close",
        /// Nanoseconds within driver calls.
        DriverNs => "driver_ns",
        /// Must be zero: frees of blocks that were not handed out.
        DoubleFrees => "double_frees",
        /// Must be zero: driver frees within a capture window.
        CaptureFrees => "capture_frees",
        /// Must be zero: evictions of blocks that a captured graph has the address of.
        PinnedEvictions => "pinned_evictions",
        /// Must be zero: driver frees that failed.
        FreeFailures => "free_failures",
        /// Must be zero: addresses that the driver handed out while the cache held them.
        StaleAddresses => "stale_addresses",
        /// Must be zero: operations after which idle bytes were over the cap.
        CapOvershoots => "cap_overshoots",
    }
}

/// The counters that must be zero, whatever the workload.
pub const MUST_BE_ZERO: &[Counter] = &[
    Counter::DoubleFrees,
    Counter::CaptureFrees,
    Counter::PinnedEvictions,
    Counter::FreeFailures,
    Counter::StaleAddresses,
    Counter::CapOvershoots,
];

/// All counters. They never fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    plain: [u64; Counter::ALL.len()],
    bypasses: [u64; Bypass::ALL.len()],
    driver_allocs: [u64; AllocCause::ALL.len()],
    driver_frees: [u64; FreeCause::ALL.len()],
}

macro_rules! index_by {
    ($($name:ident => $field:ident),*) => {$(
        impl Index<$name> for Counters {
            type Output = u64;
            #[inline]
            fn index(&self, name: $name) -> &u64 {
                &self.$field[name as usize]
            }
        }
        impl IndexMut<$name> for Counters {
            #[inline]
            fn index_mut(&mut self, name: $name) -> &mut u64 {
                &mut self.$field[name as usize]
            }
        }
    )*};
}
index_by!(Counter => plain, Bypass => bypasses, AllocCause => driver_allocs, FreeCause => driver_frees);

impl Counters {
    /// Requests that the cache did not consider.
    #[must_use]
    pub fn bypasses(&self) -> u64 {
        self.bypasses.iter().sum()
    }

    /// Blocks that the driver gave.
    #[must_use]
    pub fn driver_allocs(&self) -> u64 {
        self.driver_allocs.iter().sum()
    }

    /// Blocks that the driver took back.
    #[must_use]
    pub fn driver_frees(&self) -> u64 {
        self.driver_frees.iter().sum()
    }

    /// Blocks that the bound or their age threw out.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        FreeCause::ALL.iter().filter(|cause| cause.is_eviction()).map(|&cause| self[cause]).sum()
    }

    /// The share of considered requests that the cache served; `None` where there were none.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        let considered = self[Counter::Hits] + self[Counter::Misses];
        (considered > 0).then(|| self[Counter::Hits] as f64 / considered as f64)
    }

    /// What was counted since `earlier`. Saturating, so that a wrong order gives zeroes.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        let mut delta = *self;
        delta.values_mut().zip(earlier.values()).for_each(|(now, then)| {
            *now = now.saturating_sub(then);
        });
        delta
    }

    /// Adds what another source has counted.
    pub fn add(&mut self, other: &Counters) {
        self.values_mut().zip(other.values()).for_each(|(sum, more)| *sum += more);
    }

    /// Whether no counter is below that of `earlier`.
    #[must_use]
    pub fn has_not_fallen_since(&self, earlier: &Counters) -> bool {
        self.values().zip(earlier.values()).all(|(now, then)| now >= then)
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        let groups: [&[u64]; 4] =
            [&self.plain, &self.bypasses, &self.driver_allocs, &self.driver_frees];
        groups.into_iter().flatten().copied()
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let groups: [&mut [u64]; 4] =
            [&mut self.plain, &mut self.bypasses, &mut self.driver_allocs, &mut self.driver_frees];
        groups.into_iter().flatten()
    }

    /// The counters as the cell report wants them; reasons with a count of zero are left out, the
    /// counters that must be zero never are.
    #[must_use]
    pub fn to_report(&self) -> AllocCounters {
        let named = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
            counts.filter(|(_, count)| *count > 0).map(|(name, n)| (name.to_owned(), n)).collect()
        };
        AllocCounters {
            requests: self[Counter::Requests],
            hits: self[Counter::Hits],
            misses: self[Counter::Misses],
            bypasses: named(&mut Bypass::ALL.iter().map(|&why| (why.as_str(), self[why]))),
            driver_allocs: self.driver_allocs(),
            driver_frees: self.driver_frees(),
            evictions: named(
                &mut FreeCause::ALL
                    .iter()
                    .filter(|cause| cause.is_eviction())
                    .map(|&cause| (cause.as_str(), self[cause])),
            ),
            drains: self[Counter::Drains],
            oom_retries: self[Counter::OomRetries],
            oom_rescues: self[Counter::OomRescues],
            host_ns: Some(self[Counter::DriverNs]),
            must_be_zero: MUST_BE_ZERO
                .iter()
                .map(|&counter| (counter.as_str().to_owned(), self[counter]))
                .collect::<BTreeMap<_, _>>(),
        }
    }
}

/// What is held at one moment, in bytes. `live + idle + parked + pinned == held`, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gauges {
    /// Handed out, physical.
    pub live_bytes: u64,
    /// Of that, what the users asked for: the difference is waste by rounding.
    pub live_requested_bytes: u64,
    /// In the class lists.
    pub idle_bytes: u64,
    /// Freed but on the way: within a capture window, behind another stream's event, or about to go
    /// back to the driver.
    pub parked_bytes: u64,
    /// Freed but held, because a captured graph has the address.
    pub pinned_bytes: u64,
    /// Pinned and still handed out; these are part of the live bytes.
    pub pinned_live_bytes: u64,
    /// What the driver has handed to the cache.
    pub held_bytes: u64,
}

impl Gauges {
    /// Physical bytes beyond what was asked for, in the blocks that are handed out.
    #[must_use]
    pub fn waste_bytes(&self) -> u64 {
        self.live_bytes.saturating_sub(self.live_requested_bytes)
    }
}

/// Whether the cache serves requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Off by policy.
    Off,
    /// On.
    On,
    /// On over a prefill: large blocks go past it.
    Prefill,
    /// Off over a prefill, with the idle blocks of decode kept.
    Held,
    /// Off for good by the kill switch.
    Killed,
    /// Shut down: the driver is not called any more.
    Closed,
}

/// Everything that can be read of a cache at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The counters.
    pub counters: Counters,
    /// The gauges.
    pub gauges: Gauges,
    /// Highest values of the cache's life.
    pub peaks: Peaks,
    /// Whether it serves requests.
    pub mode: Mode,
    /// The cap and its source; `None` before the cache was first enabled.
    pub cap: Option<EffectiveCap>,
    /// Blocks that are known, and records that memory is kept for.
    pub blocks: usize,
    /// Number of block records that memory is kept for.
    pub block_records: usize,
    /// Whether more was once pinned than the cap on idle bytes.
    pub pins_exceed_cap: bool,
}

/// What an allocator can tell of itself. The rest is left out of reports instead of being 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The peaks of what it holds.
    pub peaks: bool,
    /// What it holds now.
    pub held_bytes: bool,
    /// The time within driver calls.
    pub driver_time: bool,
}

impl Known {
    /// It knows every block.
    pub const ALL: Known = Known { peaks: true, held_bytes: true, driver_time: true };
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn counters() -> Counters {
        let mut counters = Counters::default();
        counters[Counter::Requests] = 103;
        counters[Counter::Hits] = 90;
        counters[Counter::Misses] = 10;
        counters[Bypass::Off] = 2;
        counters[Bypass::Small] = 1;
        counters[AllocCause::Miss] = 10;
        counters[AllocCause::Bypass] = 2;
        counters[FreeCause::Surplus] = 4;
        counters[FreeCause::Drain] = 3;
        counters
    }

    #[test]
    fn differences_saturate_and_show_a_fall() {
        let earlier = counters();
        let mut later = earlier;
        later[Counter::Hits] += 5;
        later[FreeCause::Aged] += 2;
        let delta = later.since(&earlier);
        assert_eq!((delta[Counter::Hits], delta[FreeCause::Aged], delta.evictions()), (5, 2, 2));
        assert_eq!(delta[Counter::Misses], 0);
        assert_eq!(earlier.since(&later), Counters::default());
        assert!(later.has_not_fallen_since(&earlier));
        assert!(!earlier.has_not_fallen_since(&later));
    }

    #[test]
    fn the_report_names_reasons_and_what_must_be_zero() {
        let report = counters().to_report();
        assert_eq!(report.requests, report.hits + report.misses + 3);
        assert_eq!(report.bypasses, BTreeMap::from([("off".into(), 2), ("small".into(), 1)]));
        assert_eq!(report.evictions, BTreeMap::from([("surplus".into(), 4)]));
        assert_eq!((report.driver_allocs, report.driver_frees), (12, 7));
        let names: Vec<&str> = MUST_BE_ZERO.iter().map(|counter| counter.as_str()).collect();
        assert_eq!(names, formats::cell_report::MUST_BE_ZERO, "what readers hold a report to");
        assert_eq!(report.must_be_zero.len(), MUST_BE_ZERO.len());
        assert_eq!(report.must_be_zero["double_frees"], 0);
    }
}
