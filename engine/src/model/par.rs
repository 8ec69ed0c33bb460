//! Data-parallel loops on the processor, on the pool that candle's own kernels use.
//!
//! One pool for everything: its workers spin for a while after each job, and a second pool's
//! threads would have to compete with them for the same cores.

use candle_core::utils::barrier_pool;

/// Operations below which waking the pool costs more than it gains.
const INLINE_OPERATIONS: usize = 1 << 16;

/// Cuts `out` into chunks of `chunk` elements (the last may be shorter) and calls `work` with the
/// index and the chunk, each on some thread of the pool, or all on this one where `operations`, the
/// estimate for all of them together, is small.
pub(super) fn for_each_chunk<T: Send>(
    out: &mut [T],
    chunk: usize,
    operations: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    if operations < INLINE_OPERATIONS || out.len() <= chunk {
        out.chunks_mut(chunk).enumerate().for_each(|(index, chunk)| work(index, chunk));
        return;
    }
    let (len, base) = (out.len(), SendPtr(out.as_mut_ptr()));
    let base = &base;
    barrier_pool().execute_chunked(len.div_ceil(chunk), |range| {
        for index in range {
            let start = index * chunk;
            let size = chunk.min(len - start);
            // SAFETY: `start + size <= len`, so the range lies within `out`, which is borrowed
            // exclusively until `execute_chunked` returns; every index is handed out exactly once,
            // so no two threads get overlapping ranges, and `T: Send`.
            let chunk = unsafe { std::slice::from_raw_parts_mut(base.0.add(start), size) };
            work(index, chunk);
        }
    });
}

/// A strip of neighbouring columns of a matrix, which one thread has to itself.
pub(super) struct Strip<'a, T> {
    base: *mut T,
    rows: usize,
    row_len: usize,
    width: usize,
    out: std::marker::PhantomData<&'a mut [T]>,
}

impl<T> Strip<'_, T> {
    /// The strip's part of a row.
    pub(super) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} is beyond the matrix of {}", self.rows);
        // SAFETY: `base` points to the strip's first column in row 0 of a matrix of `rows` rows of
        // `row_len` elements, of which the strip takes `width` in each row; `row` is one of them.
        // Strips do not overlap, and `&mut self` lets go of one row before the next is taken.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(row * self.row_len), self.width) }
    }
}

/// Cuts a matrix of rows of `row_len` elements into strips of `width` columns (the last may be
/// narrower) and calls `work` with the index and the strip, each on some thread of the pool; a
/// single strip is worked on here.
pub(super) fn for_each_strip<T: Send>(
    out: &mut [T],
    row_len: usize,
    width: usize,
    work: impl Fn(usize, Strip<'_, T>) + Sync,
) {
    let rows = out.len() / row_len;
    let base = SendPtr(out.as_mut_ptr());
    let base = &base;
    let run = |range: std::ops::Range<usize>| {
        for index in range {
            let start = index * width;
            let strip = Strip {
                // SAFETY: `start < row_len`, so this is within the first row, or at the start of
                // an empty matrix, of which no row can be taken.
                base: unsafe { base.0.add(if rows == 0 { 0 } else { start }) },
                rows,
                row_len,
                width: width.min(row_len - start),
                out: std::marker::PhantomData,
            };
            work(index, strip);
        }
    };
    let strips = row_len.div_ceil(width);
    if strips == 1 {
        run(0..1);
    } else {
        barrier_pool().execute_chunked(strips, run);
    }
}

/// A pointer that other threads may derive disjoint slices from.
struct SendPtr<T>(*mut T);

// SAFETY: the pointer is only used by `for_each_chunk`, which gives each thread a range of its own
// and requires `T: Send`.
unsafe impl<T: Send> Sync for SendPtr<T> {}

/// `a * b + c`, fused where the processor does that in one instruction.
#[inline(always)]
pub(super) fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    // Without the instruction, `mul_add` is a call into the math library.
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// e to the `x`, within 2 ulp for `x <= 0` and in a form that compilers vectorise. Below -87 it
/// stays at e⁻⁸⁷ ≈ 1.6e-38.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = mul_add(n, -LN2_LOW, mul_add(n, -LN2_HIGH, x));
    // The polynomial of Cephes' expf on [-ln2/2, ln2/2].
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = mul_add(p, r, c);
    }
    let y = mul_add(p, r * r, r) + 1.0;
    f32::from_bits((y.to_bits() as i32 + ((n as i32) << 23)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_visited_once() {
        for operations in [0, usize::MAX] {
            let mut out = vec![0u32; 1003];
            for_each_chunk(&mut out, 10, operations, |index, chunk| {
                for (offset, value) in chunk.iter_mut().enumerate() {
                    *value += (index * 10 + offset) as u32 + 1;
                }
            });
            assert!(out.iter().enumerate().all(|(index, &value)| value == index as u32 + 1));
        }
        for_each_chunk(&mut Vec::<u32>::new(), 10, 0, |_, _| panic!("there is no chunk"));
    }

    #[test]
    fn every_strip_is_visited_once() {
        let (rows, row_len) = (3, 37);
        let mut out = vec![0u32; rows * row_len];
        for width in [16, 64] {
            out.fill(0);
            for_each_strip(&mut out, row_len, width, |index, mut strip| {
                for row in 0..rows {
                    for (offset, value) in strip.row(row).iter_mut().enumerate() {
                        *value += (row * row_len + index * width + offset) as u32 + 1;
                    }
                }
            });
            assert!(out.iter().enumerate().all(|(index, &value)| value == index as u32 + 1));
        }
        for_each_strip(&mut Vec::<u32>::new(), 5, 16, |_, _| ());
    }

    #[test]
    fn exp_is_within_two_ulp() {
        for step in -87_000..88_000 {
            let x = step as f32 / 1000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.4e-7, "exp({x}) is off by {error:e}");
        }
        assert!(exp(f32::NEG_INFINITY) < 2e-38);
    }
}
