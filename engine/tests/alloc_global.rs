//! The host allocator as this program's global allocator.
//!
//! It is set up once per process, so each scenario runs in a process of its own: a test starts this
//! binary again for one scenario.

#[path = "alloc_global/scenario.rs"]
mod scenario;

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};

use engine::alloc::global::HostAllocator;

#[global_allocator]
static ALLOCATOR: HostAllocator = HostAllocator::new();

const SCENARIO: &str = "ARC_TEST_ALLOC_SCENARIO";

fn start(scenario: &str) -> Output {
    // AddressSanitizer's own allocator ends the program where others say that no memory is left;
    // with this it does as they do. Nothing else reads the variable.
    let mut sanitizer = std::env::var("ASAN_OPTIONS").unwrap_or_default();
    sanitizer.push_str(":allocator_may_return_null=1");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "entry", "--test-threads=1", "--nocapture"])
        .env(SCENARIO, scenario)
        .env("ASAN_OPTIONS", sanitizer)
        .output()
        .unwrap()
}

fn run_apart(scenario: &str) {
    let output = start(scenario);
    assert!(
        output.status.success(),
        "{scenario}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

#[test]
fn entry() {
    // Other tests of this process allocate too, so that a scenario's counts hold in a process of
    // its own only.
    match std::env::var(SCENARIO) {
        Ok(name) => scenario::run(&name, &ALLOCATOR),
        Err(_) => run_apart("steady-system"),
    }
}

#[test]
fn a_request_beyond_memory_ends_the_program_with_its_size() {
    let output = start("exhaust");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", output.status);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("memory allocation of 1073741824 bytes failed"), "{errors}");
}

macro_rules! scenarios {
    ($($test:ident => $name:literal,)*) => {
        $(#[test] fn $test() { run_apart($name); })*
    };
}

scenarios! {
    steady_work_over_the_system_allocator_hits => "steady-system",
    steady_work_over_mmap_hits => "steady-mmap",
    the_kill_switch_over_the_system_allocator_passes_through => "killed-system",
    the_kill_switch_over_mmap_calls_the_driver_each_time => "killed-mmap",
    blocks_from_before_the_installation_are_freed_where_they_came_from => "before",
    contents_survive_realloc_and_zeroed_memory_is_zero => "contents",
    alignments_over_a_page_are_kept => "aligned",
    threads_exchange_blocks_while_the_policy_turns => "threads",
    a_forked_child_goes_on_without_the_cache => "fork",
    the_caches_own_memory_never_comes_from_the_cache => "metadata",
    a_limit_on_memory_is_an_error_and_idle_blocks_are_given_up_for_it => "limit",
}
