//! AVX-512 with VNNI: 16 lanes.
#![allow(unsafe_op_in_unsafe_fn, reason = "a function is one instruction, as its caller vouches")]

use std::arch::x86_64::*;

use super::avx2::load_whole;
use super::{Kernel, Simd};

/// F, BW, DQ, VL and VNNI.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx512Vnni;

/// Compiles a kernel for the set, and runs it.
///
/// # Safety
/// The processor must have the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512Vnni>()
}

#[inline(always)]
unsafe fn four(activations: *const i8, index: usize) -> __m512i {
    _mm512_set1_epi32(activations.cast::<i32>().add(index).read_unaligned())
}

impl Simd for Avx512Vnni {
    const LANES: usize = 16;
    const MANY: usize = 8;
    const VALUE_VECTORS: usize = 4;
    type I = __m512i;
    type F = __m512;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        _mm512_loadu_si512(from.cast())
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, a: __m512i) {
        _mm512_storeu_si512(to.cast(), a);
    }
    #[inline(always)]
    unsafe fn splat_byte(byte: u8) -> __m512i {
        _mm512_set1_epi8(byte as i8)
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        _mm512_and_si512(a, b)
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        _mm512_or_si512(a, b)
    }
    #[inline(always)]
    unsafe fn shr(a: __m512i, bits: i32) -> __m512i {
        _mm512_srl_epi16(a, _mm_cvtsi32_si128(bits))
    }
    #[inline(always)]
    unsafe fn shl(a: __m512i, bits: i32) -> __m512i {
        _mm512_sll_epi16(a, _mm_cvtsi32_si128(bits))
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: __m512i) -> __m512i {
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
        _mm512_shuffle_epi8(table, index)
    }
    #[inline(always)]
    unsafe fn widen(from: *const u8) -> __m512i {
        _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))
    }
    #[inline(always)]
    unsafe fn dot<const BITS: u32>(weights: &[__m512i], activations: *const i8) -> __m512i {
        // Two sums, so that the products do not all wait for each other.
        let mut sums = [_mm512_setzero_si512(); 2];
        for (index, &weights) in weights.iter().enumerate() {
            let sum = &mut sums[index % 2];
            *sum = _mm512_dpbusd_epi32(*sum, weights, four(activations, index));
        }
        _mm512_add_epi32(sums[0], sums[1])
    }
    #[inline(always)]
    unsafe fn dot_signed(
        weights: &[__m512i],
        activations: *const i8,
        minus_128_sum: i32,
    ) -> __m512i {
        let mut sums = [_mm512_set1_epi32(minus_128_sum), _mm512_setzero_si512()];
        for (index, &weights) in weights.iter().enumerate() {
            let sum = &mut sums[index % 2];
            *sum = _mm512_dpbusd_epi32(*sum, weights, four(activations, index));
        }
        _mm512_add_epi32(sums[0], sums[1])
    }
    #[inline(always)]
    unsafe fn splat(a: f32) -> __m512 {
        _mm512_set1_ps(a)
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> __m512 {
        _mm512_loadu_ps(from)
    }
    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, a: __m512) {
        _mm512_storeu_ps(to, a);
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        _mm512_cvtph_ps(load_whole(from))
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, a: __m512) {
        let halves = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(a);
        _mm256_storeu_si256(to.cast(), halves);
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m512 {
        let wide = _mm512_cvtepu16_epi32(load_whole(from));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    unsafe fn to_f32(a: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(a)
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        _mm512_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        _mm512_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        _mm512_min_ps(a, b)
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: __m512, n: __m512) -> __m512 {
        let n = _mm512_slli_epi32::<23>(_mm512_cvtps_epi32(n));
        _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), n))
    }
}
