//! What the cache promises on whole patterns: periodic ones, ones that only grow, and the shape of a
//! real decode step.

#[path = "../benches/alloc_replay/workload.rs"]
#[allow(dead_code, reason = "the benchmark uses the rest")]
mod workload;

use engine::alloc::driver::sim::SimDriver;
use engine::alloc::stats::{Counters, FreeCause, MUST_BE_ZERO};
use engine::alloc::{Cache, Config, FreeRequest, Peaks, Request};
use workload::{DecodeShape, Event, KvGrowth, PeriodFour, Recorded, StepKind, Workload};

const MIB: u64 = 1 << 20;

/// What one replay gave.
struct Outcome {
    counters: Counters,
    at_warm_up: Counters,
    peaks: Peaks,
    held_bytes: Vec<u64>,
    block_records: usize,
}

fn replay(workload: &dyn Workload, warm_up_steps: usize) -> Outcome {
    let cache: Cache<SimDriver> = Cache::new(SimDriver::new(), Config::default());
    let mut slots = vec![engine::alloc::driver::Address::EMPTY; workload.slots()];
    let mut events = vec![];
    let mut held_bytes = vec![];
    let mut at_warm_up = Counters::default();
    for step in 0..workload.steps() {
        events.clear();
        let kind = workload.fill(step, &mut events);
        cache.before_forward(if kind == StepKind::Decode { 1 } else { 512 });
        if step == warm_up_steps {
            at_warm_up = cache.snapshot().counters;
        }
        for event in &events {
            match *event {
                Event::Alloc { slot, bytes } => {
                    let request = Request { align: 256, ..Request::of_bytes(bytes) };
                    slots[slot as usize] = cache.alloc(request).unwrap().address;
                }
                // SAFETY: the simulated driver has no memory behind its addresses.
                Event::Free { slot } => unsafe {
                    cache.free(FreeRequest::of(slots[slot as usize]));
                },
            }
        }
        held_bytes.push(cache.gauges().held_bytes);
    }
    cache.audit().unwrap();
    let snapshot = cache.snapshot();
    for &counter in MUST_BE_ZERO {
        assert_eq!(snapshot.counters[counter], 0, "{counter:?}");
    }
    let counts = cache.driver().counts();
    assert_eq!(counts.faults, Vec::<String>::new());
    assert_eq!(counts.held_bytes, snapshot.gauges.held_bytes);
    Outcome {
        counters: snapshot.counters,
        at_warm_up,
        peaks: snapshot.peaks,
        held_bytes,
        block_records: snapshot.block_records,
    }
}

#[test]
fn a_periodic_trace_that_fits_makes_no_driver_call_after_warm_up() {
    let outcome = replay(&PeriodFour, 100);
    let delta = outcome.counters.since(&outcome.at_warm_up);
    assert_eq!((delta.driver_allocs(), delta.driver_frees(), delta.bypasses()), (0, 0, 0));
}

#[test]
fn a_trace_that_only_grows_stays_within_the_cap() {
    // Every step of 128k tokens of context is replayed, one in four where debug checks slow it down.
    let stride = if cfg!(debug_assertions) { 4 } else { 1 };
    let outcome = replay(&KvGrowth::to_128k(stride), 0);
    assert!(outcome.counters.driver_frees() > 0);
    assert!(outcome.counters.evictions() > 0);
    assert!(outcome.peaks.idle_bytes <= 1 << 30);
    assert!(outcome.block_records <= 4096, "{} records", outcome.block_records);
    let capped = outcome.held_bytes.iter().position(|&held| held >= (1 << 30) / 8 * 7);
    let from = capped.expect("the cap is reached");
    let steps = (outcome.held_bytes.len() - from) as u64 * stride;
    let last = *outcome.held_bytes.last().unwrap();
    let growth_bytes = last.saturating_sub(outcome.held_bytes[from]);
    assert!(growth_bytes / steps < MIB / 20, "{growth_bytes} bytes over {steps} steps");
}

#[test]
fn the_decode_shape_reaches_the_driver_at_most_once_a_step() {
    let shape = DecodeShape::USUAL;
    let outcome = replay(&shape, 50);
    let delta = outcome.counters.since(&outcome.at_warm_up);
    let calls = delta.driver_allocs() + delta.driver_frees();
    assert!(calls <= shape.steps as u64 - 50, "{calls} driver calls after step 50");
    assert!(outcome.peaks.idle_bytes < 64 * MIB, "{} bytes idle", outcome.peaks.idle_bytes);
    assert_eq!(delta[FreeCause::LeastRecent], 0, "nothing of the working set is evicted");
}

#[test]
fn the_recorded_decode_loops_mostly_hit() {
    for (file, lowest_hit_rate) in [("kv100.bin.gz", 0.95), ("kv2000.bin.gz", 0.99)] {
        let Some(trace) = Recorded::read("recorded", file, 4096) else {
            skip(file);
            continue;
        };
        let outcome = replay(&trace, 0);
        let hit_rate = outcome.counters.hit_rate().unwrap();
        assert!(hit_rate >= lowest_hit_rate, "{file}: hit rate {hit_rate}");
        assert!(outcome.peaks.idle_bytes <= 1 << 30);
    }
}

#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn skip(file: &str) {
    eprintln!("skipped: the shared trace {file} is not there");
}
