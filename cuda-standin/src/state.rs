//! The state of the stand-in driver behind one lock, and the settings that it reads at start.
//!
//! Only bookkeeping is done under the lock; work on memory is done outside it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::launch::Plan;

use capture::{Capture, Executable, Graph};
use pool::Pool;

pub(crate) mod capture;
pub(crate) mod pool;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `ARC_STANDIN_DEVICES`: how many devices there are; 1.
    pub(crate) devices: i32,
    /// `ARC_STANDIN_POOLS`: whether devices have memory pools; 1.
    pub(crate) pools: bool,
    /// `ARC_STANDIN_CAPACITY_MB`: memory of each device; 4096.
    pub(crate) capacity_bytes: u64,
    /// `ARC_STANDIN_REPORT`: a file that the counters and violations are written to at exit.
    pub(crate) report_path: Option<String>,
}

impl Settings {
    fn read() -> Settings {
        let number = |name: &str, default: u64| {
            std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
        };
        Settings {
            devices: number("ARC_STANDIN_DEVICES", 1) as i32,
            pools: number("ARC_STANDIN_POOLS", 1) != 0,
            capacity_bytes: number("ARC_STANDIN_CAPACITY_MB", 4096) << 20,
            report_path: std::env::var("ARC_STANDIN_REPORT").ok(),
        }
    }
}

/// Where the driver is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `cuInit` was not called yet.
    Fresh,
    /// In use.
    Running,
    /// The process is ending, or a test said so.
    ShutDown,
}

#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) size: u64,
    pub(crate) context: usize,
    /// The pool it came from; `None` for `cuMemAlloc_v2`.
    pub(crate) pool: Option<usize>,
    /// Whether an allocation node of a graph has made it.
    pub(crate) of_graph: bool,
}

#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    pub(crate) capture: Option<Capture>,
    /// Returned, once, by the next synchronisation.
    pub(crate) pending_error: Option<Code>,
}

/// One context: primary contexts are counted, others are not.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub(crate) device: i32,
    pub(crate) retained: u32,
}

/// One kernel as a program sees it.
pub(crate) struct Function {
    pub(crate) name: String,
    /// `None` for a kernel without a host version: its launches do nothing.
    pub(crate) plan: Option<Plan>,
}

pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) phase: Phase,
    pub(crate) blocks: BTreeMap<u64, Block>,
    pub(crate) live_bytes: u64,
    /// Addresses that were freed and not handed out again: tells a double free from a foreign one.
    pub(crate) freed: HashSet<u64>,
    pub(crate) contexts: HashMap<usize, Context>,
    pub(crate) streams: HashMap<usize, Stream>,
    /// Handles of destroyed streams: handed out again, last in first out, as a real driver may.
    pub(crate) stream_handles: Vec<usize>,
    /// The events, with the capture that each was recorded in.
    pub(crate) events: HashMap<usize, Option<u64>>,
    pub(crate) pools: HashMap<usize, Pool>,
    pub(crate) destroyed_pools: HashSet<usize>,
    /// The pool of each device that has one other than its default.
    pub(crate) device_pools: HashMap<i32, usize>,
    pub(crate) modules: HashSet<usize>,
    pub(crate) functions: HashMap<usize, &'static Function>,
    /// The names of kernels that were launched and did nothing.
    without_host_version: BTreeSet<String>,
    pub(crate) graphs: HashMap<usize, Graph>,
    pub(crate) executables: HashMap<usize, Executable>,
    pub(crate) next_handle: usize,
    /// That many of the next allocations are refused.
    pub(crate) refuse_allocs: u64,
    /// A refused allocation leaves its error on the stream, for the next synchronisation.
    pub(crate) sticky_errors: bool,
    /// What every `cuEventQuery` answers.
    pub(crate) event_answer: Code,
    pub(crate) peak_bytes: u64,
    pub(crate) violations: Vec<String>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    // SAFETY: `at_exit` is an `extern "C"` function without arguments that never unwinds.
    unsafe { libc::atexit(at_exit) };
    Mutex::new(State::new(Settings::read()))
});

thread_local! {
    /// The context that is current in this thread; 0 is none.
    pub(crate) static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The state, locked. A panic in a test's thread does not stop the others.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state, for a call that needs an initialised driver.
pub(crate) fn enter(call: &str) -> Result<MutexGuard<'static, State>, Code> {
    let mut state = lock();
    match state.phase {
        Phase::Running => Ok(state),
        Phase::Fresh => {
            state.violate(format!("{call}: called before cuInit"));
            Err(code::NOT_INITIALIZED)
        }
        Phase::ShutDown => {
            state.violate(format!("{call}: called after shutdown"));
            Err(code::DEINITIALIZED)
        }
    }
}

/// The state, for a call that needs a current context.
pub(crate) fn enter_context(call: &str) -> Result<(MutexGuard<'static, State>, usize), Code> {
    let mut state = enter(call)?;
    let context = CURRENT.get();
    if context == 0 || !state.contexts.contains_key(&context) {
        state.violate(format!("{call}: no live context is current"));
        return Err(code::INVALID_CONTEXT);
    }
    Ok((state, context))
}

/// The code of a result, as every exported function returns it.
pub(crate) fn code_of(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(code::SUCCESS)
}

impl State {
    fn new(settings: Settings) -> State {
        State {
            settings,
            phase: Phase::Fresh,
            blocks: BTreeMap::new(),
            live_bytes: 0,
            freed: HashSet::new(),
            contexts: HashMap::new(),
            streams: HashMap::new(),
            stream_handles: Vec::new(),
            events: HashMap::new(),
            pools: HashMap::new(),
            destroyed_pools: HashSet::new(),
            device_pools: HashMap::new(),
            modules: HashSet::new(),
            functions: HashMap::new(),
            without_host_version: BTreeSet::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            next_handle: 0x10_0000,
            refuse_allocs: 0,
            sticky_errors: false,
            event_answer: code::SUCCESS,
            peak_bytes: 0,
            violations: Vec::new(),
        }
    }

    /// A handle that was never given out. Handles are multiples of 16, so none is one of the
    /// special stream handles 0, 1 and 2.
    pub(crate) fn new_handle(&mut self) -> usize {
        self.next_handle += 16;
        self.next_handle
    }

    /// Remembers a violation. After shutdown it goes to the report at once, which was written
    /// already.
    pub(crate) fn violate(&mut self, what: String) {
        COUNTERS.violation.add();
        if self.phase == Phase::ShutDown
            && let Some(path) = &self.settings.report_path
            && let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(path)
        {
            let _ = writeln!(file, "violation {what}");
        }
        self.violations.push(what);
    }

    pub(crate) fn note_without_host_version(&mut self, name: String) {
        COUNTERS.launch_without_host_version.add();
        self.without_host_version.insert(name);
    }

    /// The handle of the pool that a context's device allocates from.
    pub(crate) fn current_pool(&mut self, context: usize) -> Result<usize, Code> {
        let Some(context) = self.contexts.get(&context) else {
            return Err(code::INVALID_CONTEXT);
        };
        let device = context.device;
        if !self.settings.pools {
            return Err(code::NOT_SUPPORTED);
        }
        Ok(self.pool_of_device(device))
    }

    /// As above, where the device is known.
    pub(crate) fn pool_of_device(&mut self, device: i32) -> usize {
        let default = default_pool_handle(device);
        self.pools.entry(default).or_default();
        self.device_pools.get(&device).copied().unwrap_or(default)
    }

    /// Bytes that pools hold without an allocation in them.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.pools.values().map(Pool::reserved_bytes).sum()
    }

    /// The stream behind a handle. The special handles stand for streams that always exist.
    pub(crate) fn check_stream(&mut self, call: &str, handle: usize) -> Result<(), Code> {
        if is_special(handle) || self.streams.contains_key(&handle) {
            return Ok(());
        }
        self.violate(format!("{call}: stream {handle:#x} does not exist (any more)"));
        Err(code::INVALID_HANDLE)
    }

    /// What the driver would say of itself in one text: counters, gauges, violations.
    pub(crate) fn render_report(&self) -> String {
        let mut text = String::new();
        for (name, value) in COUNTERS.all() {
            text.push_str(&format!("{name} {value}\n"));
        }
        text.push_str(&format!("live_blocks {}\n", self.blocks.len()));
        text.push_str(&format!("live_bytes {}\n", self.live_bytes));
        text.push_str(&format!("reserved_bytes {}\n", self.reserved_bytes()));
        text.push_str(&format!("peak_bytes {}\n", self.peak_bytes));
        for name in &self.without_host_version {
            text.push_str(&format!("no_host_version {name}\n"));
        }
        for violation in &self.violations {
            text.push_str(&format!("violation {violation}\n"));
        }
        text
    }

    /// Ends the driver: every later call is a violation.
    pub(crate) fn shut_down(&mut self) {
        if self.phase == Phase::ShutDown {
            return;
        }
        self.phase = Phase::ShutDown;
        if let Some(path) = &self.settings.report_path {
            // A report that cannot be written is seen by the test that waits for it.
            let _ = std::fs::write(path, self.render_report());
        }
    }
}

pub(crate) fn default_pool_handle(device: i32) -> usize {
    0x8000 + (device as usize) * 16
}

/// The handle of the calling thread's own stream.
pub(crate) const PER_THREAD: usize = 2;

/// Whether a handle is the null stream, the legacy stream or the per-thread stream.
pub(crate) fn is_special(handle: usize) -> bool {
    handle <= 2
}

extern "C" fn at_exit() {
    lock().shut_down();
}
