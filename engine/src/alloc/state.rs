//! The bookkeeping under the cache's lock: which block is where, and what the bounds say.
//!
//! Nothing here calls the driver. A block that has to go back is queued, and the cache releases the
//! queue once the lock is given back. Every method leaves `live + idle + parked + pinned == held`.

mod books;
mod eviction;
mod stale;

use crate::alloc::class::SizeClass;
use crate::alloc::driver::{Address, DriverBlock, DriverStream, EventId, Holdings, Origin};
use crate::alloc::lists::StreamLists;
use crate::alloc::peaks::{PeakLog, Peaks};
use crate::alloc::policy::{Cap, CapRequest, DEFAULT_CAP_BYTES, EffectiveCap};
pub(crate) use crate::alloc::state::books::{Books, Place};
use crate::alloc::stats::{Counter, Counters, FreeCause, Mode};
use crate::alloc::table::{Block, BlockState, MetadataFull, NONE, Table, UNCLASSED};

/// One stream, for as long as the driver knows it. Its index is never given to another stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) driver: DriverStream,
    /// `None` once the stream is gone and its idle blocks are given back.
    pub(crate) lists: Option<StreamLists>,
    /// What a rehearsal has stocked for the capture that is going on. These blocks are parked, not
    /// idle: nothing evicts them.
    pub(crate) reserve: Option<StreamLists>,
    pub(crate) alive: bool,
}

/// Where the cache is with graph capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Eager,
    /// A rehearsal that stocks the cache with what the capture will ask for.
    Priming,
    /// A graph is being captured.
    Capturing,
}

/// A captured graph that is alive.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) token: u64,
    pub(crate) blocks: Vec<u32>,
}

/// A block that waits for another stream's event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fence {
    pub(crate) block: u32,
    pub(crate) event: EventId,
}

/// A chain of blocks, linked through their records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) head: u32,
}

impl Chain {
    pub(crate) const EMPTY: Chain = Chain { head: NONE };

    pub(crate) fn push(&mut self, table: &mut Table, index: u32) {
        table.get_mut(index).next = self.head;
        self.head = index;
    }

    pub(crate) fn pop(&mut self, table: &Table) -> Option<u32> {
        let index = self.head;
        (index != NONE).then(|| {
            self.head = table.get(index).next;
            index
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) mode: Mode,
    pub(crate) phase: Phase,
    pub(crate) cap: Cap,
    pub(crate) gauges: Books,
    pub(crate) counters: Counters,
    pub(crate) peaks: PeakLog,
    pub(crate) table: Table,
    pub(crate) streams: Vec<Stream>,
    pub(crate) cap_request: CapRequest,
    pub(crate) effective_cap: Option<EffectiveCap>,
    /// Blocks that go back to the driver once the lock is free.
    pub(crate) releasing: Chain,
    /// Freed blocks whose next place is to be decided.
    pub(crate) retiring: Chain,
    /// Freed blocks that another stream has used and that no event stands behind yet.
    pub(crate) unfenced: Chain,
    /// Blocks that left the release queue and whose driver call has not returned yet.
    pub(crate) in_flight: usize,
    pub(crate) fences: Vec<Fence>,
    pub(crate) fenced_bytes: u64,
    /// Blocks that were freed during priming or capture.
    pub(crate) parked: Chain,
    /// Blocks that the capture has handed out or taken back.
    pub(crate) touched: Vec<u32>,
    pub(crate) capture_misses: u64,
    pub(crate) graphs: Vec<Graph>,
    pub(crate) next_token: u64,
    pub(crate) drain_deferred: bool,
    pub(crate) pins_exceed_cap: bool,
    /// Driver calls under way that must not fall into a capture or come after the end: whoever starts
    /// either waits for them.
    pub(crate) barriers: usize,
    /// Whether something was given up within the capture whose work nobody has waited for.
    pub(crate) wait_at_end: bool,
    steps_in_window: u64,
    served_at_window: u64,
}

impl State {
    pub(crate) fn new(mode: Mode, cap_request: CapRequest) -> Self {
        State {
            mode,
            phase: Phase::Eager,
            cap: match cap_request {
                CapRequest::Bytes(bytes) => Cap::Bounded(bytes),
                CapRequest::Unbounded => Cap::Unbounded,
                CapRequest::Default => Cap::Bounded(DEFAULT_CAP_BYTES),
            },
            gauges: Books::default(),
            counters: Counters::default(),
            peaks: PeakLog::default(),
            table: Table::new(),
            streams: Vec::new(),
            cap_request,
            effective_cap: None,
            releasing: Chain::EMPTY,
            retiring: Chain::EMPTY,
            unfenced: Chain::EMPTY,
            in_flight: 0,
            fences: Vec::new(),
            fenced_bytes: 0,
            parked: Chain::EMPTY,
            touched: Vec::new(),
            capture_misses: 0,
            graphs: Vec::new(),
            next_token: 1,
            drain_deferred: false,
            pins_exceed_cap: false,
            barriers: 0,
            wait_at_end: false,
            steps_in_window: 0,
            served_at_window: 0,
        }
    }

    pub(crate) fn holdings(&self) -> Holdings {
        Holdings {
            live_bytes: self.gauges.live_bytes(),
            idle_bytes: self.gauges.idle_bytes,
            pinned_bytes: self.gauges.pinned_bytes,
        }
    }

    pub(crate) fn current(&self) -> Peaks {
        Peaks {
            live_bytes: self.gauges.live_bytes(),
            idle_bytes: self.gauges.idle_bytes,
            total_bytes: self.gauges.held_bytes,
        }
    }

    /// Moves a block's bytes from one gauge to another. The peak is raised here and not by whoever
    /// moves them, so that it shows even an excess that is made good at once.
    #[inline]
    pub(crate) fn transfer(&mut self, physical_bytes: u64, from: Place, to: Place) {
        self.gauges.subtract(physical_bytes, from);
        self.gauges.add(physical_bytes, to);
        if to == Place::Idle {
            debug_assert!(self.cap.admits(self.gauges.idle_bytes), "inserted over the cap");
            self.peaks.raise_idle(self.gauges.idle_bytes);
        }
    }

    pub(crate) fn is_alive(&self, stream: u32) -> bool {
        self.streams.get(stream as usize).is_some_and(|stream| stream.alive)
    }

    /// The stream as the driver knows it; a stream that is gone is named without its handle.
    pub(crate) fn driver_stream(&self, stream: u32) -> DriverStream {
        match self.streams.get(stream as usize) {
            Some(stream) if stream.alive => stream.driver,
            Some(stream) => DriverStream { raw: 0, ..stream.driver },
            None => DriverStream::HOST,
        }
    }

    /// Takes an idle block of the class and hands it out.
    #[inline]
    pub(crate) fn serve(&mut self, stream: u32, class: SizeClass, bytes: u64) -> Option<Address> {
        let now = self.now();
        let lists = self.streams.get_mut(stream as usize)?.lists.as_mut()?;
        let index = lists.take(&mut self.table, class.slot, class.bytes, now)?;
        self.gauges.idle_bytes -= self.table.get(index).physical_bytes;
        Some(self.hand_out(index, bytes))
    }

    /// Hands out a block whose bytes count as live by now.
    #[inline]
    pub(crate) fn hand_out(&mut self, index: u32, bytes: u64) -> Address {
        let block = self.table.get_mut(index);
        block.state = BlockState::Live;
        block.requested_bytes = bytes;
        let address = Address(block.address);
        self.gauges.live_requested_bytes += bytes;
        self.peaks.raise_live(self.gauges.live_bytes());
        self.counters[Counter::Hits] += 1;
        address
    }

    /// The lists' clock: it advances with every request that they are asked for, so that a class which
    /// was only ever missed is more recent than one that was missed before it.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.counters[Counter::Hits] + self.counters[Counter::Misses]
    }

    /// All counters. A request is counted once, as what became of it: their number is the sum.
    pub(crate) fn read_counters(&self) -> Counters {
        let mut counters = self.counters;
        counters[Counter::Requests] =
            counters[Counter::Hits] + counters[Counter::Misses] + counters.bypasses();
        counters
    }

    /// Takes a handed-out block back into its class's list, where nothing speaks against it and it
    /// is within the cap.
    #[inline]
    pub(crate) fn keep(&mut self, index: u32, stream: u32) -> bool {
        let block = self.table.get_mut(index);
        let idle_bytes = self.gauges.idle_bytes + block.physical_bytes;
        if block.stream != stream
            || block.slot == UNCLASSED
            || block.used_on != NONE
            || block.pins != 0
            || !self.cap.admits(idle_bytes)
        {
            return false;
        }
        let (slot, physical_bytes) = (block.slot, block.physical_bytes);
        let requested_bytes = block.requested_bytes;
        let Some(lists) = &mut self.streams[stream as usize].lists else { return false };
        block.state = BlockState::Idle;
        lists.push(&mut self.table, slot, index);
        self.gauges.idle_bytes += physical_bytes;
        self.gauges.live_requested_bytes -= requested_bytes;
        self.peaks.raise_idle(idle_bytes);
        true
    }

    /// Enters a block that the driver has just handed out.
    pub(crate) fn enter(&mut self, block: Block) -> Result<u32, MetadataFull> {
        if let Some(stale) = self.table.find(Address(block.address)) {
            self.forget_stale(stale);
        }
        let (physical_bytes, requested_bytes) = (block.physical_bytes, block.requested_bytes);
        let index = self.table.insert(block)?;
        self.gauges.add(physical_bytes, Place::Live);
        self.gauges.live_requested_bytes += requested_bytes;
        self.gauges.held_bytes += physical_bytes;
        self.peaks.raise_live(self.gauges.live_bytes());
        self.peaks.raise_total(self.gauges.held_bytes);
        if self.phase == Phase::Capturing {
            self.touch(index);
        }
        Ok(index)
    }

    /// Remembers that the capture window has used the block.
    pub(crate) fn touch(&mut self, index: u32) {
        let block = self.table.get_mut(index);
        if !block.touched {
            block.touched = true;
            self.touched.push(index);
        }
    }

    /// Takes a handed-out block out of the live gauges; it is parked until its place is decided.
    pub(crate) fn take_back(&mut self, index: u32) {
        let block = self.table.get_mut(index);
        let (physical_bytes, pinned) = (block.physical_bytes, block.pins > 0);
        if block.origin == Origin::Cache {
            self.gauges.live_requested_bytes -= block.requested_bytes;
        }
        self.transfer(physical_bytes, Place::Live, Place::Parked);
        if pinned {
            self.gauges.pinned_live_bytes -= physical_bytes;
        }
    }

    /// Queues a block for a decision about its place.
    pub(crate) fn retire(&mut self, index: u32) {
        self.table.get_mut(index).state = BlockState::Retiring;
        self.retiring.push(&mut self.table, index);
    }

    /// Decides the place of the next retiring block. Returns false where nothing is left to decide,
    /// or where victims must go back to the driver first.
    pub(crate) fn settle_one(&mut self) -> bool {
        let index = self.retiring.head;
        if index == NONE || !self.releasing.is_empty() {
            return false;
        }
        let block = *self.table.get(index);
        let (from, physical_bytes) = (Place::Parked, block.physical_bytes);
        if block.pins > 0 {
            self.retiring.pop(&self.table);
            self.table.get_mut(index).state = BlockState::Pinned;
            self.transfer(physical_bytes, from, Place::Pinned);
            return true;
        }
        if self.phase == Phase::Capturing {
            self.retiring.pop(&self.table);
            self.table.get_mut(index).state = BlockState::Parked;
            self.parked.push(&mut self.table, index);
            return true;
        }
        let Err(cause) = self.check_keepable(&block) else {
            if !self.make_room(physical_bytes) {
                return false;
            }
            self.retiring.pop(&self.table);
            self.table.get_mut(index).state = BlockState::Idle;
            if let Some(lists) = &mut self.streams[block.stream as usize].lists {
                lists.push(&mut self.table, block.slot, index);
            }
            self.transfer(physical_bytes, from, Place::Idle);
            return true;
        };
        self.retiring.pop(&self.table);
        self.queue_release(index, cause);
        true
    }

    /// Whether the cache may keep a block that its user is done with.
    fn check_keepable(&self, block: &Block) -> Result<(), FreeCause> {
        if block.origin == Origin::Foreign {
            return Err(FreeCause::Foreign);
        }
        if self.mode == Mode::Closed {
            return Err(FreeCause::Shutdown);
        }
        if matches!(self.mode, Mode::Off | Mode::Killed) {
            return Err(FreeCause::Off);
        }
        if block.slot == UNCLASSED {
            return Err(FreeCause::Unclassed);
        }
        if !self.is_alive(block.stream) {
            return Err(FreeCause::StreamGone);
        }
        if !self.cap.admits(block.physical_bytes) {
            return Err(FreeCause::LargerThanCap);
        }
        Ok(())
    }

    /// Queues a parked block for its way back to the driver.
    pub(crate) fn queue_release(&mut self, index: u32, cause: FreeCause) {
        let block = self.table.get_mut(index);
        block.state = BlockState::Releasing;
        block.release_cause = cause;
        self.releasing.push(&mut self.table, index);
    }

    /// Takes the next block off the release queue and forgets it. The driver must be called next.
    pub(crate) fn next_release(&mut self) -> Option<DriverBlock> {
        loop {
            let index = self.releasing.pop(&self.table)?;
            let block = self.table.remove(index);
            self.gauges.parked_bytes -= block.physical_bytes;
            self.gauges.held_bytes -= block.physical_bytes;
            if Table::is_renamed(&block) {
                continue;
            }
            self.counters[block.release_cause] += 1;
            if self.phase == Phase::Capturing {
                self.counters[Counter::CaptureFrees] += 1;
            }
            self.in_flight += 1;
            return Some(block.to_driver_block(self.driver_stream(block.stream)));
        }
    }
}
