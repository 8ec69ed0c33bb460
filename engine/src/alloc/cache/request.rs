//! What is asked of a cache, and what becomes of it.

use crate::alloc::driver::{Address, Fill};

/// A stream as the cache knows it. Keys are never used again: the key of a stream that was destroyed
/// is not that of a later stream with the same handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub(crate) u32);

impl StreamKey {
    /// The stream that every cache has from the start: [`DriverStream::HOST`](crate::alloc::driver::DriverStream::HOST).
    pub const HOST: StreamKey = StreamKey(0);
}

/// A request for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bytes; zero makes no driver call.
    pub bytes: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// What memory that comes from the driver must hold. Memory that is served from the cache holds
    /// anything: see [`Served::Cache`].
    pub fill: Fill,
    /// The stream that the memory will be used on.
    pub stream: StreamKey,
}

impl Request {
    /// A request on the host's one stream without a wish for alignment.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Self {
        Request { bytes, align: 1, fill: Fill::Any, stream: StreamKey::HOST }
    }
}

/// Where memory came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Served {
    /// The cache: the bytes are whatever its last user left, even for [`Fill::Zeroed`].
    Cache,
    /// The driver: the bytes are as asked for.
    Driver,
    /// Nothing was asked for, nothing is there.
    Empty,
}

/// Memory that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Where it is.
    pub address: Address,
    /// Where it came from.
    pub served: Served,
}

/// A block that is not used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeRequest {
    /// Where it is.
    pub address: Address,
    /// The stream that the free is ordered on.
    pub stream: StreamKey,
    /// Its bytes and alignment as far as the caller knows, for blocks that the cache did not
    /// allocate; 0 where unknown.
    pub bytes: u64,
    /// See `bytes`.
    pub align: u64,
}

impl FreeRequest {
    /// A free on the host's one stream of a block that the cache has allocated.
    #[must_use]
    pub fn of(address: Address) -> Self {
        FreeRequest { address, stream: StreamKey::HOST, bytes: 0, align: 0 }
    }
}

/// What became of a free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Freed {
    /// The block was the cache's own; it is kept, waits, or went back to the driver.
    Own,
    /// The cache did not allocate it: it was freed to the driver.
    Foreign,
    /// It is not handed out: nothing was done.
    Double,
    /// The cache is shut down, or this is a forked child: nothing was done.
    Ignored,
    /// The empty address.
    Empty,
}
