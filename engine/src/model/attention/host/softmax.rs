//! Softmax in parts: over whole tiles of scores, relative to a maximum that may still grow.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use crate::model::kv_cache::TILE;
use crate::model::simd::{Simd, exp, sum16};

/// The greatest of the scores, and of `least`.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn greatest<S: Simd>(scores: &[f32], least: f32) -> f32 {
    let mut max = [S::splat(least); 2];
    for tile in scores.as_chunks::<TILE>().0 {
        for (part, max) in max.iter_mut().enumerate().take(TILE / S::LANES) {
            *max = S::max(*max, S::load_f32(tile.as_ptr().add(part * S::LANES)));
        }
    }
    let mut lanes = [least; TILE];
    for (part, &max) in max.iter().enumerate().take(TILE / S::LANES) {
        S::store_f32(lanes.as_mut_ptr().add(part * S::LANES), max);
    }
    lanes.iter().fold(least, |max, &lane| if lane > max { lane } else { max })
}

/// Turns scores into weights relative to `max`, and sums them.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn weights_of<S: Simd>(scores: &mut [f32], max: f32) -> f32 {
    let mut sums = [S::splat(0.0); 2];
    let max = S::splat(max);
    for tile in scores.as_chunks_mut::<TILE>().0 {
        for (part, sum) in sums.iter_mut().enumerate().take(TILE / S::LANES) {
            let at = tile.as_mut_ptr().add(part * S::LANES);
            let weight = exp::<S>(S::sub(S::load_f32(at), max));
            *sum = S::add(*sum, weight);
            S::store_f32(at, weight);
        }
    }
    sum16::<S>(sums)
}

/// e to the `x`, of a single number.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn exp_of<S: Simd>(x: f32) -> f32 {
    let mut lanes = [0f32; TILE];
    S::store_f32(lanes.as_mut_ptr(), exp::<S>(S::splat(x)));
    lanes[0]
}
