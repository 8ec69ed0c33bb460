//! Mutated files: whatever is in one, reading it, loading it and running a step of it ends with a model
//! or an error: no panic, no signal, no memory beyond a small multiple of the file.
//!
//! By default a sample that takes seconds; `ARC_FUZZ_HEADERS` and `ARC_FUZZ_FILES` give other numbers,
//! for example 1000000 and 10000.
#![allow(clippy::print_stdout)] // Tests show what they measured.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::model::gguf::{Array, Gguf, Value};
use engine::model::{KvType, Logits};
use made::Made;

#[path = "forward/made.rs"]
#[allow(dead_code, reason = "this test needs a part of it")]
mod made;

/// Counts what is allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system's; counting touches no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: as the caller vouches.
        unsafe { System.alloc(layout) }
    }

    // As the system grows blocks of some size: in place. The default would hold both for a moment.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let live = LIVE.fetch_add(size.wrapping_sub(layout.size()), Ordering::Relaxed);
        PEAK.fetch_max(live.wrapping_add(size).wrapping_sub(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller vouches.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller vouches.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that were live during `work` beyond those before.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Numbers that break things: ends of ranges, small ones, and any.
    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => u64::MAX >> self.below(64),
            1 => 1 << self.below(64),
            2 => (1u64 << self.below(64)).wrapping_sub(1),
            3 | 4 => self.below(64) as u64,
            _ => self.next(),
        }
    }
}

/// Changes some bytes below `end`, or moves, drops and doubles some of them.
fn mutate(bytes: &mut Vec<u8>, end: usize, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let end = end.min(bytes.len());
        let at = random.below(end);
        let width = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
        match random.below(12) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + width)),
            2 => {
                let copy = bytes[at..at + width].to_vec();
                bytes.splice(at..at, copy);
            }
            3 => {
                let from = random.below(end.saturating_sub(width).max(1));
                let (to, last) = (at.min(bytes.len() - width), (from + width).min(bytes.len()));
                bytes.copy_within(from..last, to);
            }
            4 => bytes[at] ^= 1 << random.below(8),
            _ => {
                let number = random.number().to_le_bytes();
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

fn count_of(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Models of every kind of layer, with metadata of every type.
fn bases() -> Vec<Vec<u8>> {
    ["llama", "qwen2moe", "gemma3", "phi3-long", "olmo3"]
        .map(|name| {
            let words = |count: u32| (0..count).map(|i| format!("word{i}")).collect();
            let mut made = Made::named(name)
                .with("tokenizer.ggml.tokens", Value::Array(Array::String(words(40))))
                .with("tokenizer.ggml.scores", Value::Array(Array::Float(vec![0.5; 40])))
                .with("tokenizer.ggml.token_type", Value::Array(Array::Signed(vec![1; 40])))
                .with("a.flag", Value::Array(Array::Bool(vec![true; 9])));
            made.metadata.insert("general.name".to_owned(), Value::String(name.to_owned()));
            made.bytes()
        })
        .to_vec()
}

fn header_end(bytes: &[u8]) -> usize {
    let gguf = Gguf::parse(bytes, bytes.len() as u64).unwrap();
    gguf.tensors.values().map(|tensor| tensor.offset).min().unwrap() as usize
}

// One test: the allocator counts the whole process.
#[test]
fn mutated_files_are_errors_or_models() {
    mutated_headers(count_of("ARC_FUZZ_HEADERS", 20_000));
    mutated_files(count_of("ARC_FUZZ_FILES", 200));
}

fn mutated_headers(count: usize) {
    let bases: Vec<_> = bases().into_iter().map(|bytes| (header_end(&bytes), bytes)).collect();
    let (mut random, mut read, mut worst) = (Random(1), 0, 0f64);
    for index in 0..count {
        let (end, base) = &bases[index % bases.len()];
        let mut bytes = base[..*end].to_vec();
        mutate(&mut bytes, *end, &mut random);
        // The data are there but are not needed: their length is.
        let length = (bytes.len() + base.len() - end) as u64;
        let (parsed, peak) =
            peak_of(|| catch_unwind(|| Gguf::parse(bytes.as_slice(), length).is_ok()));
        read += usize::from(parsed.unwrap_or_else(|_| panic!("mutation {index} panics")));
        // A text takes 24 bytes beside its own where the file has 8, and a list that grows has room
        // for a quarter more; one text may be as long as the file.
        let bound = length as usize + 4 * bytes.len() + (1 << 17);
        assert!(peak <= bound, "mutation {index}: {peak} bytes for {length}");
        worst = worst.max(peak as f64 / length as f64);
    }
    println!("{count} headers: {read} read, memory up to {worst:.1} times the file");
}

fn mutated_files(count: usize) {
    let bases: Vec<_> = bases().into_iter().map(|bytes| (header_end(&bytes), bytes)).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let (mut random, mut ran, mut loaded, mut worst) = (Random(2), 0, 0, 0f64);
    for index in 0..count {
        let (end, base) = &bases[index % bases.len()];
        let mut bytes = base.clone();
        let end = if random.below(4) == 0 { bytes.len() } else { *end };
        mutate(&mut bytes, end, &mut random);
        std::fs::write(&path, &bytes).unwrap();
        let length = bytes.len();
        drop(bytes);
        let work = || {
            let mut model = made::load(&path).ok()?;
            let mut cache = model.new_cache_of(16, KvType::F32).ok()?;
            Some(model.forward(&[1, 2, 3], &mut cache, Logits::Last).is_ok())
        };
        let (result, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(work)));
        let result = result.unwrap_or_else(|_| panic!("mutation {index} panics"));
        loaded += usize::from(result.is_some());
        ran += usize::from(result == Some(true));
        // A list of empty texts takes 24 bytes each where the file has 8, and a quarter of them is room
        // to grow. Beside the file there is a buffer to read it through.
        assert!(peak <= 4 * length + (1 << 18), "mutation {index}: {peak} bytes for {length}");
        if length > base.len() / 2 {
            worst = worst.max(peak as f64 / length as f64);
        }
    }
    println!("{count} files: {loaded} load, {ran} run, memory up to {worst:.1} times the file");
}
