//! Graph capture on a CUDA stream: the driver's capture and the cache's window, opened and closed
//! together.
//!
//! The hooks open the cache's window with every capture that the program begins, however it does
//! that, and pin what the capture has used until the graph and all that was instantiated from it are
//! gone. [`capture`] adds the rehearsal without which a first capture misses.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::CudaDevice;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream, DriverError};

use super::hooks::{self, CudaCache};
use crate::alloc::{CaptureRefused, GraphToken};

/// The handle of the stream whose capture the cache's window belongs to; 0 where none is open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// The handle of a stream that is captured while the cache is off; 0 for none.
static OUTSIDE: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread is in [`capture`]: no other may begin one meanwhile.
static REHEARSING: AtomicBool = AtomicBool::new(false);
/// Graphs that are gone while a window was open: nothing may wait for them within it.
static DEFERRED: Mutex<Vec<GraphToken>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is the one in [`capture`].
    static REHEARSES: Cell<bool> = const { Cell::new(false) };
    /// Why this thread's last window could not be opened or closed well.
    static REFUSAL: Cell<Option<CaptureRefused>> = const { Cell::new(None) };
}

/// Whether the open window belongs to the stream.
pub(super) fn is_of(stream: usize) -> bool {
    stream != 0 && OPEN.load(Ordering::Acquire) == stream
}

/// Whether the stream is captured while the cache stays out of it.
#[inline]
pub(super) fn is_outside(stream: usize) -> bool {
    stream != 0 && OUTSIDE.load(Ordering::Acquire) == stream
}

/// Whether any stream is: the cache must not be switched on under it.
pub(super) fn has_outside() -> bool {
    OUTSIDE.load(Ordering::Acquire) != 0
}

/// The stream's capture begins without the cache, or has ended.
pub(super) fn note_outside(stream: usize, captured: bool) {
    if captured {
        OUTSIDE.store(stream, Ordering::Release);
    } else {
        let _ = OUTSIDE.compare_exchange(stream, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
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
    if REHEARSING.load(Ordering::Acquire) && !REHEARSES.get() || has_outside() {
        return Opening::Busy;
    }
    let Err(refused) = cache.begin_capture() else {
        OPEN.store(stream, Ordering::Release);
        return Opening::Opened;
    };
    REFUSAL.set(Some(refused));
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
    let Some(cache) = hooks::cache() else { return Ok(()) };
    let committed = cache.commit_capture();
    OPEN.store(0, Ordering::Release);
    unpin_deferred(cache);
    match committed {
        Ok(token) => {
            GRAPHS.enter(graph, token);
            Ok(())
        }
        Err(refused) => {
            REFUSAL.set(Some(refused));
            Err(refused)
        }
    }
}

/// Closes the window of a capture that failed.
pub(super) fn give_up() {
    if let Some(cache) = hooks::cache() {
        cache.abort_capture();
        OPEN.store(0, Ordering::Release);
        unpin_deferred(cache);
    }
}

/// Unpins what was held by graphs that went within the window.
fn unpin_deferred(cache: &CudaCache) {
    let tokens = std::mem::take(&mut *DEFERRED.lock().unwrap_or_else(PoisonError::into_inner));
    unpin(cache, tokens);
}

/// Unpins the blocks of graphs that are gone. The driver ends a graph that is still running when it is
/// done, and the memory may be handed out to other streams from here on: the end is waited for. Where
/// nothing may wait, because a capture is going on, it is put off to the next occasion.
fn unpin(cache: &CudaCache, tokens: Vec<GraphToken>) {
    if tokens.is_empty() {
        return;
    }
    if cache.synchronize() {
        tokens.into_iter().for_each(|token| cache.destroy_graph(token));
    } else {
        DEFERRED.lock().unwrap_or_else(PoisonError::into_inner).extend(tokens);
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

    /// Forgets an executable that is about to be destroyed: the driver may give its handle to another
    /// at once. What is returned is to be given to [`Graphs::end`] once it is destroyed.
    pub(super) fn take_executable(&self, executable: usize) -> Vec<GraphToken> {
        self.take(|pinned| pinned.executables.retain(|&known| known != executable))
    }

    /// As [`take_executable`](Self::take_executable), for a graph.
    pub(super) fn take_graph(&self, graph: usize) -> Vec<GraphToken> {
        self.take(|pinned| pinned.graph = pinned.graph.filter(|&known| known != graph))
    }

    fn take(&self, note: impl FnMut(&mut Pinned)) -> Vec<GraphToken> {
        let mut graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.iter_mut().for_each(note);
        graphs
            .extract_if(.., |pinned| pinned.graph.is_none() && pinned.executables.is_empty())
            .map(|pinned| pinned.token)
            .collect()
    }

    /// Unpins what nothing is left of; within a window, at its end.
    pub(super) fn end(&self, tokens: Vec<GraphToken>) {
        if let Some(cache) = hooks::cache() {
            unpin(cache, tokens);
        }
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
    let _alone = Rehearsal::begin(cache)?;
    let stream = device.cuda_stream();
    let _uploads = device.enable_cuda_graph_htod_cache();
    drop(step().map_err(CaptureError::Step)?);
    stream.synchronize().map_err(CaptureError::Driver)?;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).map_err(CaptureError::Driver)?;
    let capturing = Capturing { stream: &stream };
    let worked = is_of(stream.cu_stream().addr()).then(step);
    std::mem::forget(capturing);
    let ended = stream.end_capture(CUgraphInstantiate_flags(0));
    let outputs = worked.transpose().map_err(CaptureError::Step)?;
    if let Some(refused) = REFUSAL.take() {
        return Err(CaptureError::Refused(refused));
    }
    let graph = ended.map_err(CaptureError::Driver)?;
    graph.zip(outputs).ok_or(CaptureError::Empty)
}

/// A rehearsal, and the capture after it: this thread's alone.
struct Rehearsal<'a> {
    cache: &'a CudaCache,
}

impl<'a> Rehearsal<'a> {
    fn begin(cache: &'a CudaCache) -> Result<Self, CaptureRefused> {
        if REHEARSING.swap(true, Ordering::AcqRel) {
            return Err(CaptureRefused::AlreadyCapturing);
        }
        REHEARSES.set(true);
        REFUSAL.set(None);
        let rehearsal = Rehearsal { cache };
        if let Err(refused) = cache.prime_capture() {
            // What is going on is another thread's: it is not this one's to abort.
            std::mem::forget(rehearsal);
            REHEARSES.set(false);
            REHEARSING.store(false, Ordering::Release);
            return Err(refused);
        }
        Ok(rehearsal)
    }
}

impl Drop for Rehearsal<'_> {
    /// Gives up what is still going on, after a panic of the step too. No other thread can have begun
    /// anything meanwhile.
    fn drop(&mut self) {
        self.cache.abort_capture();
        REHEARSES.set(false);
        REHEARSING.store(false, Ordering::Release);
    }
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
