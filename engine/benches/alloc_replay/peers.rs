//! Allocators from elsewhere. They are compiled with the feature `alloc-peers` only.

use std::alloc::{GlobalAlloc as _, Layout};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use cubecl_runtime::memory_management::{
    MemoryConfiguration, MemoryDeviceProperties, MemoryManagement,
};
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};

use crate::guarded::{FastMap, Guarded, Policy, guarded};
use crate::peer::{BenchDriver, Peer, PeerFactory};
use crate::policies::driver_alloc;
use crate::workload::StepKind;

/// The largest page of CubeCL's pools, and `rlsf`'s arena: enough for every pattern.
const ARENA_BYTES: u64 = 4 << 30;
const ALIGN_BYTES: u64 = 256;

/// Pages for CubeCL's pools, counted.
struct CountingStorage {
    driver: Arc<BenchDriver>,
    sizes: HashMap<StorageId, u64>,
}

impl ComputeStorage for CountingStorage {
    type Resource = ();

    fn alignment(&self) -> usize {
        ALIGN_BYTES as usize
    }
    fn get(&mut self, _handle: &StorageHandle) {}
    fn alloc(&mut self, bytes: u64) -> StorageHandle {
        let id = StorageId::new();
        self.driver.note_alloc(bytes);
        self.sizes.insert(id, bytes);
        StorageHandle::new(id, StorageUtilization { offset: 0, size: bytes })
    }
    fn dealloc(&mut self, id: StorageId) {
        self.driver.note_free(self.sizes.remove(&id).expect("a page of this storage"));
    }
}

/// CubeCL's pools as they come, with the clean-up that its runtimes run at each flush. The type of
/// its handles has no public name, so it is a parameter.
struct CubeCl<H, R> {
    memory: MemoryManagement<CountingStorage>,
    reserve: R,
    handles: FastMap<H>,
    next_address: u64,
}

fn cubecl<H: 'static, R>(name: &'static str, reserve: R) -> PeerFactory
where
    R: Fn(&mut MemoryManagement<CountingStorage>, u64) -> H + Copy + 'static,
{
    PeerFactory::made_by(name, move || {
        let driver = Arc::new(BenchDriver::default());
        let storage = CountingStorage { driver: driver.clone(), sizes: HashMap::new() };
        let properties =
            MemoryDeviceProperties { max_page_size: ARENA_BYTES, alignment: ALIGN_BYTES };
        let config = MemoryConfiguration::default();
        let memory = MemoryManagement::from_configuration(storage, &properties, config);
        let pools = CubeCl { memory, reserve, handles: FastMap::default(), next_address: 1 << 40 };
        Guarded::new(driver, pools)
    })
}

impl<H, R: Fn(&mut MemoryManagement<CountingStorage>, u64) -> H> Policy for CubeCl<H, R> {
    fn new(_driver: Arc<BenchDriver>) -> Self {
        unreachable!("made with a closure");
    }
    fn alloc(&mut self, bytes: u64) -> u64 {
        // Its handles have no address: one is made up.
        self.next_address += bytes.next_multiple_of(ALIGN_BYTES);
        let handle = (self.reserve)(&mut self.memory, bytes);
        self.handles.insert(self.next_address, handle);
        self.next_address
    }
    fn free(&mut self, address: u64) {
        self.handles.remove(&address).expect("handed out");
    }
    fn begin_step(&mut self, kind: StepKind) {
        self.memory.cleanup(kind == StepKind::Prefill);
    }
}

/// One arena of the `offset-allocator` crate, in units of 256 bytes.
struct Arena {
    base: u64,
    bytes: u64,
    allocator: offset_allocator::Allocator,
}

/// The `offset-allocator` crate over arenas that are added as they are needed, each twice as large
/// as the one before; none is given back.
struct OffsetAllocator {
    driver: Arc<BenchDriver>,
    arenas: Vec<Arena>,
    live: FastMap<(usize, offset_allocator::Allocation)>,
}

impl OffsetAllocator {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let units = bytes.div_ceil(ALIGN_BYTES) as u32;
        for (index, arena) in self.arenas.iter_mut().enumerate().rev() {
            if let Some(allocation) = arena.allocator.allocate(units) {
                let address = arena.base + u64::from(allocation.offset) * ALIGN_BYTES;
                self.live.insert(address, (index, allocation));
                return Some(address);
            }
        }
        None
    }
}

impl Policy for OffsetAllocator {
    fn new(driver: Arc<BenchDriver>) -> Self {
        OffsetAllocator { driver, arenas: vec![], live: FastMap::default() }
    }
    fn alloc(&mut self, bytes: u64) -> u64 {
        if let Some(address) = self.take(bytes) {
            return address;
        }
        let doubled = self.arenas.last().map_or(0, |last| (2 * last.bytes).min(1 << 30));
        // Its bins are an eighth apart, and only a larger bin is sure to fit.
        let needed = (bytes + bytes / 4).next_multiple_of(2 << 20);
        let bytes_of_arena = doubled.max(needed);
        let base = driver_alloc(&self.driver, bytes_of_arena);
        let allocator = offset_allocator::Allocator::new((bytes_of_arena / ALIGN_BYTES) as u32);
        self.arenas.push(Arena { base, bytes: bytes_of_arena, allocator });
        self.take(bytes).expect("the new arena is large enough")
    }
    fn free(&mut self, address: u64) {
        let (arena, allocation) = self.live.remove(&address).expect("handed out");
        self.arenas[arena].allocator.free(allocation);
    }
}

/// `rlsf`'s TLSF over one arena. Its headers are in the memory that it manages.
struct Rlsf {
    driver: BenchDriver,
    tlsf: rlsf::Tlsf<'static, u64, u64, 40, 16>,
    arena: NonNull<[u8]>,
}

impl Default for Rlsf {
    fn default() -> Self {
        // SAFETY: a new anonymous mapping; its pages are backed as they are touched.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ARENA_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let start = NonNull::new(start.cast::<u8>()).expect("mapped");
        let arena = NonNull::slice_from_raw_parts(start, ARENA_BYTES as usize);
        let mut tlsf = rlsf::Tlsf::new();
        // SAFETY: the mapping is writable, owned by this value alone and outlives the allocator.
        let inserted = unsafe { tlsf.insert_free_block_ptr(arena) };
        assert!(inserted.is_some());
        Rlsf { driver: BenchDriver::default(), tlsf, arena }
    }
}

impl Drop for Rlsf {
    fn drop(&mut self) {
        // SAFETY: the whole mapping was made by `default` and nothing uses it any more.
        unsafe { libc::munmap(self.arena.as_ptr().cast(), ARENA_BYTES as usize) };
    }
}

impl Peer for Rlsf {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let layout = Layout::from_size_align(bytes as usize, 64).expect("a layout");
        let block = self.tlsf.allocate(layout).expect("the arena is large enough");
        block.as_ptr().expose_provenance() as u64
    }
    fn free(&mut self, address: u64, _bytes: u64) {
        let block = std::ptr::with_exposed_provenance_mut::<MaybeUninit<u8>>(address as usize);
        let block = NonNull::new(block.cast::<u8>()).expect("handed out");
        // SAFETY: the block came from `alloc` with this alignment and is not used any more.
        unsafe { self.tlsf.deallocate(block, 64) };
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

/// mimalloc: its pages have headers in the memory that they manage.
#[derive(Default)]
struct MiMalloc {
    driver: BenchDriver,
}

impl Peer for MiMalloc {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let layout = Layout::from_size_align(bytes as usize, 64).expect("a layout");
        // SAFETY: no pattern asks for nothing.
        unsafe { mimalloc::MiMalloc.alloc(layout).expose_provenance() as u64 }
    }
    fn free(&mut self, address: u64, bytes: u64) {
        let layout = Layout::from_size_align(bytes as usize, 64).expect("a layout");
        let block = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the block came from `alloc` with the same layout.
        unsafe { mimalloc::MiMalloc.dealloc(block, layout) };
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

/// The allocators from elsewhere.
pub(crate) fn factories() -> Vec<PeerFactory> {
    vec![
        cubecl("cubecl-runtime 0.6", |memory, bytes| memory.reserve(bytes, None)),
        guarded::<OffsetAllocator>("offset-allocator, arenas that double"),
        PeerFactory::uncounted::<Rlsf>("rlsf"),
        PeerFactory::uncounted::<MiMalloc>("mimalloc"),
    ]
}
