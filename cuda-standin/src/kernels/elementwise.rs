//! Kernels that compute each output from the inputs at one place.

use crate::launch::{Device, Launch, Plan, Strides, Work};

/// A plan out of a generic one and what it computes, as a plain function.
macro_rules! plan {
    ($generic:ident, $type:ty, $compute:expr) => {{
        unsafe fn planned(launch: &Launch) -> Work {
            // SAFETY: the caller's promises are those of the generic plan.
            unsafe { $generic::<$type>(launch, $compute) }
        }
        planned as Plan
    }};
}

pub(super) fn find(name: &str) -> Option<Plan> {
    Some(match name {
        "affine_f32" => affine,
        "ucopy_f32" => plan!(unary, f32, |x| x),
        "ucopy_u32" => plan!(unary, u32, |x| x),
        "ucopy_u8" => plan!(unary, u8, |x| x),
        "uneg_f32" => plan!(unary, f32, |x| -x),
        "urecip_f32" => plan!(unary, f32, |x| 1.0 / x),
        "uexp_f32" => plan!(unary, f32, f32::exp),
        "usqr_f32" => plan!(unary, f32, |x| x * x),
        "usqrt_f32" => plan!(unary, f32, f32::sqrt),
        "usilu_f32" => plan!(unary, f32, |x| x / (1.0 + (-x).exp())),
        "usigmoid_f32" => plan!(unary, f32, |x| 1.0 / (1.0 + (-x).exp())),
        "badd_f32" => plan!(binary, f32, |x, y| x + y),
        "bsub_f32" => plan!(binary, f32, |x, y| x - y),
        "bmul_f32" => plan!(binary, f32, |x, y| x * y),
        "bdiv_f32" => plan!(binary, f32, |x, y| x / y),
        "bminimum_f32" => plan!(binary, f32, f32::min),
        "bmaximum_f32" => plan!(binary, f32, f32::max),
        "const_set_f32" => const_set,
        "copy2d_f32" => copy2d::<f32>,
        "copy2d_u32" => copy2d::<u32>,
        "copy2d_u8" => copy2d::<u8>,
        _ => return None,
    })
}

/// A value that work may hold.
pub(super) trait Value: Copy + Send + Sync + 'static {}
impl<T: Copy + Send + Sync + 'static> Value for T {}

/// `(numel, rank, info, in, out, factor, addend)`.
unsafe fn affine(launch: &Launch) -> Work {
    // SAFETY: the caller's promises are those of `unary`, and the kernel has two more arguments.
    unsafe {
        let (factor, addend): (f32, f32) = (launch.arg(5), launch.arg(6));
        unary::<f32>(launch, move |x| x * factor + addend)
    }
}

/// `(numel, rank, info, in, out)`; without an input, the output is changed in place.
unsafe fn unary<T: Value>(
    launch: &Launch,
    compute: impl Fn(T) -> T + Send + Sync + 'static,
) -> Work {
    // SAFETY: the arguments are those of a unary kernel.
    let (numel, rank, info, input, output): (usize, usize, Device<usize>, Device<T>, Device<T>) =
        unsafe { (launch.arg(0), launch.arg(1), launch.at(2), launch.at(3), launch.at(4)) };
    Box::new(move || {
        // SAFETY: the program keeps these addresses valid until the work is done.
        unsafe {
            let strides = Strides::read(info, rank, 1);
            for index in 0..numel {
                let value = if input.is_null() {
                    output.get(index)
                } else {
                    input.get(strides.offset(index))
                };
                output.set(index, compute(value));
            }
        }
    })
}

/// `(numel, rank, info, left, right, out)`.
unsafe fn binary<T: Value>(
    launch: &Launch,
    compute: impl Fn(T, T) -> T + Send + Sync + 'static,
) -> Work {
    // SAFETY: the arguments are those of a binary kernel.
    let (numel, rank, info): (usize, usize, Device<usize>) =
        unsafe { (launch.arg(0), launch.arg(1), launch.at(2)) };
    // SAFETY: as above.
    let (left, right, output): (Device<T>, Device<T>, Device<T>) =
        unsafe { (launch.at(3), launch.at(4), launch.at(5)) };
    Box::new(move || {
        // SAFETY: the program keeps these addresses valid until the work is done.
        unsafe {
            let of_left = Strides::read(info, rank, 1);
            let of_right = Strides::read(info, rank, 2);
            for index in 0..numel {
                let (x, y) = (left.get(of_left.offset(index)), right.get(of_right.offset(index)));
                output.set(index, compute(x, y));
            }
        }
    })
}

/// `(numel, rank, info, value, out)`.
unsafe fn const_set(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of this kernel.
    let (numel, rank, info, value, output): (usize, usize, Device<usize>, f32, Device<f32>) =
        unsafe { (launch.arg(0), launch.arg(1), launch.at(2), launch.arg(3), launch.at(4)) };
    Box::new(move || {
        // SAFETY: the program keeps these addresses valid until the work is done.
        unsafe {
            let strides = Strides::read(info, rank, 1);
            for index in 0..numel {
                output.set(strides.offset(index), value);
            }
        }
    })
}

/// `(in, out, rows, columns, in_stride, out_stride)`.
unsafe fn copy2d<T: Value>(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of this kernel.
    let (input, output): (Device<T>, Device<T>) = unsafe { (launch.at(0), launch.at(1)) };
    // SAFETY: as above.
    let [rows, columns, in_stride, out_stride] =
        [2, 3, 4, 5].map(|index| unsafe { launch.arg::<u32>(index) } as usize);
    Box::new(move || {
        for row in 0..rows {
            for column in 0..columns {
                // SAFETY: the program keeps these addresses valid until the work is done.
                unsafe {
                    let value = input.get(row * in_stride + column);
                    output.set(row * out_stride + column, value);
                }
            }
        }
    })
}
