//! Kernels that compute a row from a row: sums, extremes, softmax, norms.

use crate::launch::{Device, Launch, Plan, Strides, Work};

pub(super) fn find(name: &str) -> Option<Plan> {
    Some(match name {
        "fast_sum_f32" => sum,
        "fast_sum_small_f32" => sum_small,
        "fast_max_f32" => max,
        "fast_argmax_f32" => argmax,
        "softmax_f32" => softmax,
        "rmsnorm_f32" => rms_norm,
        _ => return None,
    })
}

/// `(numel, per_output, rank, info, in, out)`; each output from `per_output` values in a row.
///
/// # Safety
/// The arguments are those of a reduction to values of this type.
unsafe fn reduce<T: Copy + Send + Sync + 'static>(
    launch: &Launch,
    outputs: usize,
    compute: fn(&mut dyn Iterator<Item = f32>) -> T,
) -> Work {
    // SAFETY: as the caller promises.
    let (per_output, rank, info): (usize, usize, Device<usize>) =
        unsafe { (launch.arg(1), launch.arg(2), launch.at(3)) };
    // SAFETY: as the caller promises.
    let (input, output): (Device<f32>, Device<T>) = unsafe { (launch.at(4), launch.at(5)) };
    Box::new(move || {
        // SAFETY: the program keeps these addresses valid until the work is done.
        unsafe {
            let strides = Strides::read(info, rank, 1);
            for number in 0..outputs {
                let mut values = (0..per_output)
                    .map(|index| input.get(strides.offset(number * per_output + index)));
                output.set(number, compute(&mut values));
            }
        }
    })
}

unsafe fn sum(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of a reduction; there is one block for each output.
    unsafe { reduce::<f32>(launch, launch.grid_x, |values| values.sum()) }
}

unsafe fn sum_small(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of a reduction; the first is the number of outputs.
    unsafe { reduce::<f32>(launch, launch.arg::<usize>(0), |values| values.sum()) }
}

unsafe fn max(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of a reduction; there is one block for each output.
    unsafe {
        reduce::<f32>(launch, launch.grid_x, |values| values.fold(f32::NEG_INFINITY, f32::max))
    }
}

unsafe fn argmax(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of a reduction; there is one block for each output.
    unsafe {
        reduce::<u32>(launch, launch.grid_x, |values| {
            let mut best = (0, f32::NEG_INFINITY);
            for (index, value) in values.enumerate() {
                if value > best.1 {
                    best = (index as u32, value);
                }
            }
            best.0
        })
    }
}

/// `(in, out, columns)`, one block a row.
unsafe fn softmax(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of this kernel.
    let (input, output, columns): (Device<f32>, Device<f32>, i32) =
        unsafe { (launch.at(0), launch.at(1), launch.arg(2)) };
    let (rows, columns) = (launch.grid_x, columns as usize);
    Box::new(move || {
        for first in (0..rows).map(|row| row * columns) {
            // SAFETY: the program keeps these addresses valid until the work is done.
            unsafe {
                let max = (0..columns)
                    .map(|column| input.get(first + column))
                    .fold(f32::NEG_INFINITY, f32::max);
                let mut sum = 0.0;
                for column in 0..columns {
                    let value = (input.get(first + column) - max).exp();
                    sum += value;
                    output.set(first + column, value);
                }
                for column in 0..columns {
                    output.set(first + column, output.get(first + column) / sum);
                }
            }
        }
    })
}

/// `(in, out, weights, columns, block, epsilon)`, one block a row.
unsafe fn rms_norm(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of this kernel.
    let (input, output, weights): (Device<f32>, Device<f32>, Device<f32>) =
        unsafe { (launch.at(0), launch.at(1), launch.at(2)) };
    // SAFETY: as above.
    let (columns, epsilon): (i32, f32) = unsafe { (launch.arg(3), launch.arg(5)) };
    let (rows, columns) = (launch.grid_x, columns as usize);
    Box::new(move || {
        for first in (0..rows).map(|row| row * columns) {
            // SAFETY: the program keeps these addresses valid until the work is done.
            unsafe {
                let squares: f32 =
                    (0..columns).map(|column| input.get(first + column).powi(2)).sum();
                let scale = 1.0 / (squares / columns as f32 + epsilon).sqrt();
                for column in 0..columns {
                    let weight = if weights.is_null() { 1.0 } else { weights.get(column) };
                    output.set(first + column, scale * input.get(first + column) * weight);
                }
            }
        }
    })
}
