//! Streams of the driver: their lists, their end, and blocks that cross from one to another.

use super::{Cache, StreamKey};
use crate::alloc::driver::{Address, Driver, DriverStream};
use crate::alloc::lists::StreamLists;
use crate::alloc::lock::RawLock;
use crate::alloc::state::{Phase, Stream};
use crate::alloc::table::BlockState;

impl<D: Driver, L: RawLock> Cache<D, L> {
    /// The key of a stream; one that is not known yet gets lists of its own.
    pub fn register_stream(&self, driver: DriverStream) -> StreamKey {
        if let Some(key) = self.find_stream(driver) {
            return key;
        }
        let lists = StreamLists::new();
        let mut state = self.state.lock();
        let known = state.streams.iter().position(|s| s.alive && s.driver == driver);
        let index = known.unwrap_or_else(|| {
            state.streams.push(Stream { driver, lists: Some(lists), reserve: None, alive: true });
            state.streams.len() - 1
        });
        StreamKey(index as u32)
    }

    /// The key of a stream that is known and not destroyed.
    pub fn find_stream(&self, driver: DriverStream) -> Option<StreamKey> {
        if self.is_forked_child() {
            return None;
        }
        let state = self.state.lock();
        let index = state.streams.iter().position(|s| s.alive && s.driver == driver)?;
        Some(StreamKey(index as u32))
    }

    /// Says that a handed-out block is used on another stream than its own, so that it is not handed
    /// out again before that stream's work is done.
    pub fn record_use(&self, address: Address, stream: StreamKey) {
        if self.is_forked_child() {
            return;
        }
        let mut state = self.state.lock();
        if let Some(index) = state.table.find(address)
            && state.table.get(index).state == BlockState::Live
        {
            state.note_use(index, stream.0);
        }
    }

    /// Waits for the stream's work and gives its idle blocks back, to be called while the driver
    /// still knows the stream. Its blocks that are handed out are freed to the driver when their
    /// time comes. Within a capture the blocks are given back at its end.
    pub fn destroy_stream(&self, stream: StreamKey) {
        if self.is_forked_child() {
            return;
        }
        let mut state = self.state.lock();
        let driver_stream = state.driver_stream(stream.0);
        if state.phase == Phase::Capturing {
            // Nothing may wait within a capture, and the stream's own work may still run.
            state.wait_at_end = true;
            drop(state);
        } else {
            let barrier = self.raise_barrier(state);
            // A stream that cannot be waited for is gone for the driver already.
            let _ = self.driver.synchronize(Some(driver_stream));
            drop(barrier.lower());
        }
        self.poll_fences();
        let mut state = self.state.lock();
        let Some(entry) = state.streams.get_mut(stream.0 as usize) else { return };
        if !entry.alive {
            return;
        }
        entry.alive = false;
        if state.phase == Phase::Eager {
            state.purge_gone_streams();
        }
        self.settle(state);
    }

    /// Destroys every stream of a device, before its context goes.
    pub fn destroy_device(&self, device: u32) {
        if self.is_forked_child() {
            return;
        }
        let mut next = 0;
        loop {
            let state = self.state.lock();
            let found =
                state.streams[next..].iter().position(|s| s.alive && s.driver.device == device);
            drop(state);
            let Some(offset) = found else { return };
            self.destroy_stream(StreamKey((next + offset) as u32));
            next += offset + 1;
        }
    }
}
