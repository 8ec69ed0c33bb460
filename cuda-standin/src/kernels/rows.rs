//! Kernels that pick rows or rotate heads.

use crate::launch::{Device, Launch, Plan, Strides, Work};

pub(super) fn find(name: &str) -> Option<Plan> {
    Some(match name {
        "is_u32_f32" => index_select,
        "rope_f32" => rope,
        "rope_i_f32" => rope_interleaved,
        _ => return None,
    })
}

/// `(numel, ids_rank, ids_info, ids, in, out, left, in_rows, ids_len, right)`.
unsafe fn index_select(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of this kernel.
    let (rank, info, ids): (usize, Device<usize>, Device<u32>) =
        unsafe { (launch.arg(1), launch.at(2), launch.at(3)) };
    // SAFETY: as above.
    let (input, output): (Device<f32>, Device<f32>) = unsafe { (launch.at(4), launch.at(5)) };
    // SAFETY: as above.
    let [left, in_rows, ids_len, right] =
        [6, 7, 8, 9].map(|index| unsafe { launch.arg::<usize>(index) });
    Box::new(move || {
        // SAFETY: the program keeps these addresses valid until the work is done.
        unsafe {
            let strides = Strides::read(info, rank, 1);
            for outer in 0..left {
                for position in 0..ids_len {
                    let id = ids.get(strides.offset(position)) as usize;
                    for inner in 0..right {
                        let value = if id < in_rows {
                            input.get((outer * in_rows + id) * right + inner)
                        } else {
                            0.0
                        };
                        output.set((outer * ids_len + position) * right + inner, value);
                    }
                }
            }
        }
    })
}

/// Rotates the pair at two places of the output's values.
///
/// # Safety
/// All four places exist.
unsafe fn rotate(
    (input, output): (Device<f32>, Device<f32>),
    (first, second): (usize, usize),
    (cos, sin): (f32, f32),
) {
    // SAFETY: as the caller promises.
    unsafe {
        let (x, y) = (input.get(first), input.get(second));
        output.set(first, x * cos - y * sin);
        output.set(second, x * sin + y * cos);
    }
}

/// `(in, cos, sin, out, bh, td, d, stride_b)`: halves of a head are the pairs.
unsafe fn rope(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of this kernel.
    let [input, cos, sin, output] = [0, 1, 2, 3].map(|index| unsafe { launch.at::<f32>(index) });
    // SAFETY: as above.
    let [bh, td, d, stride_b] =
        [4, 5, 6, 7].map(|index| unsafe { launch.arg::<u32>(index) } as usize);
    Box::new(move || {
        for index in 0..bh * td / 2 {
            let (head, within) = (index / (td / 2), index % (td / 2));
            let (token, pair) = (within / (d / 2), within % (d / 2));
            let first = head * td + token * d + pair;
            let batch = (2 * index).checked_div(stride_b).unwrap_or(0);
            let angle = token * (d / 2) + pair + batch * (td / 2);
            // SAFETY: the program keeps these addresses valid until the work is done.
            unsafe {
                let rotation = (cos.get(angle), sin.get(angle));
                rotate((input, output), (first, first + d / 2), rotation);
            }
        }
    })
}

/// `(in, cos, sin, out, bh, td, stride_b)`: neighbours are the pairs.
unsafe fn rope_interleaved(launch: &Launch) -> Work {
    // SAFETY: the arguments are those of this kernel.
    let [input, cos, sin, output] = [0, 1, 2, 3].map(|index| unsafe { launch.at::<f32>(index) });
    // SAFETY: as above.
    let [bh, td, stride_b] = [4, 5, 6].map(|index| unsafe { launch.arg::<u32>(index) } as usize);
    Box::new(move || {
        for index in 0..bh * td / 2 {
            let batch = (2 * index).checked_div(stride_b).unwrap_or(0);
            let angle = index % (td / 2) + batch * (td / 2);
            // SAFETY: the program keeps these addresses valid until the work is done.
            unsafe {
                let rotation = (cos.get(angle), sin.get(angle));
                rotate((input, output), (2 * index, 2 * index + 1), rotation);
            }
        }
    })
}
