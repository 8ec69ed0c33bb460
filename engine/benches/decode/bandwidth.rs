//! How fast the machine reads memory.

use std::time::Instant;

/// More than any cache holds.
pub(crate) const BEYOND_CACHES: usize = 1 << 30;

/// Bytes per second that `threads` threads read together out of a buffer of `bytes`, the best of
/// ten passes: from memory, or from whatever cache holds as much.
pub(crate) fn measure(threads: usize, bytes: usize) -> f64 {
    let words = vec![1u64; bytes / size_of::<u64>()];
    let share = words.len() / threads;
    let mut best = 0f64;
    for _ in 0..10 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in words.chunks_exact(share) {
                scope.spawn(move || std::hint::black_box(part.iter().sum::<u64>()));
            }
        });
        best =
            best.max((share * threads * size_of::<u64>()) as f64 / start.elapsed().as_secs_f64());
    }
    best
}
