//! The host twin: a global allocator that sends large requests through the cache.
//!
//! On a CPU the tensors are host memory, so a real decode there drives the same cache that a device
//! has. Requests below [`MIN_CACHED_BYTES`] go to the system allocator and are counted. Until
//! [`HostAllocator::install`] is called, and with the kill switch over the system allocator, every
//! request goes there: the program then behaves as if this allocator were not there.
//!
//! The cache's own metadata never comes from the cache: while a thread holds the cache's lock, its
//! requests go to the system allocator, and what it frees is set aside until the lock is given back.

mod counts;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::alloc::cache::{Cache, Config, FreeRequest, Request, Served, StreamKey};
use crate::alloc::driver::host::{HostDriver, HostDriverKind};
use crate::alloc::driver::{Address, Fill};
use crate::alloc::lock::{BiasedLock, RawLock};
use crate::alloc::peaks::{PeakWindow, Peaks};
use crate::alloc::policy::{Action, KillSwitch};
use crate::alloc::stats::{AllocCause, Bypass, Counter, FreeCause, Known, Snapshot};
use crate::alloc::steps::Monitored;
use counts::{COUNTS, Counted};

/// Smaller requests go to the system allocator.
pub const MIN_CACHED_BYTES: usize = 4096;

thread_local! {
    static IN_CORE: Cell<bool> = const { Cell::new(false) };
    /// Blocks that this thread has freed while it held the lock.
    static DEFERRED: Cell<*mut DeferredFree> = const { Cell::new(ptr::null_mut()) };
}

/// A freed block that waits; it is written into the block itself, which is large enough.
struct DeferredFree {
    next: *mut DeferredFree,
    layout: Layout,
}

/// The lock of the host's cache: marks its holder, so that the cache's own metadata come from the
/// system allocator.
#[derive(Debug, Default)]
pub struct HostLock(BiasedLock);

impl RawLock for HostLock {
    #[inline]
    fn lock(&self) {
        self.0.lock();
        IN_CORE.set(true);
    }

    #[inline]
    unsafe fn unlock(&self) {
        IN_CORE.set(false);
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
    }
}

/// How the host twin is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostConfig {
    /// What is below the cache.
    pub driver: HostDriverKind,
    /// The cache's own settings.
    pub cache: Config,
}

/// The global allocator is installed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host allocator is installed already; a process sets it up once")]
pub struct AlreadyInstalled;

/// What [`HostAllocator::install`] has set up; it lives as long as the process.
#[derive(Debug)]
pub struct HostTwin {
    cache: Cache<HostDriver, HostLock>,
    /// Whether large requests go to the system allocator as they are, without the cache knowing.
    passes_through: bool,
}

/// To be declared as `#[global_allocator]`.
#[derive(Debug)]
pub struct HostAllocator {
    twin: AtomicPtr<HostTwin>,
}

impl Default for HostAllocator {
    fn default() -> Self {
        HostAllocator::new()
    }
}

impl HostAllocator {
    /// An allocator that passes everything through until it is installed.
    #[must_use]
    pub const fn new() -> Self {
        HostAllocator { twin: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Sends large requests through a cache from now on. Blocks from before are freed to the system
    /// allocator when their time comes.
    ///
    /// # Errors
    /// Where it is installed already.
    pub fn install(&self, config: HostConfig) -> Result<&'static HostTwin, AlreadyInstalled> {
        let killed = config.cache.kill_switch == KillSwitch::Killed;
        let twin = Box::leak(Box::new(HostTwin {
            cache: Cache::new(HostDriver::new(config.driver), config.cache),
            passes_through: killed && config.driver == HostDriverKind::System,
        }));
        match self.twin.compare_exchange(
            ptr::null_mut(),
            twin,
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            Ok(_) => Ok(twin),
            Err(_) => Err(AlreadyInstalled),
        }
    }

    #[inline]
    fn twin(&self) -> Option<&'static HostTwin> {
        // SAFETY: the pointer is null or comes from a leaked box that was published with release.
        unsafe { self.twin.load(Ordering::Acquire).as_ref() }
    }

    /// The cache that this request goes through; otherwise the reason why it does not.
    #[inline]
    fn route(&self) -> Result<&'static Cache<HostDriver, HostLock>, Bypass> {
        let twin = self.twin().ok_or(Bypass::NotInstalled)?;
        if IN_CORE.get() {
            return Err(Bypass::NotInstalled);
        }
        if twin.passes_through {
            return Err(Bypass::Killed);
        }
        if twin.cache.is_forked_child() {
            return Err(Bypass::Closed);
        }
        Ok(&twin.cache)
    }

    fn alloc_large(&self, layout: Layout, fill: Fill) -> *mut u8 {
        let cache = match self.route() {
            Ok(cache) => cache,
            Err(reason) => {
                COUNTS.note_alloc(reason, layout.size());
                return system_alloc(layout, fill);
            }
        };
        self.free_deferred();
        let request = Request {
            bytes: layout.size() as u64,
            align: layout.align() as u64,
            fill,
            stream: StreamKey::HOST,
        };
        let Ok(allocation) = cache.alloc(request) else { return ptr::null_mut() };
        let pointer = ptr::with_exposed_provenance_mut::<u8>(allocation.address.0 as usize);
        if fill == Fill::Zeroed && allocation.served == Served::Cache {
            // SAFETY: the block has at least the requested bytes and nobody else has it.
            unsafe { pointer.write_bytes(0, layout.size()) };
        }
        pointer
    }

    /// # Safety
    /// As for [`GlobalAlloc::dealloc`]; the layout is not smaller than [`MIN_CACHED_BYTES`].
    unsafe fn free_large(&self, pointer: *mut u8, layout: Layout) {
        match self.route() {
            Ok(cache) => {
                self.free_deferred();
                let free = FreeRequest {
                    address: Address(pointer.expose_provenance() as u64),
                    stream: StreamKey::HOST,
                    bytes: layout.size() as u64,
                    align: layout.align() as u64,
                };
                // SAFETY: the caller is done with the block. What the cache does not know came from
                // the system allocator with this layout.
                unsafe { cache.free(free) };
            }
            Err(_) if IN_CORE.get() => {
                // The block may be the cache's, whose lock this thread holds.
                let node = pointer.cast::<DeferredFree>();
                let next = DEFERRED.replace(node);
                // SAFETY: the block is free, large enough for the node, and stays until
                // `free_deferred` reads it; an unaligned write needs no alignment.
                unsafe { node.write_unaligned(DeferredFree { next, layout }) };
            }
            // In a child nobody knows who else holds what the block came from: it is left alone.
            Err(Bypass::Closed) => {}
            Err(_) => {
                COUNTS.note_free(layout.size());
                // SAFETY: everything that is not the cache's came from the system allocator.
                unsafe { System.dealloc(pointer, layout) };
            }
        }
    }

    /// Frees what was set aside while the lock was held.
    #[inline]
    fn free_deferred(&self) {
        if !DEFERRED.get().is_null() {
            self.free_deferred_slowly();
        }
    }

    #[cold]
    fn free_deferred_slowly(&self) {
        while let Some(node) = NonNull::new(DEFERRED.get()) {
            // SAFETY: the node was written by `free_large` on this thread and not taken out since.
            let DeferredFree { next, layout } = unsafe { node.as_ptr().read_unaligned() };
            DEFERRED.set(next);
            // SAFETY: the block was freed with this layout and only set aside.
            unsafe { self.free_large(node.as_ptr().cast(), layout) };
        }
    }

    /// Moves a block to a new one of another size.
    ///
    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    unsafe fn move_block(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the new size with this alignment is a layout.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_bytes, layout.align()) };
        // SAFETY: the new layout is not empty. Both blocks hold the smaller of the two sizes and do
        // not overlap; the old one is given up after the copy.
        unsafe {
            let moved = self.alloc(new_layout);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(pointer, moved, layout.size().min(new_bytes));
                self.dealloc(pointer, layout);
            }
            moved
        }
    }
}

fn system_alloc(layout: Layout, fill: Fill) -> *mut u8 {
    // SAFETY: large layouts are not empty.
    unsafe {
        match fill {
            Fill::Any => System.alloc(layout),
            Fill::Zeroed => System.alloc_zeroed(layout),
        }
    }
}

// SAFETY: every block is at least as large and as aligned as its layout, is handed out once until it
// is freed, and a free or realloc goes to where the block came from: small layouts to the system
// allocator, large ones to the cache, which knows its own blocks by address and sends others to the
// system allocator. Nothing here panics or unwinds.
unsafe impl GlobalAlloc for HostAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() < MIN_CACHED_BYTES {
            COUNTS.note_small();
            // SAFETY: the caller guarantees that the layout is not empty.
            return unsafe { System.alloc(layout) };
        }
        self.alloc_large(layout, Fill::Any)
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() < MIN_CACHED_BYTES {
            COUNTS.note_small();
            // SAFETY: the caller guarantees that the layout is not empty.
            return unsafe { System.alloc_zeroed(layout) };
        }
        self.alloc_large(layout, Fill::Zeroed)
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if layout.size() < MIN_CACHED_BYTES {
            // SAFETY: small blocks come from the system allocator.
            return unsafe { System.dealloc(pointer, layout) };
        }
        // SAFETY: the caller gives the same guarantees.
        unsafe { self.free_large(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        let small = MIN_CACHED_BYTES;
        match (layout.size() < small, new_bytes < small) {
            (true, true) => {
                COUNTS.note_small();
                // SAFETY: small blocks come from the system allocator and stay there.
                return unsafe { System.realloc(pointer, layout, new_bytes) };
            }
            (false, false) => match self.route() {
                Ok(cache) => {
                    let address = Address(pointer.expose_provenance() as u64);
                    if cache.resize_in_place(address, new_bytes as u64) {
                        return pointer;
                    }
                }
                // While the lock is held the block may be the cache's own: it is moved.
                Err(reason @ (Bypass::Killed | Bypass::NotInstalled)) if !IN_CORE.get() => {
                    COUNTS.note_free(layout.size());
                    COUNTS.note_alloc(reason, new_bytes);
                    // SAFETY: the block came from the system allocator and stays there.
                    return unsafe { System.realloc(pointer, layout, new_bytes) };
                }
                Err(_) => {}
            },
            _ => {}
        }
        // SAFETY: the caller gives the same guarantees.
        unsafe { self.move_block(pointer, layout, new_bytes) }
    }
}

impl HostTwin {
    /// The cache.
    pub fn cache(&self) -> &Cache<HostDriver, HostLock> {
        &self.cache
    }

    /// Whether large requests go to the system allocator as they are.
    #[must_use]
    pub fn passes_through(&self) -> bool {
        self.passes_through
    }
}

impl Monitored for HostTwin {
    fn before_forward(&self, seq_len: usize) -> Action {
        self.cache.before_forward(seq_len)
    }

    /// The cache's snapshot with the requests that did not go through it.
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.cache.snapshot();
        let Counted { small, not_installed, killed, closed, frees, live_bytes } = COUNTS.read();
        let counters = &mut snapshot.counters;
        counters[Counter::Requests] += small + not_installed + killed + closed;
        counters[Bypass::Small] += small;
        counters[Bypass::NotInstalled] += not_installed;
        counters[Bypass::Killed] += killed;
        counters[Bypass::Closed] += closed;
        counters[AllocCause::Bypass] += not_installed + killed + closed;
        counters[FreeCause::Off] += frees;
        if self.passes_through {
            snapshot.gauges.live_bytes = live_bytes;
            snapshot.gauges.live_requested_bytes = live_bytes;
            snapshot.gauges.held_bytes = live_bytes;
        }
        snapshot
    }

    fn open_window(&self) -> PeakWindow {
        self.cache.open_window()
    }

    fn restart_window(&self, window: &PeakWindow) -> Peaks {
        self.cache.restart_window(window)
    }

    fn known(&self) -> Known {
        let blocks = !self.passes_through;
        Known { peaks: blocks, held_bytes: true, driver_time: blocks }
    }
}
