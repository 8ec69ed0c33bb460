//! AVX2 with FMA and F16C, and the same with VNNI: 8 lanes.
#![allow(unsafe_op_in_unsafe_fn, reason = "a function is one instruction, as its caller vouches")]

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx2;

/// The same, and byte products of 256 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct AvxVnni;

/// Compiles a kernel for AVX2, and runs it.
///
/// # Safety
/// The processor must have the instructions.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel, S: Simd>(kernel: K) -> K::Output {
    kernel.run::<S>()
}

/// Compiles a kernel for AVX-VNNI, and runs it.
///
/// # Safety
/// The processor must have the instructions.
#[target_feature(enable = "avxvnni,avx2,fma,f16c")]
pub(super) unsafe fn run_vnni<K: Kernel, S: Simd>(kernel: K) -> K::Output {
    kernel.run::<S>()
}

#[inline(always)]
unsafe fn four(activations: *const i8, index: usize) -> __m256i {
    _mm256_set1_epi32(activations.cast::<i32>().add(index).read_unaligned())
}

/// One load of 32 bytes. An ordinary one is cut in two, because the baseline is tuned for processors
/// that were slow at those that cross a cache line.
#[inline(always)]
pub(super) unsafe fn load_whole(from: *const u8) -> __m256i {
    _mm256_lddqu_si256(from.cast())
}

/// Products of bytes as `maddubs` has them: sums of two in 16 bits, of which as many are added as
/// cannot overflow.
#[inline(always)]
unsafe fn dot_avx2<const BITS: u32>(weights: &[__m256i], activations: *const i8) -> __m256i {
    // A sum of two is at most 2·(2^BITS - 1)·127; 32767 is the limit.
    let together = match BITS {
        0..=4 => 8,
        5 => 4,
        6 => 2,
        _ => 1,
    };
    let ones = _mm256_set1_epi16(1);
    let mut sum = _mm256_setzero_si256();
    for (chunk, weights) in weights.chunks(together).enumerate() {
        let mut two = _mm256_setzero_si256();
        for (index, &weights) in weights.iter().enumerate() {
            let activations = four(activations, chunk * together + index);
            two = _mm256_add_epi16(two, _mm256_maddubs_epi16(weights, activations));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(two, ones));
    }
    sum
}

/// The weights' signs are moved to the activations, because `maddubs` takes unsigned bytes.
#[inline(always)]
unsafe fn dot_signed_avx2(weights: &[__m256i], activations: *const i8) -> __m256i {
    let (ones, shift) = (_mm256_set1_epi16(1), _mm256_set1_epi8(-128));
    let mut sum = _mm256_setzero_si256();
    for (index, &weights) in weights.iter().enumerate() {
        let weights = _mm256_xor_si256(weights, shift);
        let activations = _mm256_sign_epi8(four(activations, index), weights);
        let two = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), activations);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(two, ones));
    }
    sum
}

#[inline(always)]
unsafe fn dot_vnni(weights: &[__m256i], activations: *const i8, first: __m256i) -> __m256i {
    // Two sums, so that the products do not all wait for each other.
    let mut sums = [first, _mm256_setzero_si256()];
    for (index, &weights) in weights.iter().enumerate() {
        let sum = &mut sums[index % 2];
        *sum = _mm256_dpbusd_avx_epi32(*sum, weights, four(activations, index));
    }
    _mm256_add_epi32(sums[0], sums[1])
}

/// What both sets share.
macro_rules! shared_operations {
    () => {
        const LANES: usize = 8;
        const MANY: usize = 4;
        const VALUE_VECTORS: usize = 2;
        type I = __m256i;
        type F = __m256;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m256i {
            load_whole(from)
        }
        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
        }
        #[inline(always)]
        unsafe fn store(to: *mut u8, a: __m256i) {
            _mm256_storeu_si256(to.cast(), a);
        }
        #[inline(always)]
        unsafe fn splat_byte(byte: u8) -> __m256i {
            _mm256_set1_epi8(byte as i8)
        }
        #[inline(always)]
        unsafe fn and(a: __m256i, b: __m256i) -> __m256i {
            _mm256_and_si256(a, b)
        }
        #[inline(always)]
        unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
            _mm256_or_si256(a, b)
        }
        #[inline(always)]
        unsafe fn shr(a: __m256i, bits: i32) -> __m256i {
            _mm256_srl_epi16(a, _mm_cvtsi32_si128(bits))
        }
        #[inline(always)]
        unsafe fn shl(a: __m256i, bits: i32) -> __m256i {
            _mm256_sll_epi16(a, _mm_cvtsi32_si128(bits))
        }
        #[inline(always)]
        unsafe fn lookup(table: &[u8; 16], index: __m256i) -> __m256i {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, index)
        }
        #[inline(always)]
        unsafe fn widen(from: *const u8) -> __m256i {
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()))
        }
        #[inline(always)]
        unsafe fn splat(a: f32) -> __m256 {
            _mm256_set1_ps(a)
        }
        #[inline(always)]
        unsafe fn load_f32(from: *const f32) -> __m256 {
            _mm256_castsi256_ps(load_whole(from.cast()))
        }
        #[inline(always)]
        unsafe fn store_f32(to: *mut f32, a: __m256) {
            _mm256_storeu_ps(to, a);
        }
        #[inline(always)]
        unsafe fn load_f16(from: *const u8) -> __m256 {
            _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))
        }
        #[inline(always)]
        unsafe fn store_f16(to: *mut u8, a: __m256) {
            let halves = _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(a);
            _mm_storeu_si128(to.cast(), halves);
        }
        #[inline(always)]
        unsafe fn load_bf16(from: *const u8) -> __m256 {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
        #[inline(always)]
        unsafe fn load_i8(from: *const u8) -> __m256 {
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())))
        }
        #[inline(always)]
        unsafe fn load_u8(from: *const u8) -> __m256 {
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())))
        }
        #[inline(always)]
        unsafe fn to_f32(a: __m256i) -> __m256 {
            _mm256_cvtepi32_ps(a)
        }
        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            _mm256_add_ps(a, b)
        }
        #[inline(always)]
        unsafe fn sub(a: __m256, b: __m256) -> __m256 {
            _mm256_sub_ps(a, b)
        }
        #[inline(always)]
        unsafe fn mul(a: __m256, b: __m256) -> __m256 {
            _mm256_mul_ps(a, b)
        }
        #[inline(always)]
        unsafe fn div(a: __m256, b: __m256) -> __m256 {
            _mm256_div_ps(a, b)
        }
        #[inline(always)]
        unsafe fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
            _mm256_fmadd_ps(a, b, c)
        }
        #[inline(always)]
        unsafe fn max(a: __m256, b: __m256) -> __m256 {
            _mm256_max_ps(a, b)
        }
        #[inline(always)]
        unsafe fn min(a: __m256, b: __m256) -> __m256 {
            _mm256_min_ps(a, b)
        }
        #[inline(always)]
        unsafe fn round(a: __m256) -> __m256 {
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
        }
        #[inline(always)]
        unsafe fn scale_by_power(a: __m256, n: __m256) -> __m256 {
            let n = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n))
        }
    };
}

impl Simd for Avx2 {
    shared_operations!();

    #[inline(always)]
    unsafe fn dot<const BITS: u32>(weights: &[__m256i], activations: *const i8) -> __m256i {
        dot_avx2::<BITS>(weights, activations)
    }
    #[inline(always)]
    unsafe fn dot_signed(weights: &[__m256i], activations: *const i8, _: i32) -> __m256i {
        dot_signed_avx2(weights, activations)
    }
}

impl Simd for AvxVnni {
    shared_operations!();

    #[inline(always)]
    unsafe fn dot<const BITS: u32>(weights: &[__m256i], activations: *const i8) -> __m256i {
        dot_vnni(weights, activations, _mm256_setzero_si256())
    }
    #[inline(always)]
    unsafe fn dot_signed(
        weights: &[__m256i],
        activations: *const i8,
        minus_128_sum: i32,
    ) -> __m256i {
        dot_vnni(weights, activations, _mm256_set1_epi32(minus_128_sum))
    }
}
