//! The order in which the legs of a comparison run.
//!
//! A block holds each leg once. Blocks come in mirrored pairs, an order and the same order backwards
//! (ABBA), so a drift that is linear in time cancels within each pair for every two legs. The pairs
//! of a cycle are the rotations of one order, so that over a cycle each leg stands in each place
//! equally often. The seed draws the order, the sequence of the pairs and which half of a pair comes
//! first, for each cycle anew.
//!
//! A block's order follows from the seed and the block's number alone: growing or resuming a
//! comparison never changes the blocks before.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

use crate::stats::interval::index_below;

/// The legs of block `block` (from 0), as indices below `legs`, in the order in which they run.
pub(crate) fn plan_block(legs: usize, seed: u64, block: usize) -> Vec<usize> {
    if legs == 0 {
        return Vec::new();
    }
    let blocks_per_cycle = 2 * legs;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((block / blocks_per_cycle) as u64);
    let mut order = shuffled(legs, &mut rng);
    let rotations = shuffled(legs, &mut rng);
    let backwards_first: Vec<bool> = (0..legs).map(|_| rng.next_u32() >> 31 == 1).collect();

    let pair = block % blocks_per_cycle / 2;
    order.rotate_left(rotations[pair]);
    if (block % 2 == 1) != backwards_first[pair] {
        order.reverse();
    }
    order
}

/// The numbers below `n`, each permutation as likely as any other (Fisher–Yates).
fn shuffled(n: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        numbers.swap(last, index_below(last + 1, rng));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn cycle(legs: usize, seed: u64, cycle: usize) -> Vec<Vec<usize>> {
        let blocks = 2 * legs;
        (cycle * blocks..(cycle + 1) * blocks).map(|block| plan_block(legs, seed, block)).collect()
    }

    proptest! {
        #[test]
        fn a_cycle_is_balanced(legs in 1_usize..7, seed: u64, number in 0_usize..4) {
            let blocks = cycle(legs, seed, number);
            for leg in 0..legs {
                for place in 0..legs {
                    let times = blocks.iter().filter(|block| block[place] == leg).count();
                    prop_assert_eq!(times, 2, "leg {} at place {}", leg, place);
                }
            }
        }

        #[test]
        fn a_linear_drift_cancels_within_each_pair(
            legs in 2_usize..7, seed: u64, pair in 0_usize..20,
        ) {
            let [first, second] = [2 * pair, 2 * pair + 1].map(|block| plan_block(legs, seed, block));
            let place = |block: &[usize], leg| block.iter().position(|l| *l == leg).unwrap() as i64;
            for (a, b) in (0..legs).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let lead = |block: &[usize]| place(block, a) - place(block, b);
                prop_assert_eq!(lead(&first) + lead(&second), 0);
            }
        }

        #[test]
        fn every_block_holds_each_leg_once(legs in 0_usize..9, seed: u64, block in 0_usize..99) {
            let order = plan_block(legs, seed, block);
            prop_assert_eq!(order.len(), legs);
            prop_assert_eq!(order.into_iter().collect::<BTreeSet<_>>(), (0..legs).collect());
        }
    }

    #[test]
    fn seeds_and_cycles_differ_and_a_seed_repeats() {
        // 6 orders, 6 sequences of the pairs and 8 choices of halves give 48 cycles of three legs
        // (one is counted six times); 40 draws of 48 meet about 27 of them.
        let seeds: BTreeSet<_> = (0..40).map(|seed| cycle(3, seed, 0)).collect();
        assert!(seeds.len() > 20, "{} different cycles of 40", seeds.len());
        assert_eq!(cycle(4, 9, 1), cycle(4, 9, 1));
        let cycles: BTreeSet<_> = (0..40).map(|number| cycle(3, 1, number)).collect();
        assert!(cycles.len() > 20, "{} different cycles of 40", cycles.len());
    }
}
