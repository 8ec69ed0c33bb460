//! Streams, contexts and pools: what belongs to them goes before they do.

use std::ptr;

use cudarc::driver::{CudaContext, CudaStream, sys};
use engine::alloc::Config;
use engine::alloc::stats::{Bypass, Counter, FreeCause};
use engine::alloc::steps::Monitored as _;
use engine::cuda::{CudaAllocator, install_and_check, open_device};

use crate::harness::{Expect, cached, driver, driver_calls, scenario, set_capacity, settle};

/// Allocates on a stream, through the hook.
pub(crate) fn alloc_on(stream: sys::CUstream, bytes: usize) -> u64 {
    let mut address = 0;
    // SAFETY: the place is valid.
    unsafe { sys::cuMemAllocAsync(&mut address, bytes, stream).result().unwrap() };
    address
}

/// Frees on a stream, through the hook.
pub(crate) fn free_on(stream: sys::CUstream, address: u64) {
    // SAFETY: the block came from `alloc_on` and nobody uses it.
    unsafe { sys::cuMemFreeAsync(address, stream).result().unwrap() };
}

/// A context of device 0 with the cache on, without candle.
pub(crate) fn plain()
-> (std::sync::Arc<CudaContext>, std::sync::Arc<CudaStream>, &'static CudaAllocator) {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let allocator = install_and_check(Config::default(), &mut || {
        // SAFETY: the place is valid, and the block is given up at once.
        unsafe {
            let mut address = 0;
            sys::cuMemAlloc_v2(&mut address, 512).result().unwrap();
            sys::cuMemFree_v2(address).result().unwrap();
        }
        Ok(())
    })
    .unwrap();
    allocator.before_forward(1);
    (context, stream, allocator)
}

#[test]
fn special_streams_pass_by() {
    scenario("streams::special_streams_pass_by", &[], Expect::Clean, || {
        let (_context, _stream, allocator) = plain();
        for special in 0..3 {
            let stream = ptr::without_provenance_mut(special);
            let before = driver_calls();
            free_on(stream, alloc_on(stream, 4096));
            free_on(stream, alloc_on(stream, 4096));
            let after = driver_calls();
            assert_eq!((after.0 - before.0, after.1 - before.1), (2, 2), "stream {special}");
        }
        let counters = allocator.snapshot().counters;
        assert_eq!(counters[Bypass::Stream], 6);
        assert_eq!(counters[FreeCause::Foreign], 6);
        settle(allocator);
    });
}

#[test]
fn a_request_that_passes_by_gets_what_is_idle_when_memory_runs_out() {
    let name = "streams::a_request_that_passes_by_gets_what_is_idle_when_memory_runs_out";
    scenario(name, &[], Expect::Clean, || {
        let (_context, stream, allocator) = plain();
        free_on(stream.cu_stream(), alloc_on(stream.cu_stream(), 8 << 20));
        set_capacity(driver("live_bytes") + driver("reserved_bytes"));
        let null = ptr::null_mut();
        free_on(null, alloc_on(null, 4 << 20));
        assert_eq!(allocator.cache().gauges().idle_bytes, 0);
        settle(allocator);
    });
}

#[test]
fn what_is_idle_on_a_stream_goes_before_it() {
    scenario("streams::what_is_idle_on_a_stream_goes_before_it", &[], Expect::Clean, || {
        let (context, _stream, allocator) = plain();
        let other = context.new_stream().unwrap();
        let handle = other.cu_stream();
        let live = alloc_on(handle, 1 << 20);
        free_on(handle, alloc_on(handle, 64 << 10));
        assert_eq!(allocator.cache().gauges().idle_bytes, 64 << 10);
        drop(other);
        assert_eq!(allocator.cache().gauges().idle_bytes, 0);
        // The driver gives the handle to the next stream; what is live from the one before must not
        // end up in its lists.
        let next = context.new_stream().unwrap();
        assert_eq!(next.cu_stream(), handle, "the stand-in uses handles again");
        free_on(next.cu_stream(), live);
        let again = alloc_on(next.cu_stream(), 1 << 20);
        assert_eq!(allocator.cache().gauges().idle_bytes, 0);
        free_on(next.cu_stream(), again);
        assert_eq!(allocator.cache().gauges().idle_bytes, 1 << 20);
        settle(allocator);
        drop(next);
        settle(allocator);
    });
}

#[test]
fn a_block_used_on_another_stream_waits_for_it() {
    scenario("streams::a_block_used_on_another_stream_waits_for_it", &[], Expect::Clean, || {
        let (context, stream, allocator) = plain();
        let other = context.new_stream().unwrap();
        let address = alloc_on(stream.cu_stream(), 4096);
        let events = driver("event_record");
        free_on(other.cu_stream(), address);
        assert_eq!(driver("event_record"), events + 1, "an event stands behind the block");
        let counters = allocator.snapshot().counters;
        assert_eq!(counters[Counter::CrossStreamFrees], 1);
        // In the stand-in an event is done as soon as it is recorded; the cache learns it at the
        // next step.
        allocator.before_forward(1);
        assert_eq!(alloc_on(stream.cu_stream(), 4096), address);
        free_on(stream.cu_stream(), address);
        settle(allocator);
    });
}

#[test]
fn what_is_idle_in_a_context_goes_before_it() {
    let name = "streams::what_is_idle_in_a_context_goes_before_it";
    scenario(name, &[("ARC_STANDIN_POOLS", "0")], Expect::Clean, || {
        let (context, stream, allocator) = plain();
        let mut address = 0;
        // SAFETY: the place is valid, and the block is given up at once.
        unsafe {
            sys::cuMemAlloc_v2(&mut address, 1 << 20).result().unwrap();
            sys::cuMemFree_v2(address).result().unwrap();
        }
        assert_eq!(allocator.cache().gauges().idle_bytes, 1 << 20);
        // A second holder of the primary context: the cache stays as it is until the last goes.
        let second = CudaContext::new(0).unwrap();
        drop(second);
        assert_eq!(allocator.cache().gauges().idle_bytes, 1 << 20);
        drop((stream, context));
        assert_eq!(driver("context_destroy"), 1);
        assert_eq!(allocator.cache().gauges().held_bytes, 0);
        assert_eq!(driver("ended_with_context"), 0, "everything was given back before");
        // A new context with the handle of the old one is another one.
        let context = CudaContext::new(0).unwrap();
        // SAFETY: as above.
        unsafe {
            sys::cuMemAlloc_v2(&mut address, 1 << 20).result().unwrap();
            sys::cuMemFree_v2(address).result().unwrap();
        }
        settle(allocator);
        drop(context);
        settle(allocator);
    });
}

#[test]
fn a_context_of_ones_own_is_emptied_before_it_is_destroyed() {
    let name = "streams::a_context_of_ones_own_is_emptied_before_it_is_destroyed";
    scenario(name, &[], Expect::Clean, || {
        let (primary, primary_stream, allocator) = plain();
        let own = CudaContext::new_non_primary(0, 0).unwrap();
        let stream = own.new_stream().unwrap();
        free_on(stream.cu_stream(), alloc_on(stream.cu_stream(), 1 << 20));
        // SAFETY: the place is valid, and the block is given up at once.
        unsafe {
            let mut address = 0;
            sys::cuMemAlloc_v2(&mut address, 1 << 18).result().unwrap();
            sys::cuMemFree_v2(address).result().unwrap();
        }
        primary.bind_to_thread().unwrap();
        free_on(primary_stream.cu_stream(), alloc_on(primary_stream.cu_stream(), 1 << 16));
        let before = allocator.cache().gauges().idle_bytes;
        assert!(before >= (1 << 20) + (1 << 18) + (1 << 16));
        drop(stream);
        drop(own);
        let left = allocator.cache().gauges().idle_bytes;
        assert_eq!(before - left, (1 << 20) + (1 << 18), "the other context keeps what it has");
        assert_eq!(driver("ended_with_context"), 0);
        settle(allocator);
    });
}

#[test]
fn memory_without_a_stream_is_freed_as_the_driver_does() {
    let name = "streams::memory_without_a_stream_is_freed_as_the_driver_does";
    scenario(name, &[], Expect::Clean, || {
        let (_context, stream, allocator) = plain();
        // Allocated in a stream's order and freed without one: the driver waits for the device, and
        // the block may be handed out to its stream again at once.
        let address = alloc_on(stream.cu_stream(), 1 << 20);
        let waits = driver("context_sync");
        // SAFETY: the block is live and given up.
        unsafe { sys::cuMemFree_v2(address).result().unwrap() };
        assert_eq!(driver("context_sync"), waits + 1);
        assert_eq!(alloc_on(stream.cu_stream(), 1 << 20), address);
        free_on(stream.cu_stream(), address);
        settle(allocator);
    });
}

#[test]
fn a_pool_is_drained_while_it_is_alive() {
    scenario("streams::a_pool_is_drained_while_it_is_alive", &[], Expect::Clean, || {
        let (_context, stream, allocator) = plain();
        let stream = stream.cu_stream();
        // SAFETY: the places and properties are valid, and the pool is the device's own.
        let pool = unsafe {
            let mut pool = ptr::null_mut();
            let mut props: sys::CUmemPoolProps = std::mem::zeroed();
            props.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
            props.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
            sys::cuMemPoolCreate(&mut pool, &props).result().unwrap();
            sys::cuDeviceSetMemPool(0, pool).result().unwrap();
            pool
        };
        free_on(stream, alloc_on(stream, 1 << 20));
        let live = alloc_on(stream, 1 << 18);
        assert!(allocator.cache().gauges().idle_bytes >= 1 << 20);
        free_on(stream, live);
        let live = alloc_on(stream, 1 << 16);
        free_on(stream, live);
        // SAFETY: nothing is live in the pool.
        unsafe { sys::cuMemPoolDestroy(pool).result().unwrap() };
        assert_eq!(allocator.cache().gauges().idle_bytes, 0);
        free_on(stream, alloc_on(stream, 1 << 20));
        settle(allocator);
    });
}

#[test]
fn blocks_of_a_pool_that_is_gone_are_never_kept() {
    let name = "streams::blocks_of_a_pool_that_is_gone_are_never_kept";
    scenario(name, &[], Expect::Clean, || {
        let (_context, stream, allocator) = plain();
        let stream = stream.cu_stream();
        let live = alloc_on(stream, 1 << 18);
        // SAFETY: the pool is made here and nothing is allocated from it.
        unsafe {
            let mut pool = ptr::null_mut();
            let props: sys::CUmemPoolProps = std::mem::zeroed();
            sys::cuMemPoolCreate(&mut pool, &props).result().unwrap();
            sys::cuMemPoolDestroy(pool).result().unwrap();
        }
        // Whether the block was of that pool is not known.
        let idle_bytes = allocator.cache().gauges().idle_bytes;
        free_on(stream, live);
        assert_eq!(allocator.cache().gauges().idle_bytes, idle_bytes);
        settle(allocator);
    });
}

#[test]
fn two_devices_do_not_share_blocks() {
    let name = "streams::two_devices_do_not_share_blocks";
    scenario(name, &[("ARC_STANDIN_DEVICES", "2")], Expect::Clean, || {
        let (first, allocator) = cached(Config::default());
        let second = open_device(1).unwrap();
        let on = |device: &candle_core::Device| {
            candle_core::Tensor::zeros(1 << 18, candle_core::DType::F32, device).unwrap()
        };
        drop(on(&first));
        let calls = driver_calls();
        drop(on(&second));
        assert_eq!(driver_calls().0, calls.0 + 1, "the other device's block is not served");
        drop((on(&first), on(&second)));
        assert_eq!(driver_calls().0, calls.0 + 1);
        settle(allocator);
        drop(second);
        settle(allocator);
    });
}
