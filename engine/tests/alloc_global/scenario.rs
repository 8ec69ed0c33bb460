//! What is done in a process that has the host allocator.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use engine::alloc::Config;
use engine::alloc::driver::host::HostDriverKind;
use engine::alloc::global::{HostAllocator, HostConfig, HostTwin};
use engine::alloc::policy::KillSwitch;
use engine::alloc::stats::{Bypass, Counter, MUST_BE_ZERO};
use engine::alloc::steps::Monitored as _;

const MIB: usize = 1 << 20;

pub(crate) fn run(name: &str, allocator: &HostAllocator) {
    use HostDriverKind::{Mmap, System};
    use KillSwitch::{Killed, Policy};
    match name {
        "steady-system" => steady(install(allocator, System, Policy)),
        "steady-mmap" => steady(install(allocator, Mmap, Policy)),
        "killed-system" => killed_system(install(allocator, System, Killed)),
        "killed-mmap" => killed_mmap(install(allocator, Mmap, Killed)),
        "before" => before(allocator),
        "contents" => contents(install(allocator, Mmap, Policy)),
        "aligned" => aligned(install(allocator, System, Policy)),
        "threads" => threads(install(allocator, Mmap, Policy)),
        "fork" => fork(install(allocator, System, Policy)),
        "metadata" => metadata(install(allocator, System, Policy)),
        "limit" => limit(install(allocator, Mmap, Policy)),
        "exhaust" => exhaust(install(allocator, System, Policy)),
        other => panic!("no scenario {other}"),
    }
}

fn install(
    allocator: &HostAllocator,
    driver: HostDriverKind,
    kill_switch: KillSwitch,
) -> &'static HostTwin {
    let cache = Config { kill_switch, ..Config::default() };
    let twin = allocator.install(HostConfig { driver, cache }).unwrap();
    assert!(allocator.install(HostConfig::default()).is_err(), "once per process");
    twin
}

/// Everything adds up, and nothing that must not happen has.
fn settled(twin: &HostTwin) {
    twin.cache().audit().unwrap();
    let counters = twin.snapshot().counters;
    for &counter in MUST_BE_ZERO {
        assert_eq!(counters[counter], 0, "{counter:?}");
    }
    let answered = counters[Counter::Hits] + counters[Counter::Misses] + counters.bypasses();
    assert_eq!(answered, counters[Counter::Requests]);
}

/// One step's work: buffers of many sizes, written and read.
fn work() {
    let mut kept: Vec<Vec<u8>> = vec![];
    for i in 0..200_usize {
        let bytes = 100 + (i * 7919) % (300 << 10);
        let mut buffer = Vec::with_capacity(bytes);
        buffer.resize(bytes, i as u8);
        assert!(buffer.iter().all(|&byte| byte == i as u8));
        kept.push(buffer);
        if kept.len() > 5 {
            kept.swap_remove(i % 5);
        }
    }
}

fn steady(twin: &HostTwin) {
    // Before the policy enables the cache, requests pass by it.
    work();
    let off = twin.snapshot().counters;
    assert!(off[Bypass::Off] > 100 && off[Counter::Hits] == 0);
    twin.before_forward(1);
    work();
    let warm = twin.snapshot().counters;
    for _ in 0..50 {
        twin.before_forward(1);
        work();
    }
    let delta = twin.snapshot().counters.since(&warm);
    assert!(delta[Counter::Hits] > 5000);
    assert_eq!((delta.driver_allocs(), delta.driver_frees()), (0, 0));
    assert!(delta[Bypass::Small] > 0, "small requests are counted");
    settled(twin);
}

fn killed_system(twin: &HostTwin) {
    assert!(twin.passes_through());
    twin.before_forward(1);
    let before = twin.snapshot();
    work();
    let after = twin.snapshot();
    let delta = after.counters.since(&before.counters);
    assert!(delta[Bypass::Killed] > 100);
    assert_eq!(delta[Counter::Hits] + delta[Counter::Misses], 0);
    assert_eq!(delta.driver_allocs(), delta[Bypass::Killed]);
    assert_eq!(delta.driver_frees(), delta.driver_allocs());
    assert_eq!(after.gauges.live_bytes, before.gauges.live_bytes);
    settled(twin);
}

fn killed_mmap(twin: &HostTwin) {
    assert!(!twin.passes_through());
    twin.before_forward(1);
    let before = twin.snapshot();
    work();
    let after = twin.snapshot();
    let delta = after.counters.since(&before.counters);
    assert!(delta[Bypass::Killed] > 100);
    assert_eq!(delta[Counter::Hits], 0);
    assert_eq!(delta.driver_allocs(), delta[Bypass::Killed]);
    assert_eq!(delta.driver_frees(), delta.driver_allocs());
    assert_eq!(after.gauges.held_bytes, before.gauges.held_bytes);
    assert!(delta[Counter::DriverNs] > 0);
    settled(twin);
}

fn before(allocator: &HostAllocator) {
    let mut early: Vec<Vec<u8>> = (1..20).map(|i| vec![i as u8; i * 10_000]).collect();
    let twin = install(allocator, HostDriverKind::Mmap, KillSwitch::Policy);
    twin.before_forward(1);
    // A block from before that grows moves over, with what it holds.
    early[0].resize(MIB, 9);
    assert!(early[0][..10_000].iter().all(|&byte| byte == 1));
    drop(early);
    let counters = twin.snapshot().counters;
    assert!(counters[Counter::ForeignFrees] >= 19, "{}", counters[Counter::ForeignFrees]);
    assert!(counters[Bypass::NotInstalled] >= 19);
    settled(twin);
}

fn contents(twin: &HostTwin) {
    twin.before_forward(1);
    for bytes in [1, 4095, 4096, 4097, 5000, 70_000, MIB] {
        let layout = Layout::from_size_align(bytes, 16).unwrap();
        // SAFETY: the layout is not empty; each block is read and written within its size, given
        // to realloc and dealloc with its own layout, and not used afterwards.
        unsafe {
            let dirty = alloc(layout);
            dirty.write_bytes(0xff, bytes);
            dealloc(dirty, layout);
            let zeroed = alloc_zeroed(layout);
            assert!((0..bytes).all(|i| zeroed.add(i).read() == 0), "{bytes}");
            let mut block = zeroed;
            (0..bytes).for_each(|i| block.add(i).write(i as u8));
            let mut size = bytes;
            for new_size in [bytes + 1, bytes * 2, bytes * 2 + 100, 4096, 4095, bytes] {
                let old = Layout::from_size_align(size, 16).unwrap();
                block = realloc(block, old, new_size);
                let same = bytes.min(size).min(new_size).min(4095);
                assert!((0..same).all(|i| block.add(i).read() == i as u8), "{bytes} → {new_size}");
                size = new_size;
            }
            dealloc(block, Layout::from_size_align(size, 16).unwrap());
        }
    }
    settled(twin);
}

fn aligned(twin: &HostTwin) {
    twin.before_forward(1);
    for align in [1, 64, 4096, 8192, 1 << 16, 1 << 21] {
        let layout = Layout::from_size_align(3 * 4096 + 5, align).unwrap();
        // SAFETY: the layout is not empty and the block is used within it and freed once.
        unsafe {
            let block = alloc_zeroed(layout);
            assert_eq!(block.addr() % align, 0);
            assert!((0..layout.size()).all(|i| block.add(i).read() == 0));
            block.write_bytes(1, layout.size());
            let larger = realloc(block, layout, 9 * 4096);
            assert_eq!(larger.addr() % align, 0);
            assert!((0..layout.size()).all(|i| larger.add(i).read() == 1));
            dealloc(larger, Layout::from_size_align(9 * 4096, align).unwrap());
        }
    }
    assert!(twin.snapshot().counters[Bypass::Alignment] > 0);
    settled(twin);
}

/// Four threads allocate, write, hand on and free, while the policy is turned on and off.
fn threads(twin: &'static HostTwin) {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..4).map(|_| mpsc::sync_channel::<(u8, Vec<u8>)>(64)).unzip();
    let working = AtomicUsize::new(4);
    twin.before_forward(1);
    std::thread::scope(|scope| {
        for (thread, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(thread + 1) % 4].clone();
            let working = &working;
            scope.spawn(move || {
                for round in 0..2000_usize {
                    let bytes = 2000 + (round * 131 + thread * 7) % (64 << 10);
                    let tag = (round ^ thread) as u8;
                    // A full neighbour means that the block is freed here.
                    let _ = next.try_send((tag, vec![tag; bytes]));
                    while let Ok((tag, buffer)) = receiver.try_recv() {
                        assert!(buffer.iter().all(|&byte| byte == tag));
                    }
                }
                working.fetch_sub(1, Ordering::Relaxed);
            });
        }
        drop(senders);
        // As long as anybody works, and often enough whatever the scheduler does.
        for turn in 0.. {
            if turn >= 400 && working.load(Ordering::Relaxed) == 0 {
                break;
            }
            twin.before_forward(if turn % 16 == 15 { 64 } else { 1 });
            std::thread::yield_now();
        }
    });
    let counters = twin.snapshot().counters;
    assert!(counters[Counter::Drains] > 0 && counters[Counter::Hits] > 0);
    settled(twin);
}

fn fork(twin: &HostTwin) {
    twin.before_forward(1);
    let mut block = vec![1_u8; MIB];
    drop(vec![2_u8; 2 * MIB]);
    let before = twin.snapshot();
    // SAFETY: the child only allocates, frees and ends without running exit handlers; no other
    // thread of this program holds a lock that it needs.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        block.resize(3 * MIB, 3);
        let fresh = vec![4_u8; 2 * MIB];
        let intact = block[..MIB].iter().all(|&byte| byte == 1) && fresh[MIB] == 4;
        drop((block, fresh));
        twin.before_forward(1);
        twin.before_forward(8);
        twin.cache().flush();
        // The cache as the parent left it: no driver call and no change.
        let after = twin.cache().snapshot();
        let untouched = after.gauges == before.gauges && after.mode == before.mode;
        // SAFETY: ends the child without touching what it shares with the parent.
        unsafe { libc::_exit(if intact && untouched { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
    drop(block);
    settled(twin);
}

/// Thousands of blocks make the tables grow well over the size that is cached.
fn metadata(twin: &HostTwin) {
    twin.before_forward(1);
    let blocks: Vec<Vec<u8>> = (0..5000).map(|_| Vec::with_capacity(4096)).collect();
    let snapshot = twin.snapshot();
    assert!(snapshot.blocks >= 5000);
    assert!(snapshot.block_records * 64 > 64 << 10, "the records fill many pages");
    assert!(snapshot.counters[Bypass::NotInstalled] > 0, "the tables grew outside the cache");
    let depths = twin.cache().class_depths();
    drop(blocks);
    assert!(twin.cache().class_depths().len() >= depths.len());
    settled(twin);
}

fn limit(twin: &HostTwin) {
    twin.before_forward(1);
    let idle: Vec<Vec<u8>> = (0..8).map(|_| Vec::with_capacity(8 * MIB)).collect();
    drop(idle);
    assert!(twin.cache().gauges().idle_bytes >= 64 << 20);
    set_address_space(address_space_bytes() + (16 << 20));
    // More than is left, but not more than the idle blocks can make room for.
    let rescued: Vec<u8> = Vec::with_capacity(48 * MIB);
    assert!(rescued.capacity() >= 48 * MIB);
    assert_eq!(twin.cache().gauges().idle_bytes, 0);
    let mut refused: Vec<u8> = vec![];
    assert!(refused.try_reserve_exact(400 * MIB).is_err());
    let counters = twin.snapshot().counters;
    assert_eq!((counters[Counter::OomRetries], counters[Counter::OomRescues]), (2, 1));
    assert_eq!(counters[Counter::AllocFailures], 1);
    settled(twin);
}

/// Asks for more than the limit lets it have: the standard library ends the program.
fn exhaust(twin: &HostTwin) {
    twin.before_forward(1);
    set_address_space(address_space_bytes() + (64 << 20));
    let block: Vec<u8> = Vec::with_capacity(1024 * MIB);
    panic!("{} bytes were handed out", block.capacity());
}

fn address_space_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

fn set_address_space(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: sets a limit of this process from a value that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}
