//! Allocator policies to compare with, written for this benchmark over the same counting driver.
//!
//! Each is the idea of a known allocator in its simplest form and without statistics. What a real
//! one cannot do without, each has: a lock, and a table of what is handed out, so that a free is
//! known by its address alone and a foreign one can be told. Both are as cheap as they come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use engine::alloc::driver::{Driver, DriverRequest, DriverStream, Fill, Window};

use crate::guarded::{FastMap, Policy, guarded};
use crate::peer::{BenchDriver, PeerFactory};
use crate::workload::StepKind;

pub(crate) const CAP_BYTES: u64 = 1 << 30;

fn request(bytes: u64) -> DriverRequest {
    DriverRequest {
        bytes,
        align: 512,
        fill: Fill::Any,
        stream: DriverStream::HOST,
        window: Window::Eager,
    }
}

pub(crate) fn driver_alloc(driver: &BenchDriver, bytes: u64) -> u64 {
    driver.alloc(request(bytes)).expect("the bench driver has no limit").0
}

/// Free lists by the exact byte count, without a bound; drained before a prefill.
struct ExactUnbounded {
    driver: Arc<BenchDriver>,
    live: FastMap<u64>,
    idle: FastMap<Vec<u64>>,
}

impl Policy for ExactUnbounded {
    fn new(driver: Arc<BenchDriver>) -> Self {
        ExactUnbounded { driver, live: FastMap::default(), idle: FastMap::default() }
    }
    fn alloc(&mut self, bytes: u64) -> u64 {
        let address = match self.idle.get_mut(&bytes).and_then(Vec::pop) {
            Some(address) => address,
            None => driver_alloc(&self.driver, bytes),
        };
        self.live.insert(address, bytes);
        address
    }
    fn free(&mut self, address: u64) {
        let bytes = self.live.remove(&address).expect("handed out");
        self.idle.entry(bytes).or_default().push(address);
    }
    fn begin_step(&mut self, kind: StepKind) {
        if kind == StepKind::Prefill {
            for (bytes, blocks) in self.idle.drain() {
                blocks.iter().for_each(|_| self.driver.note_free(bytes));
            }
        }
    }
}

/// Free lists by the exact byte count under a cap; the least recently used size goes first, after
/// the new block was inserted.
struct ExactLru {
    driver: Arc<BenchDriver>,
    live: FastMap<u64>,
    idle: FastMap<(u64, Vec<u64>)>,
    recency: BTreeMap<u64, u64>,
    clock: u64,
    idle_bytes: u64,
}

impl ExactLru {
    fn touch(&mut self, bytes: u64) {
        self.clock += 1;
        let entry = self.idle.entry(bytes).or_default();
        self.recency.remove(&entry.0);
        entry.0 = self.clock;
        self.recency.insert(self.clock, bytes);
    }
}

impl Policy for ExactLru {
    fn new(driver: Arc<BenchDriver>) -> Self {
        ExactLru {
            driver,
            live: FastMap::default(),
            idle: FastMap::default(),
            recency: BTreeMap::new(),
            clock: 0,
            idle_bytes: 0,
        }
    }
    fn alloc(&mut self, bytes: u64) -> u64 {
        let address = match self.idle.get_mut(&bytes).and_then(|entry| entry.1.pop()) {
            Some(address) => {
                self.idle_bytes -= bytes;
                self.touch(bytes);
                address
            }
            None => driver_alloc(&self.driver, bytes),
        };
        self.live.insert(address, bytes);
        address
    }
    fn free(&mut self, address: u64) {
        let bytes = self.live.remove(&address).expect("handed out");
        self.touch(bytes);
        self.idle.get_mut(&bytes).expect("just touched").1.push(address);
        self.idle_bytes += bytes;
        while self.idle_bytes > CAP_BYTES {
            let (&clock, &oldest) = self.recency.first_key_value().expect("something is idle");
            let entry = self.idle.get_mut(&oldest).expect("known");
            if entry.1.pop().is_some() {
                self.idle_bytes -= oldest;
                self.driver.note_free(oldest);
            }
            if entry.1.is_empty() {
                self.idle.remove(&oldest);
                self.recency.remove(&clock);
            }
        }
    }
}

/// Bins of powers of eight; a block is refused when the cache is full, and none is ever evicted.
/// Like the original it keeps live and idle blocks in ordered sets.
struct RefuseWhenFull {
    driver: Arc<BenchDriver>,
    live: BTreeMap<u64, u64>,
    idle: BTreeSet<(u64, u64)>,
    idle_bytes: u64,
}

/// The bin's size, or `None` above the largest one.
fn bin_bytes(bytes: u64) -> Option<u64> {
    (3..=9).map(|power| 1 << (3 * power)).find(|bin| bytes <= *bin)
}

impl Policy for RefuseWhenFull {
    fn new(driver: Arc<BenchDriver>) -> Self {
        RefuseWhenFull { driver, live: BTreeMap::new(), idle: BTreeSet::new(), idle_bytes: 0 }
    }
    fn alloc(&mut self, bytes: u64) -> u64 {
        let bin = bin_bytes(bytes);
        let size = bin.unwrap_or(bytes);
        if bin.is_some()
            && let Some(&(_, address)) = self.idle.range((size, 0)..(size + 1, 0)).next()
        {
            self.idle.remove(&(size, address));
            self.idle_bytes -= size;
            self.live.insert(address, size);
            return address;
        }
        let address = driver_alloc(&self.driver, size);
        self.live.insert(address, size);
        address
    }
    fn free(&mut self, address: u64) {
        let size = self.live.remove(&address).expect("handed out");
        if bin_bytes(size) == Some(size) && self.idle_bytes + size <= CAP_BYTES {
            self.idle_bytes += size;
            self.idle.insert((size, address));
            return;
        }
        self.driver.note_free(size);
    }
}

/// The smallest idle block that is at least as large and less than twice as large, under a cap with
/// the least recently freed block going first.
struct LowerBound {
    driver: Arc<BenchDriver>,
    live: FastMap<u64>,
    by_size: BTreeSet<(u64, u64)>,
    order: VecDeque<(u64, u64)>,
    idle_bytes: u64,
}

impl LowerBound {
    /// Entries of blocks that were handed out since are dropped now and then.
    fn tidy_order(&mut self) {
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

impl Policy for LowerBound {
    fn new(driver: Arc<BenchDriver>) -> Self {
        LowerBound {
            driver,
            live: FastMap::default(),
            by_size: BTreeSet::new(),
            order: VecDeque::new(),
            idle_bytes: 0,
        }
    }
    fn alloc(&mut self, bytes: u64) -> u64 {
        let limit = (2 * bytes).min(bytes + 2 * 16_384);
        if let Some(&(size, address)) = self.by_size.range((bytes, 0)..).next()
            && size < limit
        {
            self.by_size.remove(&(size, address));
            self.idle_bytes -= size;
            self.live.insert(address, size);
            return address;
        }
        let address = driver_alloc(&self.driver, bytes);
        self.live.insert(address, bytes);
        address
    }
    fn free(&mut self, address: u64) {
        let size = self.live.remove(&address).expect("handed out");
        while self.idle_bytes + size > CAP_BYTES {
            let Some((oldest, address)) = self.order.pop_front() else { break };
            if self.by_size.remove(&(oldest, address)) {
                self.idle_bytes -= oldest;
                self.driver.note_free(oldest);
            }
        }
        if size > CAP_BYTES {
            self.driver.note_free(size);
            return;
        }
        self.idle_bytes += size;
        self.by_size.insert((size, address));
        self.order.push_back((size, address));
        if self.order.len() > 4 * self.by_size.len() + 64 {
            self.tidy_order();
        }
    }
}

/// The in-tree policies.
pub(crate) fn factories() -> Vec<PeerFactory> {
    vec![
        guarded::<ExactUnbounded>("exact keys, unbounded"),
        guarded::<ExactLru>("exact keys, LRU at 1 GiB"),
        guarded::<RefuseWhenFull>("CUB-like, refuses when full"),
        guarded::<LowerBound>("MLX-like lower bound"),
        guarded::<crate::bfc::BestFit<false>>("BFC, split and coalesce"),
        guarded::<crate::bfc::BestFit<true>>("BFC, idle regions bounded at 1 GiB"),
    ]
}
