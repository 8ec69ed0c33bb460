//! What a decode step costs beside arithmetic: allocations, and how often threads are woken. Counts,
//! not times.
#![allow(clippy::print_stdout)] // Shows what was counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::Device;
use engine::model::gguf::Gguf;
use engine::model::source::find_model;
use engine::model::{Logits, Transformer, par};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller vouches.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller vouches.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// The synthetic model of SmolLM2's shape, and SmolLM2 itself where it is.
fn models() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = vec![root.join("bench-configs/models/tiny.toml")];
    let real = root.join("models/smollm2-135m");
    if real.exists() {
        all.push(real);
    } else {
        println!("skipped: models/smollm2-135m is not there");
    }
    all
}

#[test]
fn a_step_allocates_its_buffers_and_wakes_its_threads_once() {
    for path in models() {
        let source = find_model(&path).unwrap();
        let (gguf, _) = Gguf::read(&source.gguf).unwrap();
        let mut model = Transformer::load(&gguf, &source.gguf, &Device::Cpu).unwrap();
        let mut cache = model.new_cache(64).unwrap();
        let mut logits = Vec::new();
        let mut step = |token: u32| {
            model.forward_batch(&[&[token]], &mut [&mut cache], Logits::Last, &mut logits).unwrap();
        };
        step(1);
        let (before, joins) = (ALLOCATIONS.load(Ordering::Relaxed), par::joins());
        let steps = 10;
        (0..steps).for_each(|index| step(index + 2));
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        let after = par::joins();
        let (regions, borders) = (after.regions - joins.regions, after.borders - joins.borders);
        let layers = model.config().layers as u64;
        let steps = u64::from(steps);
        println!(
            "{}: {} allocations, {} wake-ups, {} borders of phases a step of {layers} layers",
            source.name,
            allocations / steps,
            regions / steps,
            borders / steps
        );
        assert!(allocations <= 20 * steps, "{allocations} allocations in {steps} steps");
        assert!(regions <= steps, "{regions} wake-ups in {steps} steps");
        // Into query, key and value, attention, its output, gate and up, down; and the output.
        assert!(borders <= steps * (5 * layers + 1), "{borders} borders in {steps} steps");
    }
}
