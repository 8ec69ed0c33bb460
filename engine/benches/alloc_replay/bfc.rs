//! Best fit with coalescing: regions from the driver are split into chunks and merged again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::guarded::{FastMap, Policy};
use crate::peer::BenchDriver;
use crate::policies::{CAP_BYTES, driver_alloc};

const FIRST_REGION_BYTES: u64 = 2 << 20;

#[derive(Debug, Clone, Copy)]
struct Chunk {
    bytes: u64,
    in_use: bool,
    /// Whether the chunk before, in the same region, ends where this one starts.
    previous: Option<u64>,
    next: Option<u64>,
}

impl Chunk {
    fn is_whole_region(&self) -> bool {
        !self.in_use && self.previous.is_none() && self.next.is_none()
    }
}

/// The original doubles its regions and never gives one back. `BOUNDED` is what it would be under
/// the bound that ours has: regions of the size that is needed, and while more than the cap is idle
/// regions that are wholly idle go back. Parts of regions that are not cannot.
pub(crate) struct BestFit<const BOUNDED: bool> {
    driver: Arc<BenchDriver>,
    chunks: FastMap<Chunk>,
    bins: [BTreeSet<(u64, u64)>; 21],
    whole_regions: BTreeSet<u64>,
    next_region_bytes: u64,
    idle_bytes: u64,
}

impl<const BOUNDED: bool> BestFit<BOUNDED> {
    fn bin(bytes: u64) -> usize {
        ((bytes / 256).max(1).ilog2() as usize).min(20)
    }
    fn insert_free(&mut self, address: u64, chunk: Chunk) {
        self.bins[Self::bin(chunk.bytes)].insert((chunk.bytes, address));
        self.idle_bytes += chunk.bytes;
        if BOUNDED && chunk.is_whole_region() {
            self.whole_regions.insert(address);
        }
    }
    fn remove_free(&mut self, address: u64, bytes: u64) {
        self.bins[Self::bin(bytes)].remove(&(bytes, address));
        self.idle_bytes -= bytes;
        if BOUNDED {
            self.whole_regions.remove(&address);
        }
    }
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (size, address) = self.bins[Self::bin(bytes)..]
            .iter()
            .find_map(|bin| bin.range((bytes, 0)..).next().copied())?;
        self.remove_free(address, size);
        let mut chunk = self.chunks[&address];
        chunk.in_use = true;
        if size >= 2 * bytes || size - bytes >= 128 << 20 {
            let rest = address + bytes;
            let tail = Chunk {
                bytes: size - bytes,
                in_use: false,
                previous: Some(address),
                next: chunk.next,
            };
            if let Some(next) = chunk.next {
                self.chunks.get_mut(&next).expect("linked").previous = Some(rest);
            }
            chunk.bytes = bytes;
            chunk.next = Some(rest);
            self.chunks.insert(rest, tail);
            self.insert_free(rest, tail);
        }
        self.chunks.insert(address, chunk);
        Some(address)
    }
    fn add_region(&mut self, bytes: u64) {
        let needed_bytes = bytes.next_multiple_of(FIRST_REGION_BYTES);
        let region_bytes = match BOUNDED {
            true => needed_bytes,
            false => self.next_region_bytes.max(needed_bytes),
        };
        self.next_region_bytes = (2 * region_bytes).min(1 << 30);
        let address = driver_alloc(&self.driver, region_bytes);
        let chunk = Chunk { bytes: region_bytes, in_use: false, previous: None, next: None };
        self.chunks.insert(address, chunk);
        self.insert_free(address, chunk);
    }
    fn give_back_over_cap(&mut self) {
        while self.idle_bytes > CAP_BYTES {
            let Some(&address) = self.whole_regions.first() else { return };
            let chunk = self.chunks.remove(&address).expect("known");
            self.remove_free(address, chunk.bytes);
            self.driver.note_free(chunk.bytes);
        }
    }
}

impl<const BOUNDED: bool> Policy for BestFit<BOUNDED> {
    fn new(driver: Arc<BenchDriver>) -> Self {
        BestFit {
            driver,
            chunks: FastMap::default(),
            bins: std::array::from_fn(|_| BTreeSet::new()),
            whole_regions: BTreeSet::new(),
            next_region_bytes: FIRST_REGION_BYTES,
            idle_bytes: 0,
        }
    }
    fn alloc(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.next_multiple_of(256);
        if let Some(address) = self.take(bytes) {
            return address;
        }
        self.add_region(bytes);
        self.take(bytes).expect("the new region is large enough")
    }
    fn free(&mut self, address: u64) {
        let mut start = address;
        let mut chunk = *self.chunks.get(&address).expect("handed out");
        assert!(chunk.in_use, "handed out");
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
        self.chunks.insert(start, chunk);
        self.insert_free(start, chunk);
        if BOUNDED {
            self.give_back_over_cap();
        }
    }
}
