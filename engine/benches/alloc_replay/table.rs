//! Runs all peers interleaved over one pattern and prints their table.

use crate::peer::{DRIVER_CALL_NS, PeerFactory, Replay, Timing};
use crate::workload::Workload;

const MIB: f64 = (1 << 20) as f64;

/// One peer's replays, one for each round.
struct Samples<'a> {
    peer: &'a PeerFactory,
    rounds: Vec<Replay>,
    worst_free_us: f64,
}

impl Samples<'_> {
    /// Each round's median step: a preempted step does not move it.
    fn ns_per_pair(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| median(&round.step_ns_per_pair)).collect()
    }
}

/// Each round runs every peer once, in an order that turns, so that a drift of the machine falls on
/// all of them.
pub(crate) fn compare(workload: &dyn Workload, peers: &[PeerFactory], rounds: usize) {
    let mut samples: Vec<Samples<'_>> =
        peers.iter().map(|peer| Samples { peer, rounds: vec![], worst_free_us: 0.0 }).collect();
    for round in 0..rounds {
        for turn in 0..peers.len() {
            let sample = &mut samples[(round + turn) % peers.len()];
            sample.rounds.push(sample.peer.replay(workload, Timing::Steps));
        }
    }
    for sample in &mut samples {
        let replay = sample.peer.replay(workload, Timing::Frees);
        sample.worst_free_us = replay.worst_free.as_nanos() as f64 / 1000.0;
    }
    print_table(workload, &samples);
}

fn print_table(workload: &dyn Workload, samples: &[Samples<'_>]) {
    let ours = samples[0].ns_per_pair();
    let first = &samples[0].rounds[0];
    println!(
        "\n### {}: {} steps, {} pairs a step\n",
        workload.name(),
        workload.steps(),
        first.pairs / workload.steps() as u64
    );
    println!(
        "| allocator | ns/pair (min–max) | p99 step | worst free µs | ratio to ours (min–max) | \
         driver calls/step | ns/pair with driver | peak held MiB | waste at peak | misses after \
         warm-up | cost × memory |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for sample in samples {
        println!("{}", render_row(workload, sample, &ours));
    }
}

fn render_row(workload: &dyn Workload, sample: &Samples<'_>, ours: &[f64]) -> String {
    let times = sample.ns_per_pair();
    let replay = &sample.rounds[0];
    let mut steps: Vec<f64> =
        sample.rounds.iter().flat_map(|r| r.step_ns_per_pair.iter().copied()).collect();
    let ratios: Vec<f64> = times.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
    let speed = format!(
        "| {} | {:.1} ({:.1}–{:.1}) | {:.1} | {:.1} | {:.2} ({:.2}–{:.2}) |",
        sample.peer.name,
        median(&times),
        lowest(&times),
        highest(&times),
        quantile(&mut steps, 0.99),
        sample.worst_free_us,
        median(&ratios),
        lowest(&ratios),
        highest(&ratios),
    );
    if !sample.peer.counted {
        return format!("{speed} – | – | – | – | – | – |");
    }
    let driver_ns = replay.driver_calls as f64 * DRIVER_CALL_NS / replay.pairs as f64;
    let total_ns = median(&times) + driver_ns;
    let peak_mib = replay.held_peak_bytes as f64 / MIB;
    let waste = replay.held_peak_bytes as f64 / replay.requested_peak_bytes as f64;
    format!(
        "{speed} {:.2} | {total_ns:.1} | {peak_mib:.1} | {waste:.2}× | {} | {:.0} |",
        replay.driver_calls as f64 / workload.steps() as f64,
        replay.driver_allocs_after_warm_up,
        total_ns * peak_mib,
    )
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}

fn median(values: &[f64]) -> f64 {
    quantile(&mut values.to_vec(), 0.5)
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
