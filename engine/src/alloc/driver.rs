//! What the cache needs of a memory driver, and what can go wrong there.
//!
//! A driver is small: it allocates, frees, and where it has streams, orders. It must not call back
//! into the cache that it serves, and the cache never calls it with its lock held.

pub mod host;
pub mod sim;

use std::fmt;

/// An address in the driver's memory: a device pointer, or a host pointer's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// The address of an empty allocation: nothing is behind it.
    pub const EMPTY: Address = Address(0);
}

/// A stream as the driver knows it. The raw handle may be used again by the driver for another
/// stream after this one was destroyed; the cache tells the two apart by its own key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DriverStream {
    /// Ordinal of the device.
    pub device: u32,
    /// The driver's handle.
    pub raw: u64,
}

impl DriverStream {
    /// The one stream of a driver that has none.
    pub const HOST: DriverStream = DriverStream { device: 0, raw: 0 };
}

/// What new memory must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fill {
    /// Anything.
    #[default]
    Any,
    /// Zeroes in every requested byte.
    Zeroed,
}

/// Whether a graph is being captured while the driver is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// No capture is in progress.
    Eager,
    /// Within a capture: a driver that would record the call into the graph must keep it out.
    Capture,
}

/// A request to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverRequest {
    /// Bytes, never zero.
    pub bytes: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// What the memory must hold.
    pub fill: Fill,
    /// The stream that orders the allocation.
    pub stream: DriverStream,
    /// Whether a graph is being captured.
    pub window: Window,
}

/// Who allocated a block that is to be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The cache, through this driver.
    Cache,
    /// Somebody else: size and alignment are what the caller said, or 0.
    Foreign,
}

/// A block that goes back to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverBlock {
    /// Where it is.
    pub address: Address,
    /// Its physical bytes.
    pub bytes: u64,
    /// The alignment that it was asked for with.
    pub align: u64,
    /// The stream that orders the free.
    pub stream: DriverStream,
    /// Who allocated it.
    pub origin: Origin,
}

/// A recorded point in a stream's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId(pub u64);

/// Whether the work before an event is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventState {
    /// Not yet.
    Pending,
    /// Done; the event is gone.
    Done,
}

/// Why the driver refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// No memory is left.
    #[error("the driver is out of memory")]
    OutOfMemory,
    /// A limit of the driver's own pool is reached, whatever memory is left.
    #[error("the driver's pool has reached its maximum size")]
    PoolLimit,
    /// Anything else; no retry helps.
    #[error("driver call failed with code {code}: {message}")]
    Failed {
        /// The driver's own code.
        code: i64,
        /// The driver's own words.
        message: String,
    },
}

impl DriverError {
    /// Whether giving memory back can help.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self, DriverError::OutOfMemory | DriverError::PoolLimit)
    }
}

/// A source of memory.
pub trait Driver: Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Alignment that every block is asked for with; a request for more bypasses the cache.
    fn block_align(&self) -> u64;

    /// Allocates.
    ///
    /// # Errors
    /// Where the driver refuses; nothing is allocated then.
    fn alloc(&self, request: DriverRequest) -> Result<Address, DriverError>;

    /// Frees.
    ///
    /// # Safety
    /// Nobody uses the block any more. With [`Origin::Cache`] it came from this driver's
    /// [`alloc`](Driver::alloc) with these bytes and this alignment and was not freed since.
    ///
    /// # Errors
    /// Where the driver refuses; the block is then lost.
    unsafe fn free(&self, block: DriverBlock) -> Result<(), DriverError>;

    /// Waits until all work of the stream, or of every stream, is done.
    ///
    /// # Errors
    /// Where the driver refuses.
    fn synchronize(&self, _stream: Option<DriverStream>) -> Result<(), DriverError> {
        Ok(())
    }

    /// Whether the device may be waited for and events may be asked. Not while somebody captures a
    /// stream past the cache: either could end that capture. It is asked with the cache's lock held, so
    /// it reads a flag and calls nothing.
    fn may_wait(&self) -> bool {
        true
    }

    /// Makes the driver's own pool give back what it holds.
    fn trim(&self) {}

    /// Memory that is free, where the driver can tell.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Records an event at the present end of the stream's work.
    ///
    /// # Errors
    /// Where the driver has no events or refuses; the cache synchronises instead.
    fn record_event(&self, _stream: DriverStream) -> Result<EventId, DriverError> {
        Err(DriverError::Failed { code: -1, message: "this driver has no events".to_owned() })
    }

    /// Looks at an event; one that is done is destroyed.
    fn poll_event(&self, _event: EventId) -> EventState {
        EventState::Done
    }
}

impl<D: Driver + ?Sized> Driver for std::sync::Arc<D> {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn block_align(&self) -> u64 {
        (**self).block_align()
    }
    fn alloc(&self, request: DriverRequest) -> Result<Address, DriverError> {
        (**self).alloc(request)
    }
    unsafe fn free(&self, block: DriverBlock) -> Result<(), DriverError> {
        // SAFETY: the caller gives the same guarantees.
        unsafe { (**self).free(block) }
    }
    fn synchronize(&self, stream: Option<DriverStream>) -> Result<(), DriverError> {
        (**self).synchronize(stream)
    }
    fn may_wait(&self) -> bool {
        (**self).may_wait()
    }
    fn trim(&self) {
        (**self).trim();
    }
    fn free_bytes(&self) -> Option<u64> {
        (**self).free_bytes()
    }
    fn record_event(&self, stream: DriverStream) -> Result<EventId, DriverError> {
        (**self).record_event(stream)
    }
    fn poll_event(&self, event: EventId) -> EventState {
        (**self).poll_event(event)
    }
}

/// The bytes that are spoken for when a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holdings {
    /// Handed out.
    pub live_bytes: u64,
    /// Held by the cache and free.
    pub idle_bytes: u64,
    /// Pinned to captured graphs.
    pub pinned_bytes: u64,
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "live {} bytes, idle {} bytes, pinned {} bytes",
            self.live_bytes, self.idle_bytes, self.pinned_bytes
        )
    }
}

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// No block can be that large. A retry never helps.
    #[error("requested {requested_bytes} bytes aligned to {align}: no block can be that large")]
    RequestTooLarge {
        /// What was asked for.
        requested_bytes: u64,
        /// With this alignment.
        align: u64,
    },
    /// The driver has no memory left, though every idle block was given back and it was asked
    /// again. A retry helps once something is freed.
    #[error("out of memory: requested {requested_bytes} bytes; {holdings}")]
    OutOfMemory {
        /// What was asked for.
        requested_bytes: u64,
        /// What is held.
        holdings: Holdings,
    },
    /// The driver's pool has reached its limit. A retry helps once something is freed.
    #[error(
        "the driver's pool is at its maximum size: requested {requested_bytes} bytes; {holdings}"
    )]
    CapExceeded {
        /// What was asked for.
        requested_bytes: u64,
        /// What is held.
        holdings: Holdings,
    },
    /// The driver failed for another reason, or may not be called any more. No retry helps.
    #[error("requested {requested_bytes} bytes")]
    Driver {
        /// What was asked for.
        requested_bytes: u64,
        /// The driver's error.
        source: DriverError,
    },
}

impl AllocError {
    /// Whether the same request can succeed once memory is freed.
    #[must_use]
    pub fn retry_can_help(&self) -> bool {
        matches!(self, AllocError::OutOfMemory { .. } | AllocError::CapExceeded { .. })
    }
}
