//! Kernels of the packed product with AVX-512 VNNI: four byte products a lane and instruction.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512, _mm512_cvtepi32_ps,
    _mm512_cvtph_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_mul_ps,
    _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
    _mm512_srli_epi16, _mm512_storeu_ps,
};

use super::packed::{Activations, Bytes, LANES, Nibbles};

/// A tile whose 32 columns can be spread over eight vectors of bytes.
pub(super) trait Tile {
    /// Vector j holds columns 4j to 4j + 3 of each of the 16 rows.
    ///
    /// # Safety
    /// The processor must have AVX-512 F and BW.
    unsafe fn spread(&self) -> [__m512i; 8];

    /// Scales and offsets of the 16 rows, as f16.
    fn scales(&self) -> (&[u16; LANES], &[u16; LANES]);
}

impl Tile for Nibbles {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn spread(&self) -> [__m512i; 8] {
        let low = _mm512_set1_epi8(15);
        let mut out = [_mm512_setzero_si512(); 8];
        for (index, line) in self.lines.iter().enumerate() {
            // SAFETY: a line is 64 bytes.
            let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
            out[index] = _mm512_and_si512(line, low);
            out[index + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(line), low);
        }
        out
    }

    fn scales(&self) -> (&[u16; LANES], &[u16; LANES]) {
        (&self.scales, &self.offsets)
    }
}

impl Tile for Bytes {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn spread(&self) -> [__m512i; 8] {
        // SAFETY: a line is 64 bytes.
        self.lines.each_ref().map(|line| unsafe { _mm512_loadu_si512(line.as_ptr().cast()) })
    }

    fn scales(&self) -> (&[u16; LANES], &[u16; LANES]) {
        (&self.scales, &self.offsets)
    }
}

/// Products of the 16 rows that `tiles` hold with `m` rows of activations.
///
/// # Safety
/// The processor must have AVX-512 F, BW and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn multiply<T: Tile>(
    tiles: &[T],
    acts: &[Activations],
    m: usize,
    write: &mut dyn FnMut(usize, &[f32; LANES]),
) {
    let width = tiles.len();
    assert_eq!(acts.len(), m * width, "the activations are {m} rows of whole tiles");
    let mut row = 0;
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        while m - row >= 8 {
            multiply_rows::<T, 8>(tiles, &acts[row * width..], row, write);
            row += 8;
        }
        while m - row >= 2 {
            multiply_rows::<T, 2>(tiles, &acts[row * width..], row, write);
            row += 2;
        }
        if m > row {
            multiply_rows::<T, 1>(tiles, &acts[row * width..], row, write);
        }
    }
}

/// `M` rows of activations at once: each tile is spread once for all of them.
///
/// # Safety
/// As [`multiply`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn multiply_rows<T: Tile, const M: usize>(
    tiles: &[T],
    acts: &[Activations],
    first: usize,
    write: &mut dyn FnMut(usize, &[f32; LANES]),
) {
    let width = tiles.len();
    let rows: [&[Activations]; M] = std::array::from_fn(|row| &acts[row * width..][..width]);
    let mut totals = [_mm512_setzero_ps(); M];
    for (index, tile) in tiles.iter().enumerate() {
        // SAFETY: the caller vouches for the instructions.
        let weights = unsafe { tile.spread() };
        let (scales, offsets) = tile.scales();
        let widen = |halves: &[u16; LANES]| {
            // SAFETY: 16 halves are 32 bytes.
            _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(halves.as_ptr().cast::<__m256i>()) })
        };
        let (scales, offsets) = (widen(scales), widen(offsets));
        for (total, row) in totals.iter_mut().zip(&rows) {
            let act = &row[index];
            let four = |at: usize| {
                let bytes = [at, at + 1, at + 2, at + 3].map(|at| act.bytes[at] as u8);
                _mm512_set1_epi32(i32::from_le_bytes(bytes))
            };
            // Two sums, so that the products do not all wait for each other.
            let (mut even, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
            for j in 0..4 {
                even = _mm512_dpbusd_epi32(even, weights[2 * j], four(8 * j));
                odd = _mm512_dpbusd_epi32(odd, weights[2 * j + 1], four(8 * j + 4));
            }
            let product = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
            let scale = _mm512_mul_ps(scales, _mm512_set1_ps(act.scale));
            *total = _mm512_fmadd_ps(product, scale, *total);
            *total = _mm512_fmadd_ps(offsets, _mm512_set1_ps(act.sum), *total);
        }
    }
    for (row, total) in totals.iter().enumerate() {
        let mut values = [0f32; LANES];
        // SAFETY: 16 floats are 64 bytes.
        unsafe { _mm512_storeu_ps(values.as_mut_ptr(), *total) };
        write(first + row, &values);
    }
}
