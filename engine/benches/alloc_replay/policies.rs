//! Allocator policies to compare with, written for this benchmark over the same counting driver.
//!
//! Each is the idea of a known allocator in its simplest form, without statistics, and without a
//! lock where its description has none: that is in their favour.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Mutex;

use engine::alloc::driver::{Driver, DriverRequest, DriverStream, Fill, Window};

use crate::peer::{BenchDriver, Peer, PeerFactory};
use crate::workload::StepKind;

const CAP_BYTES: u64 = 1 << 30;

fn request(bytes: u64) -> DriverRequest {
    DriverRequest {
        bytes,
        align: 512,
        fill: Fill::Any,
        stream: DriverStream::HOST,
        window: Window::Eager,
    }
}

fn driver_alloc(driver: &BenchDriver, bytes: u64) -> u64 {
    driver.alloc(request(bytes)).expect("the bench driver has no limit").0
}

/// Free lists by the exact byte count, without a bound; drained before a prefill.
#[derive(Default)]
pub(crate) struct ExactUnbounded {
    driver: BenchDriver,
    free: HashMap<u64, Vec<u64>>,
}

impl Peer for ExactUnbounded {
    fn alloc(&mut self, bytes: u64) -> u64 {
        match self.free.get_mut(&bytes).and_then(Vec::pop) {
            Some(address) => address,
            None => driver_alloc(&self.driver, bytes),
        }
    }
    fn free(&mut self, address: u64, bytes: u64) {
        self.free.entry(bytes).or_default().push(address);
    }
    fn begin_step(&mut self, kind: StepKind) {
        if kind == StepKind::Prefill {
            for (bytes, blocks) in self.free.drain() {
                blocks.iter().for_each(|_| self.driver.note_free(bytes));
            }
        }
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

/// Free lists by the exact byte count under a cap; the least recently used size goes first, after
/// the new block was inserted.
#[derive(Default)]
pub(crate) struct ExactLru {
    driver: BenchDriver,
    free: HashMap<u64, (u64, Vec<u64>)>,
    recency: BTreeMap<u64, u64>,
    clock: u64,
    idle_bytes: u64,
}

impl ExactLru {
    fn touch(&mut self, bytes: u64) {
        self.clock += 1;
        let entry = self.free.entry(bytes).or_default();
        self.recency.remove(&entry.0);
        entry.0 = self.clock;
        self.recency.insert(self.clock, bytes);
    }
}

impl Peer for ExactLru {
    fn alloc(&mut self, bytes: u64) -> u64 {
        if let Some(address) = self.free.get_mut(&bytes).and_then(|entry| entry.1.pop()) {
            self.idle_bytes -= bytes;
            self.touch(bytes);
            return address;
        }
        driver_alloc(&self.driver, bytes)
    }
    fn free(&mut self, address: u64, bytes: u64) {
        self.touch(bytes);
        self.free.get_mut(&bytes).expect("just touched").1.push(address);
        self.idle_bytes += bytes;
        while self.idle_bytes > CAP_BYTES {
            let (&clock, &oldest) = self.recency.first_key_value().expect("something is idle");
            let entry = self.free.get_mut(&oldest).expect("known");
            if entry.1.pop().is_some() {
                self.idle_bytes -= oldest;
                self.driver.note_free(oldest);
            }
            if entry.1.is_empty() {
                self.free.remove(&oldest);
                self.recency.remove(&clock);
            }
        }
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

/// Bins of powers of eight; a block is refused when the cache is full, and none is ever evicted.
/// Like the original it keeps live and idle blocks in ordered sets under a mutex and frees by
/// address alone.
#[derive(Default)]
pub(crate) struct RefuseWhenFull {
    driver: BenchDriver,
    blocks: Mutex<BinnedBlocks>,
}

#[derive(Default)]
struct BinnedBlocks {
    live: BTreeMap<u64, u64>,
    idle: BTreeSet<(u64, u64)>,
    idle_bytes: u64,
}

/// The bin's size, or `None` above the largest one.
fn bin_bytes(bytes: u64) -> Option<u64> {
    (3..=9).map(|power| 1 << (3 * power)).find(|bin| bytes <= *bin)
}

impl Peer for RefuseWhenFull {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let bin = bin_bytes(bytes);
        let size = bin.unwrap_or(bytes);
        let mut blocks = self.blocks.lock().expect("not poisoned");
        if bin.is_some()
            && let Some(&(_, address)) = blocks.idle.range((size, 0)..(size + 1, 0)).next()
        {
            blocks.idle.remove(&(size, address));
            blocks.idle_bytes -= size;
            blocks.live.insert(address, size);
            return address;
        }
        drop(blocks);
        let address = driver_alloc(&self.driver, size);
        self.blocks.lock().expect("not poisoned").live.insert(address, size);
        address
    }
    fn free(&mut self, address: u64, _bytes: u64) {
        let mut blocks = self.blocks.lock().expect("not poisoned");
        let size = blocks.live.remove(&address).expect("handed out");
        if bin_bytes(size) == Some(size) && blocks.idle_bytes + size <= CAP_BYTES {
            blocks.idle_bytes += size;
            blocks.idle.insert((size, address));
            return;
        }
        drop(blocks);
        self.driver.note_free(size);
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

/// The smallest idle block that is at least as large and less than twice as large, under a cap with
/// the least recently freed block going first.
#[derive(Default)]
pub(crate) struct LowerBound {
    driver: BenchDriver,
    by_size: BTreeSet<(u64, u64)>,
    order: VecDeque<(u64, u64)>,
    physical: HashMap<u64, u64>,
    idle_bytes: u64,
}

impl Peer for LowerBound {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let limit = (2 * bytes).min(bytes + 2 * 16_384);
        if let Some(&(size, address)) = self.by_size.range((bytes, 0)..).next()
            && size < limit
        {
            self.by_size.remove(&(size, address));
            self.idle_bytes -= size;
            return address;
        }
        let address = driver_alloc(&self.driver, bytes);
        self.physical.insert(address, bytes);
        address
    }
    fn free(&mut self, address: u64, _bytes: u64) {
        let size = self.physical[&address];
        while self.idle_bytes + size > CAP_BYTES {
            let Some((oldest, address)) = self.order.pop_front() else { break };
            if self.by_size.remove(&(oldest, address)) {
                self.idle_bytes -= oldest;
                self.physical.remove(&address);
                self.driver.note_free(oldest);
            }
        }
        if size > CAP_BYTES {
            self.physical.remove(&address);
            self.driver.note_free(size);
            return;
        }
        self.idle_bytes += size;
        self.by_size.insert((size, address));
        self.order.push_back((size, address));
        if self.order.len() > 4 * self.by_size.len() + 64 {
            let (by_size, mut seen) = (&self.by_size, BTreeSet::new());
            let mut latest: Vec<_> = self
                .order
                .iter()
                .rev()
                .filter(|entry| by_size.contains(entry) && seen.insert(**entry))
                .copied()
                .collect();
            latest.reverse();
            self.order = latest.into();
        }
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    bytes: u64,
    in_use: bool,
    /// Whether the chunk before, in the same region, ends where this one starts.
    previous: Option<u64>,
    next: Option<u64>,
}

/// Best fit with coalescing: regions from the driver are split into chunks and merged again; regions
/// are never given back.
#[derive(Default)]
pub(crate) struct BestFitCoalescing {
    driver: BenchDriver,
    chunks: HashMap<u64, Chunk>,
    bins: [BTreeSet<(u64, u64)>; 21],
    next_region_bytes: u64,
}

impl BestFitCoalescing {
    fn bin(bytes: u64) -> usize {
        ((bytes / 256).max(1).ilog2() as usize).min(20)
    }
    fn insert_free(&mut self, address: u64, bytes: u64) {
        self.bins[Self::bin(bytes)].insert((bytes, address));
    }
    fn remove_free(&mut self, address: u64, bytes: u64) {
        self.bins[Self::bin(bytes)].remove(&(bytes, address));
    }
    fn take(&mut self, bytes: u64) -> Option<u64> {
        for bin in Self::bin(bytes)..self.bins.len() {
            let Some(&(size, address)) = self.bins[bin].range((bytes, 0)..).next() else {
                continue;
            };
            self.bins[bin].remove(&(size, address));
            let next = self.chunks[&address].next;
            if size >= 2 * bytes || size - bytes >= 128 << 20 {
                let rest = address + bytes;
                let tail =
                    Chunk { bytes: size - bytes, in_use: false, previous: Some(address), next };
                self.chunks.insert(rest, tail);
                if let Some(next) = next {
                    self.chunks.get_mut(&next).expect("linked").previous = Some(rest);
                }
                self.insert_free(rest, size - bytes);
                let chunk = self.chunks.get_mut(&address).expect("known");
                chunk.bytes = bytes;
                chunk.next = Some(rest);
            }
            self.chunks.get_mut(&address).expect("known").in_use = true;
            return Some(address);
        }
        None
    }
}

impl Peer for BestFitCoalescing {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.next_multiple_of(256);
        if let Some(address) = self.take(bytes) {
            return address;
        }
        let region_bytes = self.next_region_bytes.max(2 << 20).max(bytes.next_multiple_of(2 << 20));
        self.next_region_bytes = (2 * region_bytes).min(1 << 30);
        let address = driver_alloc(&self.driver, region_bytes);
        let chunk = Chunk { bytes: region_bytes, in_use: false, previous: None, next: None };
        self.chunks.insert(address, chunk);
        self.insert_free(address, region_bytes);
        self.take(bytes).expect("the new region is large enough")
    }
    fn free(&mut self, address: u64, _bytes: u64) {
        let mut start = address;
        let mut chunk = self.chunks[&address];
        if let Some(next) = chunk.next
            && !self.chunks[&next].in_use
        {
            let tail = self.chunks.remove(&next).expect("linked");
            self.remove_free(next, tail.bytes);
            chunk.bytes += tail.bytes;
            chunk.next = tail.next;
        }
        if let Some(previous) = chunk.previous
            && !self.chunks[&previous].in_use
        {
            let head = self.chunks[&previous];
            self.remove_free(previous, head.bytes);
            self.chunks.remove(&start);
            chunk = Chunk { bytes: head.bytes + chunk.bytes, previous: head.previous, ..chunk };
            start = previous;
        }
        chunk.in_use = false;
        if let Some(next) = chunk.next {
            self.chunks.get_mut(&next).expect("linked").previous = Some(start);
        }
        self.insert_free(start, chunk.bytes);
        self.chunks.insert(start, chunk);
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

/// The in-tree policies.
pub(crate) fn factories() -> Vec<PeerFactory> {
    vec![
        PeerFactory::of::<ExactUnbounded>("exact keys, unbounded"),
        PeerFactory::of::<ExactLru>("exact keys, LRU at 1 GiB"),
        PeerFactory::of::<RefuseWhenFull>("CUB-like, refuses when full"),
        PeerFactory::of::<LowerBound>("MLX-like lower bound"),
        PeerFactory::of::<BestFitCoalescing>("BFC, split and coalesce"),
    ]
}
