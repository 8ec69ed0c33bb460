//! A memory pool: what is freed stays reserved until a synchronisation or a trim, up to the pool's
//! release threshold. A trim releases only what the host has seen to be free by a synchronisation.
//! Reserved memory serves requests of exactly its size and nothing else, and the stand-in never trims
//! by itself: a caller that runs out must do it.

use crate::host_memory::return_host_memory;

#[derive(Debug, Default)]
pub(crate) struct Pool {
    max_bytes: Option<u64>,
    threshold_bytes: u64,
    used_bytes: u64,
    reserved: Vec<(u64, u64)>,
    /// How many of the reserved blocks, from the first on, the host has seen to be free.
    seen_free: usize,
}

impl Pool {
    pub(crate) fn new(max_bytes: Option<u64>) -> Pool {
        Pool { max_bytes, ..Pool::default() }
    }

    pub(crate) fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes
    }

    pub(crate) fn set_threshold(&mut self, bytes: u64) {
        self.threshold_bytes = bytes;
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Bytes held without an allocation in them.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved.iter().map(|(_, size)| size).sum()
    }

    /// Whether the pool's own limit admits `size` more bytes.
    pub(crate) fn has_room(&self, size: u64) -> bool {
        self.max_bytes.is_none_or(|max| self.used_bytes + self.reserved_bytes() + size <= max)
    }

    pub(crate) fn has_reserved(&self, size: u64) -> bool {
        self.reserved.iter().any(|&(_, held)| held == size)
    }

    pub(crate) fn reuse(&mut self, size: u64) -> Option<u64> {
        let found = self.reserved.iter().rposition(|&(_, held)| held == size)?;
        self.seen_free -= usize::from(found < self.seen_free);
        Some(self.reserved.remove(found).0)
    }

    pub(crate) fn add_used(&mut self, size: u64) {
        self.used_bytes += size;
    }

    /// Reserves the memory of a freed block.
    pub(crate) fn keep(&mut self, address: u64, size: u64) {
        self.used_bytes -= size;
        self.reserved.push((address, size));
    }

    /// Gives reserved memory that was seen to be free back to the host until at most `bytes` are left.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        while self.reserved_bytes() > bytes && self.seen_free > 0 {
            let (address, _) = self.reserved.remove(0);
            self.seen_free -= 1;
            return_host_memory(address);
        }
    }

    pub(crate) fn shrink_to_threshold(&mut self) {
        self.seen_free = self.reserved.len();
        self.shrink_to(self.threshold_bytes);
    }

    /// Gives everything that is reserved back to the host.
    pub(crate) fn release_all(&mut self) {
        self.seen_free = self.reserved.len();
        self.shrink_to(0);
    }
}
