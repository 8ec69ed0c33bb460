//! What a number of blocks can see, and how many it would take to see more.

use super::student::Tail;

/// What the Hodges–Lehmann estimate costs against the mean on normal noise, as a factor on the
/// standard error: √(π/3).
const HODGES_LEHMANN_COST: f64 = 1.023_326_707_946_488_5;

/// More blocks than anyone will run; the search ends there.
const MOST_BLOCKS: usize = 10_000_000;

/// The smallest true effect whose interval excludes zero four times in five, given `blocks` paired
/// values of standard deviation `deviation`: (t₀.₉₇₅ + t₀.₈₀)·σ·√(π/3)/√n with n − 1 degrees of freedom.
///
/// Infinite below two blocks. In the units of `deviation`.
pub(crate) fn detectable_effect(deviation: f64, blocks: usize) -> f64 {
    if blocks < 2 {
        return f64::INFINITY;
    }
    let reach =
        Tail::INTERVAL.student_quantile(blocks - 1) + Tail::POWER.student_quantile(blocks - 1);
    reach * deviation * HODGES_LEHMANN_COST / (blocks as f64).sqrt()
}

/// How many blocks it takes until an effect of `effect` is found four times in five; `None` where
/// no number helps (no effect at all) or none that anyone would run.
pub(crate) fn blocks_needed(deviation: f64, effect: f64) -> Option<usize> {
    let enough = |blocks: usize| detectable_effect(deviation, blocks) <= effect.abs();
    if effect == 0.0 || !enough(MOST_BLOCKS) {
        return None;
    }
    // Detectability falls with every block, so the first that is enough is found by halving.
    let (mut too_few, mut enough_blocks) = (1, MOST_BLOCKS);
    while enough_blocks - too_few > 1 {
        let middle = too_few.midpoint(enough_blocks);
        if enough(middle) { enough_blocks = middle } else { too_few = middle }
    }
    Some(enough_blocks)
}
