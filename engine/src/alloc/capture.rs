//! Graph capture: Idle → Priming → Capturing → Live(graph).
//!
//! A captured graph is replayed without asking the allocator, so every block whose address it has
//! baked in must stay where it is until the graph is destroyed. While a graph is captured nothing is
//! freed, evicted, drained or flushed, because the driver would either record the call into the
//! graph or free memory that the graph will use.

use crate::alloc::cache::{Cache, StateGuard, StreamKey};
use crate::alloc::driver::{Driver, Origin};
use crate::alloc::lists::StreamLists;
use crate::alloc::lock::RawLock;
use crate::alloc::state::{Chain, Graph, Phase, Place, State};
use crate::alloc::stats::{Counter, Mode};
use crate::alloc::table::{BlockState, NONE, UNCLASSED};

/// A captured graph whose blocks are pinned, to be given to
/// [`destroy_graph`](Cache::destroy_graph) together with the graph.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "the graph's blocks stay pinned until its token is given back"]
pub struct GraphToken(u64);

/// Why a capture was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CaptureRefused {
    /// The kill switch is thrown: nothing would keep the addresses that the graph bakes in.
    #[error("the kill switch keeps the allocator cache off, and a capture needs it")]
    Killed,
    /// The cache is off, as for prefill.
    #[error("the allocator cache is off: a capture needs a decode step")]
    CacheOff,
    /// The cache was shut down.
    #[error("the allocator was shut down")]
    Closed,
    /// Another capture is in progress.
    #[error("another capture is in progress")]
    AlreadyCapturing,
    /// No capture is in progress.
    #[error("no capture is in progress")]
    NotCapturing,
    /// The cache could not serve some requests of the window, so the graph would use memory that
    /// nothing keeps.
    #[error("{misses} requests within the capture missed the cache: prime it with the same step")]
    Misses {
        /// Requests that the cache could not serve.
        misses: u64,
    },
}

impl<D: Driver, L: RawLock> Cache<D, L> {
    /// Starts the rehearsal: run the step that will be captured once, eagerly. What it frees is held
    /// back, so that the cache ends up with a block for every request of the window.
    ///
    /// # Errors
    /// Where the cache is off or killed, or a capture is in progress.
    pub fn prime_capture(&self) -> Result<(), CaptureRefused> {
        let mut state = self.state.lock();
        if let Err(refused) = state.check_capture() {
            state.counters[Counter::CapturesRefused] += 1;
            return Err(refused);
        }
        state.phase = Phase::Priming;
        Ok(())
    }

    /// Starts the capture window, after a rehearsal or without one.
    ///
    /// # Errors
    /// Where the cache is off or killed, or a capture is in progress.
    pub fn begin_capture(&self) -> Result<(), CaptureRefused> {
        // A free that is on its way to the driver would fall into the window.
        let mut state = self.quiesce_and_lock_out(self.state.lock());
        let checked = match state.phase {
            Phase::Priming if state.mode == Mode::On => Ok(()),
            _ => state.check_capture(),
        };
        if let Err(refused) = checked {
            state.counters[Counter::CapturesRefused] += 1;
            return Err(refused);
        }
        state.stock_reserve();
        state.phase = Phase::Capturing;
        state.capture_misses = 0;
        Ok(())
    }

    /// Ends the window and pins the blocks that it has used to the graph.
    ///
    /// # Errors
    /// Where requests missed the cache within the window: the capture is then aborted and the graph
    /// must not be instantiated.
    pub fn commit_capture(&self) -> Result<GraphToken, CaptureRefused> {
        self.commit_capture_of(&[])
    }

    /// As [`commit_capture`](Self::commit_capture), and pins every block of these streams that is handed
    /// out now as well: weights, inputs and workspaces from before the window are in the graph though
    /// nobody asked for them within it.
    ///
    /// # Errors
    /// As for `commit_capture`.
    pub fn commit_capture_of(&self, streams: &[StreamKey]) -> Result<GraphToken, CaptureRefused> {
        let mut state = self.state.lock();
        if state.phase != Phase::Capturing {
            return Err(CaptureRefused::NotCapturing);
        }
        let misses = state.capture_misses;
        if misses > 0 {
            state.counters[Counter::CapturesRefused] += 1;
            drop(state);
            self.abort_capture();
            return Err(CaptureRefused::Misses { misses });
        }
        let mut state = self.wait_for_given_up(state);
        let token = state.pin_touched(streams);
        state.end_capture();
        self.settle(state);
        Ok(GraphToken(token))
    }

    /// Gives the rehearsal or the window up: what was freed within it is freed now, and nothing is
    /// pinned. Without either, nothing happens.
    pub fn abort_capture(&self) {
        let state = self.state.lock();
        if state.phase == Phase::Eager {
            return;
        }
        let mut state = self.wait_for_given_up(state);
        state.counters[Counter::CapturesAborted] += 1;
        for index in std::mem::take(&mut state.touched) {
            state.table.get_mut(index).touched = false;
        }
        state.end_capture();
        self.settle(state);
    }

    /// Says that a block which is freed within the capture was not waited for: the end of the capture
    /// waits for the device, because nothing may within it. Returns false where none is going on.
    pub fn wait_at_end_of_capture(&self) -> bool {
        if self.is_forked_child() {
            return false;
        }
        let mut state = self.state.lock();
        let capturing = state.phase == Phase::Capturing;
        state.wait_at_end |= capturing;
        capturing
    }

    /// Waits for what was given up within the window, now that the driver's capture is over.
    fn wait_for_given_up<'a>(&'a self, mut state: StateGuard<'a, L>) -> StateGuard<'a, L> {
        if std::mem::take(&mut state.wait_at_end) {
            drop(state);
            // A device that cannot be waited for is lost, with all that it holds.
            let _ = self.driver().synchronize(None);
            state = self.state.lock();
        }
        state
    }

    /// The graph is destroyed: what only it has pinned may be used again.
    pub fn destroy_graph(&self, token: GraphToken) {
        if self.is_forked_child() {
            return;
        }
        let mut state = self.state.lock();
        let Some(position) = state.graphs.iter().position(|graph| graph.token == token.0) else {
            return;
        };
        let graph = state.graphs.swap_remove(position);
        for index in graph.blocks {
            state.unpin(index);
        }
        self.settle(state);
    }
}

impl State {
    fn check_capture(&self) -> Result<(), CaptureRefused> {
        match (self.mode, self.phase) {
            (Mode::Killed, _) => Err(CaptureRefused::Killed),
            (Mode::Closed, _) => Err(CaptureRefused::Closed),
            (Mode::Off | Mode::Held | Mode::Prefill, _) => Err(CaptureRefused::CacheOff),
            (Mode::On, Phase::Priming | Phase::Capturing) => Err(CaptureRefused::AlreadyCapturing),
            (Mode::On, Phase::Eager) => Ok(()),
        }
    }

    /// Sorts what the rehearsal has freed into lists that the window is served from.
    fn stock_reserve(&mut self) {
        let mut parked = std::mem::replace(&mut self.parked, Chain::EMPTY);
        while let Some(index) = parked.pop(&self.table) {
            let block = *self.table.get(index);
            let usable = block.slot != UNCLASSED
                && block.origin == Origin::Cache
                && block.used_on == NONE
                && block.pins == 0
                && self.is_alive(block.stream);
            if usable {
                self.streams[block.stream as usize]
                    .reserve
                    .get_or_insert_with(StreamLists::new)
                    .push(&mut self.table, block.slot, index);
            } else {
                self.parked.push(&mut self.table, index);
            }
        }
    }

    /// Pins what the window has used, and what is handed out on the streams.
    fn pin_touched(&mut self, streams: &[StreamKey]) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        // What is in use anyway costs nothing by being pinned, so it is no part of the excess.
        let kept = self.table.iter().filter(|(_, block)| {
            block.touched || block.pins > 0 && block.state != BlockState::Live
        });
        let kept_bytes = kept.map(|(_, block)| block.physical_bytes).sum();
        self.pins_exceed_cap |= !self.cap.admits(kept_bytes);
        let in_use = self.table.iter().filter(|(_, block)| {
            block.state == BlockState::Live && streams.contains(&StreamKey(block.stream))
        });
        let in_use: Vec<u32> = in_use.map(|(index, _)| index).collect();
        in_use.into_iter().for_each(|index| self.touch(index));
        let blocks = std::mem::take(&mut self.touched);
        for &index in &blocks {
            let block = self.table.get_mut(index);
            block.touched = false;
            block.pins += 1;
            if block.pins == 1 && block.state == BlockState::Live {
                self.gauges.pinned_live_bytes += block.physical_bytes;
            }
        }
        self.graphs.push(Graph { token, blocks });
        self.counters[Counter::CapturesCommitted] += 1;
        token
    }

    fn unpin(&mut self, index: u32) {
        let block = self.table.get_mut(index);
        block.pins -= 1;
        if block.pins > 0 {
            return;
        }
        let (state, physical_bytes) = (block.state, block.physical_bytes);
        match state {
            BlockState::Pinned => {
                self.transfer(physical_bytes, Place::Pinned, Place::Parked);
                self.retire(index);
            }
            BlockState::Live => self.gauges.pinned_live_bytes -= physical_bytes,
            // Freed and on its way: its place is decided when it gets there.
            _ => {}
        }
    }

    /// Returns to eager work: everything that was held back is settled, and a drain that was put off
    /// is done.
    fn end_capture(&mut self) {
        self.phase = Phase::Eager;
        self.capture_misses = 0;
        while let Some(index) = self.parked.pop(&self.table) {
            self.place_unparked(index);
        }
        for stream in 0..self.streams.len() {
            let Some(mut reserve) = self.streams[stream].reserve.take() else { continue };
            for class in reserve.classes_mut() {
                let depth = class.depth();
                let mut chain = Chain { head: class.cut_bottom(&mut self.table, depth) };
                while let Some(index) = chain.pop(&self.table) {
                    self.place_unparked(index);
                }
            }
        }
        if std::mem::take(&mut self.drain_deferred) {
            self.drain_and_disable();
        }
        self.purge_gone_streams();
    }
}
