//! Scenarios in child processes, and what the stand-in driver knows.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};

use candle_core::Device;
use engine::alloc::Config;
use engine::alloc::policy::KillSwitch;
use engine::cuda::{CudaAllocator, install, open_device};

/// Names the scenario that a child runs.
const CHILD: &str = "ARC_CUDA_SCENARIO";

/// What a child is held to at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// No violation, and nothing held by the driver.
    Clean,
    /// No violation; that much is held, which is not the cache's.
    Held { blocks: u64 },
    /// No violation; the scenario says itself what is held.
    NoViolation,
}

/// Runs `body` in a child process under the given environment and holds the child to what the
/// stand-in driver says of it. `name` is the path of the test that calls this.
pub(crate) fn scenario(name: &str, environment: &[(&str, &str)], expect: Expect, body: fn()) {
    if std::env::var(CHILD).as_deref() == Ok(name) {
        return body();
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("standin.txt");
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .env("ARC_STANDIN_REPORT", &report)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = show(&output);
    assert!(output.status.success(), "{name}: {}\n{text}", describe(output.status));
    assert!(text.contains("1 passed"), "{name} did not run:\n{text}");
    let report = std::fs::read_to_string(&report).unwrap_or_else(|error| {
        panic!("{name}: no report of the stand-in driver: {error}\n{text}")
    });
    StandInReport(report).check(expect);
}

fn show(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

fn describe(status: ExitStatus) -> String {
    status.to_string()
}

/// What the stand-in driver wrote at the end of a process.
pub(crate) struct StandInReport(pub(crate) String);

impl StandInReport {
    /// A counter or gauge.
    pub(crate) fn get(&self, name: &str) -> u64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no `{name}` in\n{}", self.0)).parse().unwrap()
    }

    pub(crate) fn check(&self, expect: Expect) {
        let violations = self.get("violation");
        assert_eq!(violations, 0, "{}", self.0);
        let blocks = match expect {
            Expect::Clean => 0,
            Expect::Held { blocks } => blocks,
            Expect::NoViolation => return,
        };
        assert_eq!(self.get("live_blocks"), blocks, "{}", self.0);
    }
}

fn driver_library() -> *mut c_void {
    // SAFETY: the name is a C string.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "no stand-in driver: run `cargo xtask cuda-check`");
    library
}

/// A function of the stand-in driver, past the hooks.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the library is open and the name a C string.
    let found = unsafe { libc::dlsym(driver_library(), name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not in libcuda.so.1: these tests are for the stand-in");
    found
}

/// A counter or gauge of the stand-in driver, now.
pub(crate) fn driver(name: &str) -> u64 {
    type Counter = unsafe extern "C" fn(*const c_char) -> i64;
    let name = CString::new(name).unwrap();
    // SAFETY: the stand-in has this function with this type, and the name is a C string.
    let value = unsafe {
        std::mem::transmute::<*mut c_void, Counter>(symbol(c"standin_counter"))(name.as_ptr())
    };
    u64::try_from(value).unwrap_or_else(|_| panic!("the stand-in driver counts no {name:?}"))
}

/// Memory allocations and frees that the driver has seen.
pub(crate) fn driver_calls() -> (u64, u64) {
    (driver("alloc_async") + driver("alloc_sync"), driver("free_async") + driver("free_sync"))
}

fn set<T>(name: &CStr, value: T) {
    // SAFETY: the stand-in's setters take one number of the size that is passed here.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(T)>(symbol(name))(value);
    }
}

/// Limits the device's memory.
pub(crate) fn set_capacity(bytes: u64) {
    set(c"standin_set_capacity", bytes);
}

/// Refuses the next allocations.
pub(crate) fn refuse_allocs(count: u64) {
    set(c"standin_refuse_allocs", count);
}

/// Lets a refusal fail the stream's next synchronisation too.
pub(crate) fn set_sticky_errors(on: bool) {
    set(c"standin_set_sticky_errors", c_int::from(on));
}

/// Lets the driver answer every question about an event with a code.
pub(crate) fn answer_event_queries(code: c_int) {
    set(c"standin_answer_event_queries", code);
}

/// Device 0 with the cache installed under it.
pub(crate) fn installed(config: Config) -> (Device, &'static CudaAllocator) {
    let device = open_device(0).unwrap();
    let allocator = install(&device, config).unwrap();
    (device, allocator)
}

/// As [`installed`], with the cache on.
pub(crate) fn cached(config: Config) -> (Device, &'static CudaAllocator) {
    let (device, allocator) = installed(config);
    allocator.cache().before_forward(1);
    (device, allocator)
}

/// The settings with the kill switch thrown.
pub(crate) fn killed() -> Config {
    Config { kill_switch: KillSwitch::Killed, ..Config::default() }
}

/// Holds the cache's count of driver calls to the driver's own, and everything else to its books.
pub(crate) fn settle(allocator: &CudaAllocator) {
    use engine::alloc::steps::Monitored as _;

    let snapshot = allocator.snapshot();
    let counters = snapshot.counters;
    assert_eq!((counters.driver_allocs(), counters.driver_frees()), driver_calls());
    for &counter in engine::alloc::stats::MUST_BE_ZERO {
        assert_eq!(counters[counter], 0, "{counter:?}");
    }
    if !allocator.passes_through() {
        allocator.cache().audit().unwrap();
        assert_eq!(snapshot.gauges.held_bytes, driver("live_bytes"));
    }
}

/// Where the workspace is.
pub(crate) fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
