//! Real children, played by the shell.

use super::*;
use crate::cell::capture::CaptureLimits;
use crate::cell::evidence::verdict::Said;

fn shell(script: &str) -> ChildSpec {
    let mut spec = ChildSpec::new("/bin/sh", "/");
    spec.args = vec!["-c".into(), script.into()];
    spec.grace = Duration::from_millis(200);
    spec
}

fn run(spec: &ChildSpec) -> ChildEnd {
    run_child(spec, Interrupt::install().unwrap()).unwrap()
}

/// Whether a process ends within a few seconds; one that has ended and waits for its parent has.
fn ends_soon(pid: &str) -> bool {
    let is_running = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
        state.is_some_and(|state| state != 'Z')
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while is_running() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    !is_running()
}

#[test]
fn exit_code_and_both_streams_are_seen() {
    let end = run(&shell("echo out; echo err >&2; exit 3"));
    assert_eq!(end.exit, ExitKind::Code(3));
    assert_eq!((end.stdout.text().as_str(), end.stderr.text().as_str()), ("out\n", "err\n"));
    assert_eq!((end.stopped, end.said), (None, Said::default()));
}

#[test]
fn a_signal_is_told_from_an_exit_code() {
    assert_eq!(run(&shell("kill -KILL $$")).exit, ExitKind::Signal(libc::SIGKILL));
    assert_eq!(run(&shell("exit 137")).exit, ExitKind::Code(137));
}

#[test]
fn an_allocator_failure_on_either_stream_is_found() {
    for stream in ["1", "2"] {
        let end = run(&shell(&format!("echo 'fatal: std::bad_alloc' >&{stream}; exit 1")));
        assert_eq!(end.said.cause.unwrap().line, "fatal: std::bad_alloc");
    }
}

#[test]
fn the_environment_is_changed_and_the_rest_inherited() {
    let mut spec = shell("echo \"$ARC_A,${HOME+home},${PATH+path}\"");
    spec.env = vec![("ARC_A".to_owned(), Some("1".to_owned())), ("HOME".to_owned(), None)];
    assert_eq!(run(&spec).stdout.text(), "1,,path\n");
}

#[test]
#[cfg(target_os = "linux")]
fn a_timeout_ends_the_whole_group_even_if_it_ignores_sigterm() {
    let mut spec = shell("trap '' TERM; (trap '' TERM; sleep 60) & echo $!; wait; sleep 60");
    spec.timeout = Some(Duration::from_millis(300));
    let end = run(&spec);
    assert_eq!(end.stopped, Some(StopReason::Timeout));
    assert_eq!(end.exit, ExitKind::Signal(libc::SIGKILL));
    assert!(ends_soon(end.stdout.text().trim()), "the grandchild is still there");
}

#[test]
fn a_child_that_listens_to_sigterm_may_end_by_itself() {
    let mut spec = shell("trap 'echo bye; exit 0' TERM; sleep 60 & wait");
    spec.timeout = Some(Duration::from_millis(200));
    spec.grace = Duration::from_secs(30);
    let end = run(&spec);
    assert_eq!((end.exit, end.stopped), (ExitKind::Code(0), Some(StopReason::Timeout)));
    assert_eq!(end.stdout.text(), "bye\n");
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_child_leaves_behind_is_ended_with_it() {
    let end = run(&shell("sleep 60 & echo $!; exit 0"));
    assert_eq!(end.exit, ExitKind::Code(0));
    assert!(ends_soon(end.stdout.text().trim()), "the grandchild is still there");
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_that_left_the_group_cannot_hold_the_harness() {
    // The escaped process keeps the pipe open; the harness stops listening and goes on.
    let end = run(&shell("setsid sleep 4 & exit 0"));
    assert_eq!(end.exit, ExitKind::Code(0));
    assert!(end.wall < Duration::from_secs(3), "{:?}", end.wall);
}

/// The leader waits for a worker, or the worker's own child: it is not stopped itself.
#[test]
#[cfg(target_os = "linux")]
fn a_process_of_the_group_that_is_stopped_is_seen() {
    let stop = "sh -c 'kill -STOP $$' & sleep 0.6; kill -CONT $!; wait";
    for script in [stop.to_owned(), format!("({stop}; true) & wait; true")] {
        assert!(!run(&shell(&script)).lost.stopped.is_zero(), "{script}");
    }
    // One that left the group is none of ours.
    let left = "setsid sh -c 'kill -STOP $$' & sleep 0.6; kill -KILL $!; wait";
    assert!(run(&shell(left)).lost.stopped.is_zero());
    assert!(run(&shell("sleep 0.3 & wait")).lost.stopped.is_zero());
}

#[test]
fn the_address_space_is_limited_and_core_files_are_off() {
    let mut spec = shell("ulimit -v; ulimit -c");
    spec.memory_limit_bytes = Some(512 << 20);
    assert_eq!(run(&spec).stdout.text(), "524288\n0\n");
}

#[test]
fn the_peak_of_memory_is_known() {
    let end = run(&shell("true"));
    assert!(end.rss_peak_bytes.is_some_and(|bytes| bytes > 100_000), "{:?}", end.rss_peak_bytes);
    if cfg!(target_os = "linux") {
        assert!(end.available_low_bytes.is_some_and(|bytes| bytes > 0));
    }
}

#[test]
fn output_beyond_the_limits_is_counted_and_dropped() {
    let mut spec = shell("head -c 3000000 /dev/zero | tr '\\0' 'x'; echo end");
    spec.capture = CaptureLimits { head_bytes: 1000, tail_bytes: 100 };
    let end = run(&spec);
    assert_eq!(end.stdout.total_bytes(), 3_000_004);
    assert_eq!(end.stdout.omitted_bytes(), 3_000_004 - 1100);
    assert!(end.stdout.text().ends_with("xend\n"));
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let spec = ChildSpec::new("/nonexistent/runner", "/");
    let error = run_child(&spec, Interrupt::install().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "cannot start `/nonexistent/runner`");
}
