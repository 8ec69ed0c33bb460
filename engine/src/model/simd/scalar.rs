//! The plain kernels: arrays of 16 lanes, which every processor computes.

use half::{bf16, f16};

use super::Simd;

/// Runs everywhere.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct Scalar;

const LANES: usize = 16;

#[inline(always)]
fn bytes(a: [u32; LANES], f: impl Fn(u16) -> u16) -> [u32; LANES] {
    a.map(|lane| u32::from(f(lane as u16)) | u32::from(f((lane >> 16) as u16)) << 16)
}

#[inline(always)]
fn both<T: Copy>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> T) -> [T; LANES] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

/// # Safety
/// There must be 16 elements of `N` bytes.
#[inline(always)]
unsafe fn read<const N: usize, T>(from: *const u8, f: impl Fn([u8; N]) -> T) -> [T; LANES] {
    // SAFETY: the caller vouches for the elements; they are read without alignment.
    std::array::from_fn(|lane| f(unsafe { from.cast::<[u8; N]>().add(lane).read_unaligned() }))
}

#[inline(always)]
fn products(lane: usize, weights: &[[u32; LANES]], activations: &[i8], minus: i32) -> i32 {
    weights.iter().zip(activations.chunks_exact(4)).fold(0, |sum, (weights, activations)| {
        let weights = weights[lane].to_le_bytes();
        let four = weights.iter().zip(activations);
        sum + four.map(|(&w, &a)| (i32::from(w) - minus) * i32::from(a)).sum::<i32>()
    })
}

impl Simd for Scalar {
    const LANES: usize = LANES;
    const MANY: usize = 4;
    const VALUE_VECTORS: usize = 1;
    type I = [u32; LANES];
    type F = [f32; LANES];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::I {
        // SAFETY: as this function.
        unsafe { read(from, u32::from_le_bytes) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn store(to: *mut u8, a: Self::I) {
        // SAFETY: the caller vouches for 64 bytes.
        unsafe { to.cast::<[u32; LANES]>().write_unaligned(a.map(u32::to_le)) }
    }
    #[inline(always)]
    unsafe fn splat_byte(byte: u8) -> Self::I {
        [u32::from_le_bytes([byte; 4]); LANES]
    }
    #[inline(always)]
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I {
        both(a, b, |a, b| a & b)
    }
    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        both(a, b, |a, b| a | b)
    }
    #[inline(always)]
    unsafe fn shr(a: Self::I, bits: i32) -> Self::I {
        bytes(a, |two| two >> bits)
    }
    #[inline(always)]
    unsafe fn shl(a: Self::I, bits: i32) -> Self::I {
        bytes(a, |two| two << bits)
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: Self::I) -> Self::I {
        index.map(|four| {
            u32::from_le_bytes(four.to_le_bytes().map(|index| table[usize::from(index & 15)]))
        })
    }
    #[inline(always)]
    unsafe fn widen(from: *const u8) -> Self::I {
        // SAFETY: as this function.
        unsafe { read(from, |[byte]: [u8; 1]| u32::from(byte)) }
    }
    #[inline(always)]
    unsafe fn dot<const BITS: u32>(weights: &[Self::I], activations: *const i8) -> Self::I {
        // SAFETY: the caller vouches for four activations for each vector.
        let acts = unsafe { std::slice::from_raw_parts(activations, 4 * weights.len()) };
        std::array::from_fn(|lane| products(lane, weights, acts, 0) as u32)
    }
    #[inline(always)]
    unsafe fn dot_signed(weights: &[Self::I], activations: *const i8, _: i32) -> Self::I {
        // SAFETY: the caller vouches for four activations for each vector.
        let acts = unsafe { std::slice::from_raw_parts(activations, 4 * weights.len()) };
        std::array::from_fn(|lane| products(lane, weights, acts, 128) as u32)
    }
    #[inline(always)]
    unsafe fn splat(a: f32) -> Self::F {
        [a; LANES]
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self::F {
        // SAFETY: as this function.
        unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, a: Self::F) {
        // SAFETY: as this function.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(a) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> Self::F {
        // SAFETY: as this function.
        unsafe { read(from, |bytes| f16::from_le_bytes(bytes).to_f32()) }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, a: Self::F) {
        let halves = a.map(|a| f16::from_f32(a).to_le_bytes());
        // SAFETY: as this function.
        unsafe { to.cast::<[[u8; 2]; LANES]>().write_unaligned(halves) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> Self::F {
        // SAFETY: as this function.
        unsafe { read(from, |bytes| bf16::from_le_bytes(bytes).to_f32()) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::F {
        // SAFETY: as this function.
        unsafe { read(from, |byte| f32::from(i8::from_le_bytes(byte))) }
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        // SAFETY: as this function.
        unsafe { read(from, |[byte]: [u8; 1]| f32::from(byte)) }
    }
    #[inline(always)]
    unsafe fn to_f32(a: Self::I) -> Self::F {
        a.map(|lane| lane as i32 as f32)
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // A call into the math library, but the same bits as everywhere else.
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: Self::F, n: Self::F) -> Self::F {
        both(
            a,
            n,
            |a, n| f32::from_bits((a.to_bits() as i32).wrapping_add((n as i32) << 23) as u32),
        )
    }
}
