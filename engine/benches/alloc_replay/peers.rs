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

use crate::peer::{BenchDriver, Peer, PeerFactory};
use crate::workload::StepKind;

/// What the allocators that manage one arena are given: enough for every pattern.
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
    driver: Arc<BenchDriver>,
    memory: MemoryManagement<CountingStorage>,
    reserve: R,
    handles: Vec<Option<H>>,
    vacant: Vec<u64>,
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
        CubeCl { driver, memory, reserve, handles: vec![], vacant: vec![] }
    })
}

impl<H, R: Fn(&mut MemoryManagement<CountingStorage>, u64) -> H> Peer for CubeCl<H, R> {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let handle = (self.reserve)(&mut self.memory, bytes);
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.handles.push(None);
            self.handles.len() as u64 - 1
        });
        self.handles[index as usize] = Some(handle);
        index
    }
    fn free(&mut self, index: u64, _bytes: u64) {
        self.handles[index as usize] = None;
        self.vacant.push(index);
    }
    fn begin_step(&mut self, kind: StepKind) {
        self.memory.cleanup(kind == StepKind::Prefill);
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}

/// The `offset-allocator` crate over one arena in units of 256 bytes.
struct OffsetAllocator {
    driver: BenchDriver,
    allocator: offset_allocator::Allocator,
    allocations: Vec<Option<offset_allocator::Allocation>>,
    vacant: Vec<u64>,
}

impl Default for OffsetAllocator {
    fn default() -> Self {
        let driver = BenchDriver::default();
        driver.note_alloc(ARENA_BYTES);
        OffsetAllocator {
            driver,
            allocator: offset_allocator::Allocator::new((ARENA_BYTES / ALIGN_BYTES) as u32),
            allocations: vec![],
            vacant: vec![],
        }
    }
}

impl Peer for OffsetAllocator {
    fn alloc(&mut self, bytes: u64) -> u64 {
        let units = bytes.div_ceil(ALIGN_BYTES) as u32;
        let allocation = self.allocator.allocate(units).expect("the arena is large enough");
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.allocations.push(None);
            self.allocations.len() as u64 - 1
        });
        self.allocations[index as usize] = Some(allocation);
        index
    }
    fn free(&mut self, index: u64, _bytes: u64) {
        let allocation = self.allocations[index as usize].take().expect("handed out");
        self.allocator.free(allocation);
        self.vacant.push(index);
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
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
        PeerFactory::of::<OffsetAllocator>("offset-allocator, 4 GiB arena"),
        PeerFactory::uncounted::<Rlsf>("rlsf"),
        PeerFactory::uncounted::<MiMalloc>("mimalloc"),
    ]
}
