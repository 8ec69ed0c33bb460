//! The stand-in's own strictness: what it refuses, it remembers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::capture::{
    cuGraphDestroy, cuGraphExecDestroy, cuGraphInstantiateWithFlags, cuGraphLaunch,
    cuStreamBeginCapture_v2, cuStreamEndCapture,
};
use crate::code;
use crate::context::{cuCtxSetCurrent, cuDevicePrimaryCtxRetain, cuInit};
use crate::memory::{
    cuMemAlloc_v2, cuMemAllocAsync, cuMemFree_v2, cuMemFreeAsync, cuMemcpyDtoDAsync_v2,
    cuMemsetD8Async, cuMemsetD32Async,
};
use crate::pool::{cuDeviceGetDefaultMemPool, cuMemPoolTrimTo};
use crate::state::lock;
use crate::stream::{cuStreamCreate, cuStreamDestroy_v2, cuStreamSynchronize};

/// The driver's state belongs to the process, so the tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut context = 0;
    assert_eq!(cuInit(0), code::SUCCESS);
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&mut context, 0) }, code::SUCCESS);
    assert_eq!(cuCtxSetCurrent(context), code::SUCCESS);
    lock().violations.clear();
    turn
}

fn new_stream() -> usize {
    let mut stream = 0;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuStreamCreate(&mut stream, 1) }, code::SUCCESS);
    stream
}

fn alloc(bytes: usize, stream: usize) -> Result<u64, code::Code> {
    let mut address = 0;
    // SAFETY: the place is valid.
    match unsafe { cuMemAllocAsync(&mut address, bytes, stream) } {
        code::SUCCESS => Ok(address),
        refused => Err(refused),
    }
}

/// The violations since the last call.
fn violations() -> Vec<String> {
    std::mem::take(&mut lock().violations)
}

#[test]
fn a_double_free_a_foreign_pointer_and_an_inner_one_are_told_apart() {
    let _turn = turn();
    let stream = new_stream();
    let address = alloc(1024, stream).unwrap();
    assert_eq!(cuMemFreeAsync(address + 512, stream), code::INVALID_VALUE);
    assert!(violations()[0].contains("is inside of a block"));
    assert_eq!(cuMemFreeAsync(address, stream), code::SUCCESS);
    assert_eq!(cuMemFreeAsync(address, stream), code::INVALID_VALUE);
    assert!(violations()[0].contains("was freed already"));
    assert_eq!(cuMemFree_v2(0x1234_5678_9000), code::INVALID_VALUE);
    assert!(violations()[0].contains("is not from this driver"));
}

#[test]
fn a_destroyed_stream_is_refused_and_its_handle_used_again() {
    let _turn = turn();
    let stream = new_stream();
    let address = alloc(64, stream).unwrap();
    assert_eq!(cuStreamDestroy_v2(stream), code::SUCCESS);
    assert_eq!(cuMemFreeAsync(address, stream), code::INVALID_HANDLE);
    assert_eq!(violations().len(), 1);
    assert_eq!(new_stream(), stream);
    assert_eq!(cuMemFree_v2(address), code::SUCCESS);
    assert_eq!(violations().len(), 0);
}

#[test]
fn allocating_and_freeing_within_a_capture_ends_it_badly() {
    let _turn = turn();
    let stream = new_stream();
    let address = alloc(64, stream).unwrap();
    assert_eq!(cuStreamBeginCapture_v2(stream, 0), code::SUCCESS);
    assert_eq!(alloc(64, stream), Err(code::CAPTURE_UNSUPPORTED));
    assert_eq!(cuMemFreeAsync(address, stream), code::CAPTURE_UNSUPPORTED);
    assert_eq!(violations().len(), 2);
    let mut graph = 0;
    // SAFETY: the place is valid.
    let ended = unsafe { cuStreamEndCapture(stream, &mut graph) };
    assert_eq!((ended, graph), (code::CAPTURE_INVALIDATED, 0));
    assert_eq!(cuMemFreeAsync(address, stream), code::SUCCESS);
}

#[test]
fn captured_work_is_done_when_the_graph_is_launched() {
    let _turn = turn();
    let stream = new_stream();
    let address = alloc(64, stream).unwrap();
    assert_eq!(cuMemsetD8Async(address, 1, 64, stream), code::SUCCESS);
    assert_eq!(cuStreamBeginCapture_v2(stream, 0), code::SUCCESS);
    assert_eq!(cuMemsetD8Async(address, 2, 64, stream), code::SUCCESS);
    let (mut graph, mut executable) = (0, 0);
    // SAFETY: the places are valid.
    unsafe {
        assert_eq!(cuStreamEndCapture(stream, &mut graph), code::SUCCESS);
        assert_eq!(cuGraphInstantiateWithFlags(&mut executable, graph, 0), code::SUCCESS);
    }
    // SAFETY: the block is live and 64 bytes long.
    let first = || unsafe { (address as *const u8).read_volatile() };
    assert_eq!(first(), 1);
    assert_eq!(cuGraphLaunch(executable, stream), code::SUCCESS);
    assert_eq!(first(), 2);
    assert_eq!(cuGraphExecDestroy(executable), code::SUCCESS);
    assert_eq!(cuGraphDestroy(graph), code::SUCCESS);
    assert_eq!(cuGraphLaunch(executable, stream), code::INVALID_HANDLE);
    assert_eq!(violations().len(), 1);
    assert_eq!(cuMemFreeAsync(address, stream), code::SUCCESS);
}

#[test]
fn ranges_and_alignment_are_checked() {
    let _turn = turn();
    let stream = new_stream();
    let address = alloc(64, stream).unwrap();
    assert_eq!(cuMemsetD8Async(address + 32, 0, 33, stream), code::INVALID_VALUE);
    assert_eq!(cuMemcpyDtoDAsync_v2(address, address + 60, 8, stream), code::INVALID_VALUE);
    assert_eq!(cuMemsetD32Async(address + 2, 0, 1, stream), code::INVALID_VALUE);
    let found = violations();
    assert_eq!(found.len(), 3);
    assert!(found[2].contains("is not aligned to 4"), "{found:?}");
    assert_eq!(cuMemFreeAsync(address, stream), code::SUCCESS);
}

fn held_bytes() -> u64 {
    let state = lock();
    state.live_bytes + state.reserved_bytes()
}

#[test]
fn what_a_pool_reserves_counts_until_it_is_trimmed() {
    let _turn = turn();
    let stream = new_stream();
    let before = held_bytes();
    let capacity = std::mem::replace(&mut lock().settings.capacity_bytes, before + 4096);
    let address = alloc(4096, stream).unwrap();
    assert_eq!(cuMemFreeAsync(address, stream), code::SUCCESS);
    assert_eq!(alloc(1024, stream), Err(code::OUT_OF_MEMORY));
    let mut pool = 0;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuDeviceGetDefaultMemPool(&mut pool, 0) }, code::SUCCESS);
    assert_eq!(cuMemPoolTrimTo(pool, 0), code::SUCCESS);
    assert_eq!(alloc(1024, stream), Err(code::OUT_OF_MEMORY), "nobody has seen that it is free");
    assert_eq!(cuStreamSynchronize(stream), code::SUCCESS);
    assert_eq!(cuMemPoolTrimTo(pool, 0), code::SUCCESS);
    let address = alloc(1024, stream).unwrap();
    assert_eq!(cuMemFreeAsync(address, stream), code::SUCCESS);
    assert_eq!(cuStreamSynchronize(stream), code::SUCCESS);
    lock().settings.capacity_bytes = capacity;
    assert_eq!(violations().len(), 0);
}

#[test]
fn memory_is_refused_on_demand_and_the_error_may_stick() {
    let _turn = turn();
    let stream = new_stream();
    {
        let mut state = lock();
        state.refuse_allocs = 1;
        state.sticky_errors = true;
    }
    assert_eq!(alloc(64, stream), Err(code::OUT_OF_MEMORY));
    lock().sticky_errors = false;
    assert_eq!(cuStreamSynchronize(stream), code::OUT_OF_MEMORY);
    assert_eq!(cuStreamSynchronize(stream), code::SUCCESS);
    let mut address = 0;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuMemAlloc_v2(&mut address, 64) }, code::SUCCESS);
    assert_eq!(cuMemFree_v2(address), code::SUCCESS);
}

#[test]
fn memory_that_a_graph_leaves_allocated_stops_its_second_launch() {
    const OWN: usize = crate::state::PER_THREAD;
    let _turn = turn();
    let live = lock().blocks.len();
    for frees in [true, false] {
        assert_eq!(cuStreamBeginCapture_v2(OWN, 0), code::SUCCESS);
        assert_eq!(alloc(0, OWN), Err(code::INVALID_VALUE));
        let address = alloc(64, OWN).unwrap();
        assert_eq!(cuMemsetD8Async(address, 7, 64, OWN), code::SUCCESS);
        if frees {
            assert_eq!(cuMemFreeAsync(address, OWN), code::SUCCESS);
            assert_eq!(cuMemFreeAsync(address, OWN), code::INVALID_VALUE, "freed once already");
            assert_eq!(violations().len(), 1);
        }
        let (mut graph, mut executable) = (0, 0);
        // SAFETY: the places are valid.
        unsafe {
            assert_eq!(cuStreamEndCapture(OWN, &mut graph), code::SUCCESS);
            let made = cuGraphInstantiateWithFlags(&mut executable, graph, 0);
            assert_eq!(made, code::SUCCESS);
        }
        assert_eq!(cuGraphLaunch(executable, OWN), code::SUCCESS);
        let again = if frees { code::SUCCESS } else { code::INVALID_VALUE };
        assert_eq!(cuGraphLaunch(executable, OWN), again);
        assert_eq!(cuGraphDestroy(graph), code::SUCCESS);
        assert_eq!(lock().blocks.len(), live + 1, "what was made from it has the memory");
        assert_eq!(cuGraphExecDestroy(executable), code::SUCCESS);
        assert_eq!(lock().blocks.len(), live);
    }
    assert_eq!(violations(), Vec::<String>::new());
}
