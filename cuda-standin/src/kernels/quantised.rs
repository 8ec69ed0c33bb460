//! Quantised weights: rows of an embedding, and the products of the statically linked launchers.
//!
//! The real launchers quantise the activations first. Here the activations are used as they are: the
//! quantiser only notes which values its scratch memory stands for.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::capture;
use crate::counters::COUNTERS;
use crate::launch::{Device, Launch, Plan, Work, half_to_f32};
use crate::state::{enter, lock};

/// A block format: how many values and bytes a block has, and how it is read.
#[derive(Clone, Copy)]
struct Format {
    values: usize,
    bytes: usize,
    read: fn(&[u8], &mut [f32]),
}

fn half_at(block: &[u8], at: usize) -> f32 {
    half_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

fn format(name: &str) -> Option<Format> {
    Some(match name {
        "f32" => Format {
            values: 1,
            bytes: 4,
            read: |block, out| {
                out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
            },
        },
        "f16" => Format { values: 1, bytes: 2, read: |block, out| out[0] = half_at(block, 0) },
        "q4_0" => Format {
            values: 32,
            bytes: 18,
            read: |block, out| {
                let scale = half_at(block, 0);
                for (index, byte) in block[2..].iter().enumerate() {
                    out[index] = (f32::from(byte & 15) - 8.0) * scale;
                    out[index + 16] = (f32::from(byte >> 4) - 8.0) * scale;
                }
            },
        },
        "q4_1" => Format {
            values: 32,
            bytes: 20,
            read: |block, out| {
                let (scale, min) = (half_at(block, 0), half_at(block, 2));
                for (index, byte) in block[4..].iter().enumerate() {
                    out[index] = f32::from(byte & 15) * scale + min;
                    out[index + 16] = f32::from(byte >> 4) * scale + min;
                }
            },
        },
        "q8_0" => Format {
            values: 32,
            bytes: 34,
            read: |block, out| {
                let scale = half_at(block, 0);
                for (value, byte) in out.iter_mut().zip(&block[2..]) {
                    *value = f32::from(*byte as i8) * scale;
                }
            },
        },
        _ => return None,
    })
}

impl Format {
    /// Reads the row that starts at `address`.
    ///
    /// # Safety
    /// The row is there, with as many values as `out` holds.
    unsafe fn read_row(self, address: u64, out: &mut [f32]) {
        let bytes = out.len() / self.values * self.bytes;
        // SAFETY: as the caller promises.
        let row = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
        for (block, values) in row.chunks(self.bytes).zip(out.chunks_mut(self.values)) {
            (self.read)(block, values);
        }
    }
}

/// A plan for one format, as a plain function.
macro_rules! rows_of {
    ($name:literal) => {{
        unsafe fn planned(launch: &Launch) -> Work {
            // SAFETY: the caller's promises are those of `get_rows`.
            unsafe { get_rows(launch, $name) }
        }
        planned as Plan
    }};
}

pub(super) fn find(name: &str) -> Option<Plan> {
    Some(match name {
        "get_rows_f32" => rows_of!("f32"),
        "get_rows_f16" => rows_of!("f16"),
        "get_rows_q4_0" => rows_of!("q4_0"),
        "get_rows_q4_1" => rows_of!("q4_1"),
        "get_rows_q8_0" => rows_of!("q8_0"),
        _ => return None,
    })
}

/// `(weights, ids, out, columns, row_bytes)`, one block in x for each id.
unsafe fn get_rows(launch: &Launch, name: &str) -> Work {
    // SAFETY: the arguments are those of this kernel.
    let (weights, ids, output, columns, row_bytes): (u64, Device<u32>, Device<f32>, i64, usize) =
        unsafe { (launch.arg(0), launch.at(1), launch.at(2), launch.arg(3), launch.arg(4)) };
    let (rows, columns) = (launch.grid_x, columns as usize);
    let format = format(name);
    Box::new(move || {
        let Some(format) = format else { return };
        for row in 0..rows {
            // SAFETY: the program keeps these addresses valid until the work is done, and the
            // output has `columns` values for each id.
            unsafe {
                let values = std::slice::from_raw_parts_mut(output.at(row * columns), columns);
                format.read_row(weights + u64::from(ids.get(row)) * row_bytes as u64, values);
            }
        }
    })
}

/// The values that each scratch memory stands for.
static ACTIVATIONS: LazyLock<Mutex<BTreeMap<u64, u64>>> = LazyLock::new(Mutex::default);

/// Called by the launchers in place of quantising `x` into `scratch`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn standin_quantize(
    x: u64,
    scratch: u64,
    _columns: i64,
    _rows: i64,
    dtype: *const c_char,
    _stream: usize,
) {
    // SAFETY: the launchers pass a C string.
    let dtype = unsafe { CStr::from_ptr(dtype) };
    assert_eq!(dtype, c"f32", "the stand-in's products take F32 activations alone");
    ACTIVATIONS.lock().unwrap_or_else(PoisonError::into_inner).insert(scratch, x);
    COUNTERS.launch.add();
}

/// Called by the launchers in place of the product: `out[b][r] = Σ weights[r][c] · x[b][c]`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn standin_quantized_matmul(
    dtype: *const c_char,
    weights: u64,
    scratch: u64,
    output: u64,
    output_dtype: *const c_char,
    columns: i64,
    rows: i64,
    batch: i64,
    output_stride: i64,
    stream: usize,
) {
    // SAFETY: the launchers pass C strings.
    let (dtype, output_dtype) = unsafe { (CStr::from_ptr(dtype), CStr::from_ptr(output_dtype)) };
    assert_eq!(output_dtype, c"f32", "the stand-in's products give F32 alone");
    COUNTERS.launch.add();
    let dtype = dtype.to_string_lossy().into_owned();
    let Some(format) = format(&dtype) else {
        lock().note_without_host_version(format!("quantised product of {dtype}"));
        return;
    };
    let activations = ACTIVATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(&x) = activations.get(&scratch) else { return };
    drop(activations);
    let (columns, rows, batch) = (columns as usize, rows as usize, batch as usize);
    let (x, output) = (Device::<f32>::new(x), Device::<f32>::new(output));
    let row_bytes = (columns / format.values * format.bytes) as u64;
    let work = move || {
        let mut values = vec![0.0f32; columns];
        for row in 0..rows {
            // SAFETY: the program keeps these addresses valid until the work is done.
            unsafe { format.read_row(weights + row as u64 * row_bytes, &mut values) };
            for sequence in 0..batch {
                // SAFETY: as above; there are `columns` activations for each of `batch`.
                let x = unsafe { std::slice::from_raw_parts(x.at(sequence * columns), columns) };
                let sum = dot(&values, x);
                // SAFETY: as above.
                unsafe { output.set(sequence * output_stride as usize + row, sum) };
            }
        }
    };
    let submitted = enter("quantised product").and_then(|mut state| {
        state.check_stream("quantised product", stream)?;
        capture::submit("quantised product", state, stream, work)
    });
    assert!(submitted.is_ok(), "a quantised product was refused by the stream");
}

/// Eight sums side by side, added in a fixed order.
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    for (x, y) in left.chunks(8).zip(right.chunks(8)) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += x * y;
        }
    }
    sums.iter().sum()
}
