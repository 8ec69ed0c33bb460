//! The blocks that the cache knows, found by address.
//!
//! Records live in a slab and keep their index for as long as the driver holds the block; an open
//! hash table maps addresses to indices. A request that is served from the cache touches its record
//! alone: the hash table is read on a free and written only when the driver is called.

use crate::alloc::driver::{Address, DriverBlock, DriverStream, Origin};
use crate::alloc::stats::FreeCause;

/// "No block", as an index.
pub(crate) const NONE: u32 = u32::MAX;

/// Where a block is. A block is in exactly one state, and the lists hold blocks of their state only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    Vacant,
    Live,
    /// Freed by its user and on the way to its next state.
    Retiring,
    /// In its class's list.
    Idle,
    /// Freed within a capture window, or kept in reserve for one.
    Parked,
    /// Freed, and waiting for another stream's event.
    Fenced,
    /// Freed by its user and held because a captured graph has its address.
    Pinned,
    /// On the way back to the driver.
    Releasing,
}

/// One block of the driver. A record fills one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Block {
    pub(crate) address: u64,
    /// Bytes that the driver allocated; 0 for a foreign block, which is in no gauge.
    pub(crate) physical_bytes: u64,
    /// Bytes that the present or last user asked for.
    pub(crate) requested_bytes: u64,
    /// The next block of the list that this one is in.
    pub(crate) next: u32,
    /// In a class's list, the block above this one; anything for the topmost, and elsewhere.
    pub(crate) above: u32,
    pub(crate) stream: u32,
    /// Another stream that has used it since it was handed out, or [`NONE`].
    pub(crate) used_on: u32,
    /// Number of captured graphs that have its address.
    pub(crate) pins: u32,
    /// The list of its class, or [`UNCLASSED`] where its size is no class or it must not be kept.
    pub(crate) slot: u16,
    pub(crate) state: BlockState,
    pub(crate) origin: Origin,
    pub(crate) align_log2: u8,
    /// Whether the present capture window has handed it out or taken it back.
    pub(crate) touched: bool,
    /// Whether more than one other stream has used it.
    pub(crate) used_on_many: bool,
    pub(crate) release_cause: FreeCause,
}

/// The slot of a block that never enters a class list.
pub(crate) const UNCLASSED: u16 = u16::MAX;

const VACANT: Block = Block {
    address: 0,
    physical_bytes: 0,
    requested_bytes: 0,
    next: NONE,
    above: NONE,
    stream: NONE,
    used_on: NONE,
    pins: 0,
    slot: UNCLASSED,
    state: BlockState::Vacant,
    origin: Origin::Cache,
    align_log2: 0,
    touched: false,
    used_on_many: false,
    release_cause: FreeCause::Off,
};

impl Block {
    pub(crate) fn new(address: Address, state: BlockState, origin: Origin, stream: u32) -> Self {
        Block { address: address.0, state, origin, stream, ..VACANT }
    }

    pub(crate) fn to_driver_block(self, stream: DriverStream) -> DriverBlock {
        DriverBlock {
            address: Address(self.address),
            bytes: match self.origin {
                Origin::Cache => self.physical_bytes,
                Origin::Foreign => self.requested_bytes,
            },
            align: 1 << self.align_log2,
            stream,
            origin: self.origin,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MetadataFull;

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    blocks: Vec<Block>,
    /// Head of the list of vacant records.
    vacant: u32,
    occupied: usize,
    /// Indices of records by the hash of their address, [`NONE`] where empty. Its length is a power
    /// of two and at least twice the number of records in use.
    buckets: Vec<u32>,
    /// 64 − log2 of the number of buckets.
    hash_shift: u32,
    /// Records that were looked at by index.
    #[cfg(test)]
    touches: std::sync::atomic::AtomicU64,
}

const FIRST_BUCKETS: usize = 1024;

impl Table {
    pub(crate) fn new() -> Self {
        Table {
            blocks: Vec::new(),
            vacant: NONE,
            occupied: 0,
            buckets: vec![NONE; FIRST_BUCKETS],
            hash_shift: 64 - FIRST_BUCKETS.ilog2(),
            #[cfg(test)]
            touches: std::sync::atomic::AtomicU64::new(0),
        }
    }

    #[cfg(test)]
    pub(crate) fn touches(&self) -> u64 {
        self.touches.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[cfg(test)]
    fn note_touch(&self) {
        self.touches.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        self.occupied
    }

    /// Number of records that memory is kept for.
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.len()
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Block {
        #[cfg(test)]
        self.note_touch();
        &self.blocks[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Block {
        #[cfg(test)]
        self.note_touch();
        &mut self.blocks[index as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Block)> {
        (0_u32..).zip(&self.blocks).filter(|(_, block)| block.state != BlockState::Vacant)
    }

    /// Takes every block that is in no idle list out of its class, so that it never enters one.
    pub(crate) fn unclass_all_but_idle(&mut self) {
        for block in &mut self.blocks {
            if block.state != BlockState::Idle {
                block.slot = UNCLASSED;
            }
        }
    }

    #[inline]
    fn home(&self, address: u64) -> usize {
        // Fibonacci hashing: addresses differ in their middle bits, the product's top bits are mixed.
        (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.hash_shift) as usize
    }

    #[inline]
    pub(crate) fn find(&self, address: Address) -> Option<u32> {
        let mask = self.buckets.len() - 1;
        let mut bucket = self.home(address.0);
        loop {
            debug_assert!(bucket & mask < self.buckets.len());
            // SAFETY: the number of buckets is a power of two and never 0, so that masking with one
            // less gives an index below it.
            let index = unsafe { *self.buckets.get_unchecked(bucket & mask) };
            if index == NONE {
                return None;
            }
            debug_assert!((index as usize) < self.blocks.len());
            // SAFETY: a bucket holds `NONE` or the index of a record: `link` writes indices of
            // records only, and records are never taken out of the slab.
            let block = unsafe { self.blocks.get_unchecked(index as usize) };
            if block.address == address.0 {
                return Some(index);
            }
            bucket += 1;
        }
    }

    /// Enters a block whose address is not known yet.
    pub(crate) fn insert(&mut self, block: Block) -> Result<u32, MetadataFull> {
        debug_assert!(self.find(Address(block.address)).is_none(), "address known already");
        if (self.occupied + 1) * 2 > self.buckets.len() {
            self.grow_buckets()?;
        }
        let index = if self.vacant == NONE {
            let index = u32::try_from(self.blocks.len()).map_err(|_| MetadataFull)?;
            if index == NONE {
                return Err(MetadataFull);
            }
            self.blocks.try_reserve(1).map_err(|_| MetadataFull)?;
            self.blocks.push(block);
            index
        } else {
            let index = self.vacant;
            self.vacant = self.get(index).next;
            *self.get_mut(index) = block;
            index
        };
        self.occupied += 1;
        self.link(index);
        Ok(index)
    }

    /// Forgets a block and returns what was known of it.
    pub(crate) fn remove(&mut self, index: u32) -> Block {
        let block = *self.get(index);
        self.unlink(index);
        *self.get_mut(index) = Block { next: self.vacant, ..VACANT };
        self.vacant = index;
        self.occupied -= 1;
        block
    }

    /// Moves a record to an address that no driver gives, so that its own can be entered anew.
    pub(crate) fn rename(&mut self, index: u32) {
        self.unlink(index);
        // Odd addresses are none: every block is aligned to more than one byte.
        self.get_mut(index).address = u64::from(index) << 1 | 1;
        self.link(index);
    }

    /// Whether the block's address was given to another block.
    pub(crate) fn is_renamed(block: &Block) -> bool {
        block.origin == Origin::Cache && block.address & 1 == 1
    }

    fn link(&mut self, index: u32) {
        let mask = self.buckets.len() - 1;
        let mut bucket = self.home(self.get(index).address);
        while self.buckets[bucket & mask] != NONE {
            bucket += 1;
        }
        self.buckets[bucket & mask] = index;
    }

    /// Empties the bucket of a record and closes the gap, so that no tombstones are left behind.
    fn unlink(&mut self, index: u32) {
        let mask = self.buckets.len() - 1;
        let mut hole = self.home(self.get(index).address) & mask;
        while self.buckets[hole] != index {
            hole = (hole + 1) & mask;
        }
        let mut bucket = hole;
        loop {
            bucket = (bucket + 1) & mask;
            let candidate = self.buckets[bucket];
            if candidate == NONE {
                break;
            }
            // The candidate may move into the hole where that is not before its home.
            let home = self.home(self.get(candidate).address);
            if bucket.wrapping_sub(home) & mask >= bucket.wrapping_sub(hole) & mask {
                self.buckets[hole] = candidate;
                hole = bucket;
            }
        }
        self.buckets[hole] = NONE;
    }

    fn grow_buckets(&mut self) -> Result<(), MetadataFull> {
        let count = self.buckets.len() * 2;
        let mut buckets = Vec::new();
        buckets.try_reserve_exact(count).map_err(|_| MetadataFull)?;
        buckets.resize(count, NONE);
        let old = std::mem::replace(&mut self.buckets, buckets);
        self.hash_shift -= 1;
        for index in old.into_iter().filter(|&index| index != NONE) {
            self.link(index);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn block(address: u64) -> Block {
        Block::new(Address(address), BlockState::Live, Origin::Cache, 0)
    }

    #[test]
    fn a_record_fills_one_cache_line() {
        assert_eq!(size_of::<Block>(), 64);
    }

    #[test]
    fn records_are_used_again() {
        let mut table = Table::new();
        for round in 0..100_u64 {
            let indices: Vec<u32> =
                (0..10).map(|i| table.insert(block(round * 4096 + i * 64)).unwrap()).collect();
            for index in indices {
                table.remove(index);
            }
        }
        assert_eq!((table.len(), table.capacity()), (0, 10));
    }

    proptest! {
        /// Few addresses and many operations, so that probes collide and gaps are closed.
        #[test]
        fn the_table_behaves_like_a_map(
            operations in prop::collection::vec((any::<bool>(), 0_u64..600), 0..3000)
        ) {
            let mut table = Table::new();
            let mut model = HashMap::new();
            for (insert, key) in operations {
                let address = key << 9;
                match (insert, model.contains_key(&address)) {
                    (true, false) => {
                        model.insert(address, table.insert(block(address)).unwrap());
                    }
                    (false, true) => {
                        let index = model.remove(&address).unwrap();
                        prop_assert_eq!(table.remove(index).address, address);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.find(Address(address)), model.get(&address).copied());
            }
            for (address, index) in &model {
                prop_assert_eq!(table.find(Address(*address)), Some(*index));
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(table.iter().count(), model.len());
        }
    }
}
