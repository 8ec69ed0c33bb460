use super::*;
use crate::cell::executor::scripted::{Ending, ScriptedExecutor};

fn pool(name: &str, free_gib: u64) -> Pool {
    Pool { name: name.to_owned(), total_bytes: 100 << 30, free_bytes: free_gib << 30 }
}

fn look(state: DriverState, free_gib: u64) -> Look {
    Look {
        driver: DriverLook::Answers(state),
        pools: vec![pool(SYSTEM_MEMORY, 50), pool("GPU 0's memory", free_gib)],
        kernel: Some(KernelLook { last: 7, lines: vec![(7, "NVRM: loading".to_owned())] }),
        ..Look::default()
    }
}

fn healthy() -> Look {
    look(DriverState { version: Some("570.86.15".to_owned()), ..DriverState::default() }, 90)
}

#[test]
fn a_machine_is_healthy_until_something_is_wrong() {
    let before = healthy();
    assert_eq!(judge(None, &before, Watched::Gpus), [""; 0]);
    assert_eq!(judge(Some(&before), &before, Watched::Gpus), [""; 0]);
    let with = |change: &dyn Fn(&mut Look)| {
        let mut now = healthy();
        change(&mut now);
        judge(Some(&before), &now, Watched::Gpus)
    };
    let state = |now: &mut Look, state: DriverState| now.driver = DriverLook::Answers(state);
    assert_eq!(with(&|now| now.driver = DriverLook::Silent), ["it does not answer"]);
    assert_eq!(with(&|now| now.driver = DriverLook::Absent), ["it is gone"]);
    let others = BTreeMap::from([(4711, "python3".to_owned()), (4712, String::new())]);
    assert_eq!(
        with(&|now| state(
            now,
            DriverState { processes: others.clone(), ..DriverState::default() }
        )),
        [
            "process 4711 (python3) computes on the GPU",
            "process 4712 (another user's) computes on the GPU"
        ]
    );
    assert_eq!(
        with(&|now| now.driver = DriverLook::Broken("it is lost".to_owned())),
        ["it fails: it is lost"]
    );
    assert_eq!(
        with(&|now| state(now, DriverState { throttled: true, ..DriverState::default() })),
        ["heat or power lowers the GPU's clocks"]
    );
    assert_eq!(with(&|now| now.pools[1] = pool("GPU 0's memory", 88)), [""; 0], "two percent");
    assert_eq!(
        with(&|now| now.pools[1] = pool("GPU 0's memory", 87)),
        ["87.0 GiB of GPU 0's memory are free, 90.0 GiB were before"]
    );
    let lines = |count: u64| {
        let lines = (7..=7 + count).map(|number| (number, format!("NVRM: Xid {number}")));
        Some(KernelLook { last: 7 + count, lines: lines.collect() })
    };
    assert_eq!(with(&|now| now.kernel = lines(1)), ["the kernel logged `NVRM: Xid 8`"]);
    assert_eq!(
        with(&|now| now.kernel = lines(4)),
        ["the kernel logged `NVRM: Xid 10`, `NVRM: Xid 11` (and 2 before)"]
    );
    assert_eq!(with(&|now| now.kernel = None), [""; 0], "not readable is not a fault");
}

#[test]
fn what_belongs_to_the_machine_is_no_fault_if_it_was_there_before() {
    let named = |pids: &[u32]| pids.iter().map(|&pid| (pid, "firefox".to_owned())).collect();
    let desktop = |standing: &[u32]| {
        let processes = named(&[7]);
        look(DriverState { processes, standing: named(standing), ..DriverState::default() }, 90)
    };
    let foreign = ["process 7 (firefox) computes on the GPU"];
    let now = desktop(&[7]);
    assert_eq!(judge(None, &now, Watched::Gpus), [""; 0]);
    assert_eq!(judge(Some(&now), &now, Watched::Gpus), [""; 0]);
    assert_eq!(judge(Some(&healthy()), &now, Watched::Gpus), foreign, "it came since");
    assert_eq!(judge(None, &desktop(&[]), Watched::Gpus), foreign);
    assert_eq!(now.describe(), ["on the GPU from the start, and no fault: 7 (firefox)"]);
}

#[test]
fn a_log_that_cannot_be_read_is_said_where_there_is_a_gpu() {
    assert_eq!(healthy().describe(), [""; 0]);
    assert_eq!(Look::default().describe(), [""; 0]);
    for blind in [Look { kernel: None, ..healthy() }, Look { amdgpu: true, ..Look::default() }] {
        let notes = blind.describe();
        assert!(matches!(&notes[..], [note] if note.starts_with("the kernel's log")), "{notes:?}");
    }
}

#[test]
fn a_run_goes_on_with_the_memory_that_the_gpu_had_until_the_machine_is_started_anew() {
    let before = healthy();
    let mut now = healthy();
    now.pools = vec![pool(SYSTEM_MEMORY, 10), pool("GPU 0's memory", 50)];
    now.kernel = Some(KernelLook { last: 8, lines: vec![(8, "NVRM: Xid 31".to_owned())] });
    let judged = |another| judge(before.for_resumption(another).as_ref(), &now, Watched::Gpus);
    assert_eq!(judged(false), ["50.0 GiB of GPU 0's memory are free, 90.0 GiB were before"]);
    assert_eq!(judged(true), [""; 0]);
    assert_eq!(Look::default().for_resumption(false), None);
}

#[test]
fn where_the_processor_measures_the_systems_memory_alone_counts() {
    let mut now = healthy();
    now.driver = DriverLook::Silent;
    now.pools = vec![pool(SYSTEM_MEMORY, 48)];
    assert_eq!(judge(None, &now, Watched::System), [""; 0]);
    assert_eq!(judge(Some(&healthy()), &now, Watched::System), [""; 0]);
    now.pools = vec![pool(SYSTEM_MEMORY, 47)];
    assert_eq!(
        judge(Some(&healthy()), &now, Watched::System),
        ["47.0 GiB of memory are free, 50.0 GiB were before"]
    );
}

#[test]
fn the_systems_memory_counts_where_the_gpu_has_none_of_its_own() {
    let mut before = healthy();
    let mut now = before.clone();
    now.pools[0] = pool(SYSTEM_MEMORY, 40);
    assert_eq!(judge(Some(&before), &now, Watched::Gpus), [""; 0]);
    for look in [&mut before, &mut now] {
        let shares = DriverState { shares_memory: true, ..DriverState::default() };
        look.driver = DriverLook::Answers(shares);
    }
    assert_eq!(
        judge(Some(&before), &now, Watched::Gpus),
        ["40.0 GiB of memory are free, 50.0 GiB were before"]
    );
}

#[test]
fn without_a_gpu_nothing_is_wrong_but_memory_can_be_compared() {
    let look = |free_gib| Look { pools: vec![pool(SYSTEM_MEMORY, free_gib)], ..Look::default() };
    assert!(!look(50).has_gpu() && healthy().has_gpu());
    assert_eq!(judge(Some(&look(50)), &look(10), Watched::Gpus), [""; 0]);
    assert_eq!(judge(Some(&look(50)), &look(48), Watched::All), [""; 0]);
    assert_eq!(
        judge(Some(&look(50)), &look(47), Watched::All),
        ["47.0 GiB of memory are free, 50.0 GiB were before"]
    );
    assert_eq!(
        find_missing(&healthy(), &look(50), true),
        ["GPU 0's memory cannot be read any more"]
    );
}

#[test]
fn a_reboot_another_driver_and_the_kernels_lines_are_changes() {
    let before = healthy();
    assert_eq!(describe_change(&before, &before, false), [""; 0]);
    let mut now = before.clone();
    now.driver = DriverLook::Answers(DriverState {
        version: Some("580.1".to_owned()),
        ..DriverState::default()
    });
    now.kernel = Some(KernelLook { last: 9, lines: vec![(9, "NVRM: GPU reset".to_owned())] });
    assert_eq!(
        describe_change(&before, &now, false),
        ["the driver was 570.86.15 and is 580.1", "the kernel logged since: NVRM: GPU reset"]
    );
    assert_eq!(
        describe_change(&before, &now, true),
        [
            "the machine was started anew since the last session",
            "the driver was 570.86.15 and is 580.1"
        ]
    );
}

/// An executor that never starts anything.
fn executor(looks: Vec<Look>) -> ScriptedExecutor<'static> {
    let mut executor = ScriptedExecutor::new(|_| Ok(Ending::measured(1.0)));
    executor.looks = looks;
    executor
}

#[test]
fn waiting_ends_with_health_with_patience_or_with_an_interrupt() {
    let (before, mut busy) = (healthy(), healthy());
    busy.pools[1] = pool("GPU 0's memory", 10);
    let mut said = Vec::new();
    let mut late = executor(vec![busy.clone(), busy.clone(), before.clone()]);
    let wait = |executor: &mut ScriptedExecutor<'_>, patience_s: u64, said: &mut Vec<String>| {
        let patience = Duration::from_secs(patience_s);
        await_health(executor, Some(&before), Watched::Gpus, patience, |text| {
            said.push(text.to_owned())
        })
    };
    assert_eq!(wait(&mut late, 30, &mut said), Waited::Healthy(before.clone()));
    assert_eq!(late.pauses, [LOOK_EVERY; 2]);
    let sick = "10.0 GiB of GPU 0's memory are free, 90.0 GiB were before";
    assert_eq!(said, [format!("not healthy yet: {sick}; waiting up to 30 s")]);

    let mut never = executor(vec![busy.clone()]);
    assert_eq!(wait(&mut never, 0, &mut said), Waited::Sick(sick.to_owned()));
    assert_eq!(never.pauses, [LOOK_EVERY; 3], "a few seconds at least");

    let mut logged = before.clone();
    logged.kernel = Some(KernelLook { last: 8, lines: vec![(8, "NVRM: Xid 79".to_owned())] });
    let mut complained = executor(vec![logged]);
    let sick = Waited::Sick("the kernel logged `NVRM: Xid 79`".to_owned());
    assert_eq!(wait(&mut complained, 60, &mut said), sick);
    assert_eq!(complained.pauses, [LOOK_EVERY; 3], "no log takes a line back");

    let silent = Look { driver: DriverLook::Silent, ..Look::default() };
    let mut wedged = executor(vec![silent]);
    assert_eq!(wait(&mut wedged, 60, &mut said), Waited::Sick("it does not answer".to_owned()));
    assert_eq!((wedged.looked, wedged.pauses.len()), (2, 1), "whoever asks is left behind");
    assert_eq!(wedged.pauses, [Duration::from_secs(60)]);

    let mut interrupted = executor(vec![busy]);
    interrupted.is_interrupted = true;
    assert_eq!(wait(&mut interrupted, 30, &mut said), Waited::Interrupted);
}
