//! Graph capture on a CUDA stream: the driver's capture and the cache's window, opened and closed
//! together.
//!
//! The hooks open the cache's window with every capture that the program begins, however it does
//! that, and pin what the capture has used until the graph and all that was instantiated from it are
//! gone. [`capture`] adds the rehearsal without which a first capture misses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use candle_core::CudaDevice;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, DriverError};

use super::hooks::{self, CudaCache};
use crate::alloc::driver::Driver as _;
use crate::alloc::{CaptureRefused, GraphToken};

/// The handle of the stream whose capture the cache's window belongs to; 0 where none is open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// Why the last window could not be closed well.
static REFUSAL: Mutex<Option<CaptureRefused>> = Mutex::new(None);

/// Whether a window is open.
pub(super) fn is_open() -> bool {
    OPEN.load(Ordering::Acquire) != 0
}

/// Whether the open window belongs to the stream.
pub(super) fn is_of(stream: usize) -> bool {
    stream != 0 && OPEN.load(Ordering::Acquire) == stream
}

/// What the cache does about a capture that the program begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// Its window is open.
    Opened,
    /// It is off, as for prefill, and stays out: the driver deals with the capture's memory.
    Outside,
    /// Its window is open for another stream, and there is only one: a second graph's blocks would be
    /// pinned to the first, or to none.
    Busy,
}

/// Opens the cache's window for a stream's capture.
pub(super) fn open(cache: &CudaCache, stream: usize) -> Opening {
    let Err(refused) = cache.begin_capture() else {
        OPEN.store(stream, Ordering::Release);
        return Opening::Opened;
    };
    *REFUSAL.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
    match refused {
        CaptureRefused::AlreadyCapturing => Opening::Busy,
        _ => Opening::Outside,
    }
}

/// Closes the window and pins its blocks to the graph.
///
/// # Errors
/// Where requests missed within it.
pub(super) fn close(graph: usize) -> Result<(), CaptureRefused> {
    OPEN.store(0, Ordering::Release);
    let Some(cache) = hooks::cache() else { return Ok(()) };
    match cache.commit_capture() {
        Ok(token) => {
            GRAPHS.enter(graph, token);
            Ok(())
        }
        Err(refused) => {
            *REFUSAL.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
            Err(refused)
        }
    }
}

/// Closes the window of a capture that failed.
pub(super) fn give_up() {
    OPEN.store(0, Ordering::Release);
    if let Some(cache) = hooks::cache() {
        cache.abort_capture();
    }
}

/// A captured graph, for as long as it or something that was instantiated from it exists.
#[derive(Debug)]
struct Pinned {
    graph: Option<usize>,
    executables: Vec<usize>,
    token: GraphToken,
}

/// The captured graphs whose blocks are pinned.
#[derive(Debug)]
pub(super) struct Graphs(Mutex<Vec<Pinned>>);

pub(super) static GRAPHS: Graphs = Graphs(Mutex::new(Vec::new()));

impl Graphs {
    fn enter(&self, graph: usize, token: GraphToken) {
        let pinned = Pinned { graph: Some(graph), executables: Vec::new(), token };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pinned);
    }

    pub(super) fn note_executable(&self, graph: usize, executable: usize) {
        let mut graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pinned) = graphs.iter_mut().find(|pinned| pinned.graph == Some(graph)) {
            pinned.executables.push(executable);
        }
    }

    pub(super) fn end_executable(&self, executable: usize) {
        self.end(|pinned| pinned.executables.retain(|&known| known != executable));
    }

    pub(super) fn end_graph(&self, graph: usize) {
        self.end(|pinned| pinned.graph = pinned.graph.filter(|&known| known != graph));
    }

    /// Notes an end and unpins what nothing is left of.
    fn end(&self, note: impl FnMut(&mut Pinned)) {
        let gone: Vec<GraphToken> = {
            let mut graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            graphs.iter_mut().for_each(note);
            graphs
                .extract_if(.., |pinned| pinned.graph.is_none() && pinned.executables.is_empty())
                .map(|pinned| pinned.token)
                .collect()
        };
        let (Some(cache), false) = (hooks::cache(), gone.is_empty()) else { return };
        // The driver ends a graph that is still running when it is done. Its memory may be handed
        // out to other streams from here on, so the end is waited for.
        let _ = cache.driver().synchronize(None);
        gone.into_iter().for_each(|token| cache.destroy_graph(token));
    }
}

/// Why a step was not captured. The cache is as it was before, whichever it is.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Nothing would keep the graph's memory in place.
    #[error("the capture is refused")]
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
    let cache = hooks::cache().ok_or(CaptureRefused::Killed)?;
    cache.prime_capture()?;
    take_refusal();
    let stream = device.cuda_stream();
    let _uploads = device.enable_cuda_graph_htod_cache();
    let rehearsed = step()
        .map_err(CaptureError::Step)
        .and_then(|_outputs| stream.synchronize().map_err(CaptureError::Driver));
    if let Err(error) = rehearsed {
        cache.abort_capture();
        return Err(error);
    }
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    if let Err(error) = stream.begin_capture(mode) {
        cache.abort_capture();
        return Err(CaptureError::Driver(error));
    }
    let worked = is_open().then(step);
    let ended = stream.end_capture(CUgraphInstantiate_flags(0));
    // Without a window the rehearsal is still going on.
    cache.abort_capture();
    let outputs = worked.transpose().map_err(CaptureError::Step)?;
    if let Some(refused) = take_refusal() {
        return Err(CaptureError::Refused(refused));
    }
    let graph = ended.map_err(CaptureError::Driver)?;
    graph.zip(outputs).ok_or(CaptureError::Empty)
}

fn take_refusal() -> Option<CaptureRefused> {
    REFUSAL.lock().unwrap_or_else(PoisonError::into_inner).take()
}
