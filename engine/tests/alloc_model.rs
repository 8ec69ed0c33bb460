//! Random operation sequences over the cache and a strict simulated driver, checked against a model
//! after every operation.
//!
//! `ARC_MODEL_SEQUENCES` sets how many sequences run (default 100,000).

#[path = "alloc_model/model.rs"]
mod model;
#[path = "alloc_model/op.rs"]
mod op;

use std::panic::catch_unwind;

use proptest::prelude::*;

use crate::model::run_sequence;
use crate::op::{Op, Rng};

fn sequences() -> u64 {
    std::env::var("ARC_MODEL_SEQUENCES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000)
}

/// What a sequence fails with, if it does.
fn fault_of(ops: &[Op]) -> Option<String> {
    let panic = catch_unwind(|| run_sequence(ops)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.into())).unwrap_or_default())
}

/// Drops operations for as long as the sequence still fails.
fn shrink(mut ops: Vec<Op>) -> Vec<Op> {
    let mut at = 0;
    while at < ops.len() {
        let mut shorter = ops.clone();
        shorter.remove(at);
        if fault_of(&shorter).is_some() {
            ops = shorter;
        } else {
            at += 1;
        }
    }
    ops
}

#[test]
fn random_sequences_keep_every_promise() {
    const THREADS: u64 = 2;
    let total = sequences();
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                scope.spawn(move || {
                    (worker..total).step_by(THREADS as usize).find(|&seed| {
                        let ops = Rng::new(seed).sequence();
                        fault_of(&ops).is_some()
                    })
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).collect()
    });
    if let Some(seed) = failed.first() {
        let ops = shrink(Rng::new(*seed).sequence());
        let fault = fault_of(&ops).unwrap_or_default();
        panic!("seed {seed}: {fault}; the shortest sequence that fails: {ops:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same model with longer sequences, driven by proptest's own choices and shrinking.
    #[test]
    fn long_sequences_keep_every_promise(seeds in prop::collection::vec(any::<u64>(), 1..12)) {
        let ops: Vec<Op> = seeds.iter().flat_map(|&seed| Rng::new(seed).sequence()).collect();
        run_sequence(&ops);
    }
}
