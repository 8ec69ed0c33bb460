//! Captures a step of candle's on a CUDA stream, with the rehearsal without which a first capture
//! misses. The hooks open and close the cache's window meanwhile, as with any capture.

use std::sync::Arc;

use candle_core::CudaDevice;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream, DriverError};

use super::installed;
use super::window::{self, Rehearsal};
use crate::alloc::CaptureRefused;

/// Why a step was not captured. The cache is as it was before, whichever it is.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Nothing would keep the graph's memory in place.
    #[error("the capture was refused")]
    Refused(#[from] CaptureRefused),
    /// The step failed, in the rehearsal or within the capture.
    #[error("the step failed")]
    Step(#[source] candle_core::Error),
    /// The driver failed.
    #[error("the driver could not capture the step")]
    Driver(#[source] DriverError),
    /// The step did nothing on the stream.
    #[error("the step did no work on the captured stream")]
    Empty,
}

/// Captures a step: rehearses it once eagerly, so that the cache has a block for each of its
/// requests, then runs it again within a capture of the device's stream.
///
/// Returns the graph, whose launch runs the step again, and what the step gave within the capture:
/// a launch writes its outputs there. What it gave in the rehearsal is dropped in between.
///
/// The step must do the same work each time and must not read from the device: `docs/CUDA.md` lists
/// what of candle's does. What candle uploads for its own kernels, shapes and strides, is kept from
/// the rehearsal on and is the same in every replay. The graph's blocks stay where they are until it
/// is dropped.
///
/// # Errors
/// See [`CaptureError`].
pub fn capture<T>(
    device: &CudaDevice,
    step: &mut dyn FnMut() -> candle_core::Result<T>,
) -> Result<(CudaGraph, T), CaptureError> {
    let cache = installed::cache().ok_or(CaptureRefused::Killed)?;
    let _alone = Rehearsal::begin(cache)?;
    let stream = device.cuda_stream();
    let _uploads = device.enable_cuda_graph_htod_cache();
    drop(step().map_err(CaptureError::Step)?);
    stream.synchronize().map_err(CaptureError::Driver)?;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).map_err(CaptureError::Driver)?;
    let capturing = Capturing { stream: &stream };
    let worked = window::is_of(stream.cu_stream().addr()).then(step);
    std::mem::forget(capturing);
    let ended = stream.end_capture(CUgraphInstantiate_flags(0));
    let outputs = worked.transpose().map_err(CaptureError::Step)?;
    if let Some(refused) = window::take_refusal() {
        return Err(CaptureError::Refused(refused));
    }
    let graph = ended.map_err(CaptureError::Driver)?;
    graph.zip(outputs).ok_or(CaptureError::Empty)
}

/// Ends the driver's capture of a step that panicked.
struct Capturing<'a> {
    stream: &'a Arc<CudaStream>,
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        drop(self.stream.end_capture(CUgraphInstantiate_flags(0)));
    }
}
