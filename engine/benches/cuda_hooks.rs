//! What the hooks cost for a pair of allocation and free, over the stand-in driver.
//!
//! Each leg runs in processes of its own, interleaved: a process has one driver and one state of the
//! hooks. `direct` calls the driver's functions; `pass-through` calls the hooks with nothing
//! installed, which is what a program pays that does not use the cache; `killed` is the kill switch,
//! which also takes the time of each call; `cached` is served by the cache and never reaches the
//! driver. Run it with `cargo xtask cuda-check --bench`.
#![allow(clippy::print_stdout, reason = "a benchmark's output is its table")]

use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use cudarc::driver::sys;
use engine::alloc::Config;
use engine::alloc::policy::KillSwitch;
use engine::alloc::steps::Monitored as _;
use engine::cuda::{install, open_device};

const LEGS: [&str; 4] = ["direct", "pass-through", "killed", "cached"];
const ROUNDS: usize = 15;
const PAIRS: usize = 20_000;
const BATCHES: usize = 15;
/// What a pair allocates: buffers of a decode step, none larger than a page of the host, so that
/// filling them costs the stand-in little.
const BYTES: [usize; 4] = [512, 1024, 2048, 4096];

fn main() {
    let leg = std::env::args().skip(1).find(|argument| LEGS.contains(&argument.as_str()));
    match leg {
        Some(leg) => println!("{}", run_leg(&leg)),
        None => compare(),
    }
}

/// Runs the legs in turn and prints the median and the range of each over its processes.
fn compare() {
    let program = std::env::current_exe().expect("this program has a path");
    let mut times = [const { Vec::new() }; LEGS.len()];
    for _ in 0..ROUNDS {
        for (leg, times) in LEGS.iter().zip(&mut times) {
            let output = Command::new(&program).arg(leg).output().expect("the leg starts");
            let text = String::from_utf8_lossy(&output.stdout);
            let Ok(ns) = text.trim().parse::<f64>() else {
                println!("{leg}: {text}{}", String::from_utf8_lossy(&output.stderr));
                return;
            };
            times.push(ns);
        }
    }
    println!("ns per pair of allocation and free, {ROUNDS} processes each");
    println!("{:<14} {:>8} {:>8} {:>8} {:>16}", "leg", "median", "min", "max", "over direct");
    let mut direct = None;
    for (leg, times) in LEGS.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let over = median - *direct.get_or_insert(median);
        let (min, max) = (times[0], times[times.len() - 1]);
        println!("{leg:<14} {median:>8.1} {min:>8.1} {max:>8.1} {over:>16.1}");
    }
}

/// The median over batches, in nanoseconds per pair.
fn run_leg(leg: &str) -> f64 {
    let device = match open_device(0) {
        Ok(device) => device,
        Err(error) => {
            println!("{error}: run `cargo xtask cuda-check --bench`");
            return f64::NAN;
        }
    };
    let stream = device.as_cuda_device().expect("a CUDA device").cuda_stream().cu_stream();
    let killed = Config { kill_switch: KillSwitch::Killed, ..Config::default() };
    match leg {
        "killed" => drop(install(&device, killed).expect("the hooks are reached")),
        "cached" => {
            let allocator = install(&device, Config::default()).expect("the hooks are reached");
            allocator.before_forward(1);
        }
        _ => {}
    }
    let pair: &dyn Fn(usize) = if leg == "direct" {
        let (alloc, free) = direct_functions();
        &move |bytes| {
            let mut address = 0;
            // SAFETY: the place is valid; the block is given up at once.
            unsafe {
                black_box(alloc(&mut address, bytes, stream));
                black_box(free(address, stream));
            }
        }
    } else {
        &|bytes| {
            let mut address = 0;
            // SAFETY: as above.
            unsafe {
                let _ = black_box(sys::cuMemAllocAsync(&mut address, bytes, stream));
                let _ = black_box(sys::cuMemFreeAsync(address, stream));
            }
        }
    };
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            for i in 0..PAIRS {
                pair(BYTES[i % BYTES.len()]);
            }
            start.elapsed().as_secs_f64() * 1e9 / PAIRS as f64
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    batches[BATCHES / 2]
}

type Alloc = unsafe extern "C" fn(*mut u64, usize, sys::CUstream) -> c_int;
type Free = unsafe extern "C" fn(u64, sys::CUstream) -> c_int;

/// The driver's own functions.
fn direct_functions() -> (Alloc, Free) {
    let find = |name: &CStr| {
        // SAFETY: the names are C strings, and the library is loaded since the device was opened.
        unsafe {
            libc::dlsym(libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW), name.as_ptr())
        }
    };
    // SAFETY: the functions have these types.
    unsafe {
        (
            std::mem::transmute::<*mut c_void, Alloc>(find(c"cuMemAllocAsync")),
            std::mem::transmute::<*mut c_void, Free>(find(c"cuMemFreeAsync")),
        )
    }
}
