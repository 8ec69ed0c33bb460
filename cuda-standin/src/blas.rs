//! The matrix product of cuBLAS that candle calls, in F32 on the host, column-major as there.

use std::collections::HashMap;
use std::ffi::{c_int, c_longlong, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::capture;
use crate::counters::COUNTERS;
use crate::launch::Device;
use crate::state::enter;

const STATUS_SUCCESS: c_int = 0;
const STATUS_INVALID_VALUE: c_int = 7;
const STATUS_EXECUTION_FAILED: c_int = 13;
const STATUS_NOT_SUPPORTED: c_int = 15;
/// `CUDA_R_32F`.
const F32: c_int = 0;

/// The stream of each handle.
static HANDLES: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasCreate_v2(handle: *mut usize) -> c_int {
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    let new = 0x9000 + handles.len() * 16;
    handles.insert(new, 0);
    // SAFETY: the caller passes a place for one handle.
    unsafe { handle.write(new) };
    STATUS_SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasDestroy_v2(_handle: usize) -> c_int {
    STATUS_SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasSetStream_v2(handle: usize, stream: usize) -> c_int {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, stream);
    STATUS_SUCCESS
}

/// One operand: where its element at (row, column) is.
#[derive(Clone, Copy)]
struct Operand {
    values: Device<f32>,
    transposed: bool,
    leading: usize,
    batch_stride: i64,
}

impl Operand {
    /// # Safety
    /// The element exists.
    unsafe fn get(&self, batch: usize, row: usize, column: usize) -> f32 {
        let (inner, outer) = if self.transposed { (column, row) } else { (row, column) };
        let offset = batch as i64 * self.batch_stride + (inner + outer * self.leading) as i64;
        // SAFETY: as the caller promises.
        unsafe { self.values.get(offset as usize) }
    }
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn cublasGemmStridedBatchedEx(
    handle: usize,
    transpose_a: c_int,
    transpose_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    a_type: c_int,
    lda: c_int,
    stride_a: c_longlong,
    b: u64,
    b_type: c_int,
    ldb: c_int,
    stride_b: c_longlong,
    beta: *const c_void,
    c: u64,
    c_type: c_int,
    ldc: c_int,
    stride_c: c_longlong,
    batches: c_int,
    _compute_type: c_int,
    _algorithm: c_int,
) -> c_int {
    if [a_type, b_type, c_type] != [F32; 3] {
        return STATUS_NOT_SUPPORTED;
    }
    if m <= 0 || n <= 0 || k <= 0 || batches <= 0 {
        return STATUS_INVALID_VALUE;
    }
    // SAFETY: for F32 the caller passes two readable floats on the host.
    let (alpha, beta) = unsafe { (alpha.cast::<f32>().read(), beta.cast::<f32>().read()) };
    let operand = |address: u64, transposed: c_int, leading: c_int, batch_stride: i64| Operand {
        values: Device::new(address),
        transposed: transposed != 0,
        leading: leading as usize,
        batch_stride,
    };
    let (left, right) =
        (operand(a, transpose_a, lda, stride_a), operand(b, transpose_b, ldb, stride_b));
    let output = Device::<f32>::new(c);
    let (m, n, k, ldc) = (m as usize, n as usize, k as usize, ldc as usize);
    let work = move || {
        for batch in 0..batches as usize {
            for column in 0..n {
                for row in 0..m {
                    // SAFETY: the program keeps these addresses valid until the work is done.
                    unsafe {
                        let sum: f32 = (0..k)
                            .map(|i| left.get(batch, row, i) * right.get(batch, i, column))
                            .sum();
                        let place = batch as i64 * stride_c + (row + column * ldc) as i64;
                        let before =
                            if beta == 0.0 { 0.0 } else { beta * output.get(place as usize) };
                        output.set(place as usize, alpha * sum + before);
                    }
                }
            }
        }
    };
    let stream = HANDLES.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).copied();
    let submitted = enter("cublasGemmStridedBatchedEx").and_then(|mut state| {
        let stream = stream.unwrap_or(0);
        state.check_stream("cublasGemmStridedBatchedEx", stream)?;
        COUNTERS.gemm.add();
        capture::submit("cublasGemmStridedBatchedEx", state, stream, work)
    });
    if submitted.is_ok() { STATUS_SUCCESS } else { STATUS_EXECUTION_FAILED }
}
