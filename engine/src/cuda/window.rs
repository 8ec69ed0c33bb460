//! The cache's capture window, opened and closed together with the driver's captures, and the graphs
//! whose blocks stay pinned.
//!
//! The hooks open a window with every capture that the program begins, however it does that, and pin
//! what the capture has used until the graph and all that was instantiated from it are gone.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::installed::{self, CudaCache};
use super::outside;
use crate::alloc::{CaptureRefused, GraphToken, StreamKey};

/// The handle of the stream whose capture the cache's window belongs to; 0 where none is open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread rehearses a capture: no other may begin one meanwhile.
static REHEARSING: AtomicBool = AtomicBool::new(false);
/// Graphs that are gone while a window was open: nothing may wait for them within it.
static DEFERRED: Mutex<Vec<GraphToken>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is the one that rehearses.
    static REHEARSES: Cell<bool> = const { Cell::new(false) };
    /// Why this thread's last window could not be opened or closed well.
    static REFUSAL: Cell<Option<CaptureRefused>> = const { Cell::new(None) };
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
    /// It is off, as for prefill, or keeps nothing for the stream, which has a special handle: it stays
    /// out, and the driver deals with the capture's memory.
    Outside,
    /// Its window is open for another stream, and there is only one: a second graph's blocks would be
    /// pinned to the first, or to none.
    Busy,
}

/// Opens the cache's window for a stream's capture.
pub(super) fn open(cache: &CudaCache, stream: usize) -> Opening {
    if REHEARSING.load(Ordering::Acquire) && !REHEARSES.get() || outside::is_open() {
        return Opening::Busy;
    }
    if outside::is_special(stream) {
        return Opening::Outside;
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

/// Closes the window and pins its blocks to the graph, with what is handed out on the streams.
///
/// # Errors
/// Where requests missed within it.
pub(super) fn close(graph: usize, streams: &[StreamKey]) -> Result<(), CaptureRefused> {
    let Some(cache) = installed::cache() else { return Ok(()) };
    let committed = cache.commit_capture_of(streams);
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
    if let Some(cache) = installed::cache() {
        cache.abort_capture();
        OPEN.store(0, Ordering::Release);
        unpin_deferred(cache);
    }
}

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
        if let Some(cache) = installed::cache() {
            unpin(cache, tokens);
        }
    }
}

/// Why this thread's last window could not be opened or closed well. Reading it clears it.
pub(super) fn take_refusal() -> Option<CaptureRefused> {
    REFUSAL.take()
}

/// A rehearsal, and the capture after it: this thread's alone.
pub(super) struct Rehearsal<'a> {
    cache: &'a CudaCache,
}

impl<'a> Rehearsal<'a> {
    pub(super) fn begin(cache: &'a CudaCache) -> Result<Self, CaptureRefused> {
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
