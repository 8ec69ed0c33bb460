//! Functions that are made of vector operations.
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a kernel is one, as its caller vouches")]

use super::Simd;

/// e to the `x`, within 2 ulp from -87 to 88. Outside it stays at the value of that end; what is not
/// a number stays so.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
pub(in crate::model) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // The bound stands first, so that NaN passes through.
    let x = S::min(S::splat(88.0), S::max(S::splat(-87.0), x));
    let n = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
    let r = S::mul_add(n, S::splat(-LN2_HIGH), x);
    let r = S::mul_add(n, S::splat(-LN2_LOW), r);
    // The polynomial of Cephes' expf on [-ln2/2, ln2/2].
    let mut p = S::splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = S::mul_add(p, r, S::splat(c));
    }
    let y = S::add(S::mul_add(p, S::mul(r, r), r), S::splat(1.0));
    S::scale_by_power(y, n)
}

/// Bends whole vectors so that they stay between `-cap` and `cap`: `cap·tanh(x / cap)`, within 1e-6 of
/// the cap. 0 is no cap. What is not finite becomes NaN, so that it is not mistaken for a large number.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
pub(in crate::model) unsafe fn bend<S: Simd>(xs: &mut [f32], cap: f32) {
    if cap == 0.0 {
        return;
    }
    let (one, minus_two) = (S::splat(1.0), S::splat(-2.0));
    let (twice_inverse, cap) = (S::splat(2.0 / cap), S::splat(cap));
    for at in (0..xs.len()).step_by(S::LANES) {
        let at = xs[at..at + S::LANES].as_mut_ptr();
        let x = S::load_f32(at);
        // tanh(y) is 1 - 2 / (e^2y + 1).
        let power = exp::<S>(S::mul(x, twice_inverse));
        let tanh = S::add(one, S::div(minus_two, S::add(power, one)));
        S::store_f32(at, S::mul_add(x, S::splat(0.0), S::mul(cap, tanh)));
    }
}

/// The sum of 16 lanes, which lie in one vector or in two, in an order that does not depend on that.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
pub(in crate::model) unsafe fn sum16<S: Simd>(lanes: [S::F; 2]) -> f32 {
    let mut values = [0f32; 16];
    for (part, &lanes) in lanes.iter().enumerate().take(16 / S::LANES) {
        S::store_f32(values.as_mut_ptr().add(part * S::LANES), lanes);
    }
    let mut width = 8;
    while width > 0 {
        for lane in 0..width {
            values[lane] += values[lane + width];
        }
        width /= 2;
    }
    values[0]
}

#[cfg(test)]
mod tests {
    use super::super::{Kernel, Kernels, dispatch};
    use super::*;

    struct Exp<'a>(&'a mut [f32; 16]);

    impl Kernel for Exp<'_> {
        type Output = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            for part in 0..16 / S::LANES {
                let at = self.0.as_mut_ptr().add(part * S::LANES);
                S::store_f32(at, exp::<S>(S::load_f32(at)));
            }
        }
    }

    #[test]
    fn exp_is_within_two_ulp_and_the_same_on_every_path() {
        for step in (-87_000..87_984).step_by(16) {
            let x: [f32; 16] = std::array::from_fn(|lane| (step + lane as i32) as f32 / 1000.0);
            let mut first = x;
            dispatch(Kernels::SCALAR, Exp(&mut first));
            for (x, y) in x.iter().zip(first) {
                let exact = f64::from(*x).exp();
                let error = (f64::from(y) - exact).abs() / exact;
                assert!(error < 2.4e-7, "exp({x}) is off by {error:e}");
            }
            for kernels in Kernels::available() {
                let mut again = x;
                dispatch(kernels, Exp(&mut again));
                assert_eq!(again.map(f32::to_bits), first.map(f32::to_bits), "{kernels:?}");
            }
        }
        for kernels in Kernels::available() {
            let mut ends = [f32::NEG_INFINITY; 16];
            ends[1] = f32::NAN;
            dispatch(kernels, Exp(&mut ends));
            assert!(ends[0] < 2e-38 && ends[1].is_nan(), "{kernels:?}: {ends:?}");
        }
    }
}
