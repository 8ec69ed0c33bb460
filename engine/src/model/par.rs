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

/// A matrix to be written.
pub(super) struct Rows<'a, T> {
    /// Its elements, row by row.
    pub(super) out: &'a mut [T],
    /// Elements of a row.
    pub(super) row_len: usize,
}

/// Cuts matrices into strips of `width` columns (the last of each may be narrower) and calls `work`
/// with the matrix's index, the strip's index within it and the strip, each on some thread of the
/// pool; a single strip is worked on here.
pub(super) fn for_each_strip<T: Send>(
    matrices: &mut [Rows<'_, T>],
    width: usize,
    work: impl Fn(usize, usize, Strip<'_, T>) + Sync,
) {
    let strips_of = |row_len: usize| row_len.div_ceil(width);
    let bases: Vec<(SendPtr<T>, usize, usize)> = matrices
        .iter_mut()
        .map(|m| (SendPtr(m.out.as_mut_ptr()), m.out.len() / m.row_len, m.row_len))
        .collect();
    let strips = bases.iter().map(|base| strips_of(base.2)).sum();
    let run = |range: std::ops::Range<usize>| {
        for number in range {
            let (mut matrix, mut index) = (0, number);
            while index >= strips_of(bases[matrix].2) {
                index -= strips_of(bases[matrix].2);
                matrix += 1;
            }
            let (base, rows, row_len) = &bases[matrix];
            let start = if *rows == 0 { 0 } else { index * width };
            let strip = Strip {
                // SAFETY: `index * width < row_len`, so this is within the first row, or at the
                // start of an empty matrix, of which no row can be taken. Every number is handed
                // out exactly once, so no two threads get the same strip, and `T: Send`.
                base: unsafe { base.0.add(start) },
                rows: *rows,
                row_len: *row_len,
                width: width.min(row_len - index * width),
                out: std::marker::PhantomData,
            };
            work(matrix, index, strip);
        }
    };
    if strips <= 1 {
        run(0..strips);
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
    fn every_strip_of_every_matrix_is_visited_once() {
        for width in [16, 64] {
            let (mut one, mut two, mut none) = (vec![0u32; 3 * 37], vec![0u32; 3 * 16], vec![]);
            let mut matrices = [
                Rows { out: &mut one, row_len: 37 },
                Rows { out: &mut none, row_len: 5 },
                Rows { out: &mut two, row_len: 16 },
            ];
            for_each_strip(&mut matrices, width, |matrix, index, mut strip| {
                let row_len = [37, 5, 16][matrix];
                for row in 0..if matrix == 1 { 0 } else { 3 } {
                    for (offset, value) in strip.row(row).iter_mut().enumerate() {
                        *value += (row * row_len + index * width + offset) as u32 + 1;
                    }
                }
            });
            for out in [one, two] {
                assert!(out.iter().enumerate().all(|(index, &value)| value == index as u32 + 1));
            }
        }
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
