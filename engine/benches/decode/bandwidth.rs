//! How fast the machine reads memory.

use std::time::Instant;

use engine::ask_for_huge_pages;

/// More than any cache holds.
pub(crate) const BEYOND_CACHES: usize = 1 << 30;

/// Bytes per second that `threads` threads read together out of a buffer of `bytes`, the best of
/// ten passes: from memory, or from whatever cache holds as much. The buffer lies as weights do.
pub(crate) fn measure(threads: usize, bytes: usize) -> f64 {
    // As weights lie. The pages are asked for before they are first written.
    let mut words: Vec<u64> = Vec::with_capacity(bytes / size_of::<u64>());
    ask_for_huge_pages(words.as_ptr().cast(), bytes);
    words.resize(bytes / size_of::<u64>(), 1);
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
