//! Replays allocation patterns through the cache and through others, side by side.
//!
//! `cargo bench -p engine --bench alloc_replay [-- OPTIONS]` prints one table for each pattern.
//!
//! - `--rounds N`: rounds in each of which every product runs once (default 7)
//! - `--only TEXT`: patterns whose name contains the text
//! - `--peers TEXT`: products whose name contains the text, beside ours
//! - `--steps N`: the first steps of each pattern
//! - `--instructions`: instructions a pair under callgrind in place of times; the build must not use
//!   what callgrind cannot decode: `RUSTFLAGS="-C target-cpu=x86-64-v3"`
//! - `--single PRODUCT PATTERN`: one replay and nothing else
#![allow(clippy::print_stdout, reason = "a benchmark's output is its tables")]

#[path = "alloc_replay/bfc.rs"]
mod bfc;
#[path = "alloc_replay/guarded.rs"]
mod guarded;
#[path = "alloc_replay/instructions.rs"]
mod instructions;
#[path = "alloc_replay/peer.rs"]
mod peer;
#[cfg(feature = "alloc-peers")]
#[path = "alloc_replay/peers.rs"]
mod peers;
#[path = "alloc_replay/policies.rs"]
mod policies;
#[path = "alloc_replay/table.rs"]
mod table;
#[path = "alloc_replay/workload.rs"]
mod workload;

use engine::alloc::Config;
use engine::alloc::lock::SpinLock;
use engine::alloc::policy::{CapRequest, Prefill};
use peer::{Ours, PeerFactory, SystemAllocator, Timing};
use workload::{
    DecodeShape, FirstSteps, KvGrowth, MultiTurn, OddSizes, PeriodFour, PrefillInterleave,
    Recorded, Serving, Workload,
};

fn all_peers() -> Vec<PeerFactory> {
    let mut peers =
        vec![PeerFactory::of::<Ours>("ours"), PeerFactory::of::<Ours<SpinLock>>("ours, spin lock")];
    for (name, prefill) in [("ours, hold", Prefill::Hold), ("ours, on", Prefill::On)] {
        let config = Config { prefill, ..Config::default() };
        peers.push(PeerFactory::made_by(name, move || <Ours>::with(config)));
    }
    // The cap that the statistics line suggests for KV growth.
    let config = Config { cap: CapRequest::Bytes(3200 << 20), ..Config::default() };
    peers.push(PeerFactory::made_by("ours, cap 3200 MiB", move || <Ours>::with(config)));
    peers.extend(policies::factories());
    #[cfg(feature = "alloc-peers")]
    peers.extend(peers::factories());
    peers.push(PeerFactory::uncounted::<SystemAllocator>("system allocator"));
    peers
}

/// The patterns whose name contains `only`; recorded traces are read where they are wanted.
fn workloads(only: &str) -> Vec<Box<dyn Workload>> {
    let generated: [Box<dyn Workload>; 7] = [
        Box::new(DecodeShape::USUAL),
        Box::new(KvGrowth::to_128k(128)),
        Box::new(PrefillInterleave),
        Box::new(Serving),
        Box::new(PeriodFour),
        Box::new(MultiTurn),
        Box::new(OddSizes),
    ];
    let mut chosen: Vec<Box<dyn Workload>> =
        generated.into_iter().filter(|workload| workload.name().contains(only)).collect();
    for (name, file) in
        [("trace kv100, ≥ 4 KiB", "kv100.bin.gz"), ("trace kv2000, ≥ 4 KiB", "kv2000.bin.gz")]
    {
        if !name.contains(only) {
            continue;
        }
        match Recorded::read(name, file, 4096) {
            Some(recorded) => chosen.push(Box::new(recorded)),
            None => println!("skipped: {name}: the shared traces are not there"),
        }
    }
    chosen
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let option = |name: &str| {
        args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned()
    };
    let steps = option("--steps").and_then(|n| n.parse().ok());
    let workloads = |only: &str| -> Vec<Box<dyn Workload>> {
        let first = |of| -> Box<dyn Workload> {
            match steps {
                Some(steps) => Box::new(FirstSteps { of, steps }),
                None => of,
            }
        };
        workloads(only).into_iter().map(first).collect()
    };
    let mut peers = all_peers();
    if let Some(at) = args.iter().position(|arg| arg == "--single") {
        let find = |offset: usize| args.get(at + offset).map_or("", String::as_str);
        let peer = peers.iter().find(|peer| peer.name == find(1)).expect("a peer of that name");
        let found = workloads(find(2));
        let workload = found.first().expect("a pattern of that name");
        let replay = peer.replay(workload.as_ref(), Timing::Steps);
        println!("{} pairs", replay.pairs);
        return;
    }
    // Under `cargo test --benches` one round shows that everything runs.
    let quick = args.iter().any(|arg| arg == "--test");
    let rounds = match option("--rounds").and_then(|n| n.parse().ok()) {
        Some(rounds) => rounds,
        None if quick => 1,
        None => 7,
    };
    let only = option("--only").unwrap_or_default();
    let wanted = option("--peers").unwrap_or_default();
    peers.retain(|peer| peer.name == "ours" || peer.name.contains(&wanted));
    for workload in workloads(&only) {
        if args.iter().any(|arg| arg == "--instructions") {
            instructions::count(workload.as_ref(), &peers);
            continue;
        }
        table::compare(workload.as_ref(), &peers, rounds);
    }
}
