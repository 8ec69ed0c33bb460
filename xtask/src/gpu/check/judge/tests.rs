//! Each rule, and that breaking it is seen.

use super::*;
use crate::gpu::check::fixture::{leg, numbers};
use crate::gpu::check::plan::Setting;

fn run(name: &str, setting: Setting) -> Run {
    run_with(name, setting, |_| {})
}

fn run_with(name: &str, setting: Setting, change: impl FnOnce(&mut LegNumbers)) -> Run {
    let mut numbers = numbers(setting);
    change(&mut numbers);
    (leg(name, setting), LegEnd::Measured(Box::new(numbers)))
}

fn fails(result: &CheckResult, because: &str) {
    assert_eq!(result.verdict, CheckVerdict::Fail, "{}", result.seen);
    assert!(result.seen.contains(because), "{}", result.seen);
}

#[test]
fn a_sound_decode_passes_with_its_figures() {
    let result =
        judge_decode("decode/m", &[run("on-1", Setting::On), run("killed-1", Setting::Killed)]);
    assert_eq!(result.verdict, CheckVerdict::Pass, "{}", result.seen);
    assert_eq!(
        result.seen,
        "per step: on 1.0 allocs + 0.0 frees in 0.00 ms, killed 100.0 allocs + 100.0 frees in 0.10 \
         ms; tok/s: on 500.0, killed 500.0 (+0.0 %); same tokens in 2 runs"
    );
    assert_eq!(result.figures["on"]["driver_allocs_per_step"], 1.0);
    assert_eq!(result.legs, ["on-1", "killed-1"]);
}

#[test]
fn tokens_that_part_fail() {
    let other = run_with("killed-1", Setting::Killed, |run| run.report.output.token_ids[3] = 99);
    let result = judge_decode("decode/m", &[run("on-1", Setting::On), other]);
    fails(&result, "on-1 and killed-1 differ at token 3: 10 and 99");
    let none = run_with("killed-1", Setting::Killed, |run| run.report.output.token_ids.clear());
    fails(&judge_decode("d", &[run("on-1", Setting::On), none]), "killed-1 reports no tokens");
}

#[test]
fn counters_that_are_missing_fail() {
    let without = run_with("on-1", Setting::On, |run| run.report.allocator = None);
    fails(&judge_start("s", std::slice::from_ref(&without)), "no `allocator` section");
    fails(&judge_memory("m", std::slice::from_ref(&without)), "no `allocator` section");
    let result = judge_decode("d", &[without, run("killed-1", Setting::Killed)]);
    fails(&result, "on-1: the report has no `allocator` section");
    let without = run_with("on-1", Setting::On, |run| {
        run.report.allocator.as_mut().unwrap().decode_steps.clear();
    });
    let result = judge_decode("d", &[without, run("killed-1", Setting::Killed)]);
    fails(&result, "on: the report counts no driver calls");
}

#[test]
fn a_setting_that_is_not_in_force_fails() {
    let state = |name: &str| {
        let name = name.to_owned();
        move |run: &mut LegNumbers| {
            run.report.settings.allocator.as_mut().unwrap().state = name;
        }
    };
    let result = judge_decode(
        "d",
        &[run("on-1", Setting::On), run_with("killed-1", Setting::Killed, state("policy"))],
    );
    fails(&result, "killed-1: the allocator is `policy`, but `killed` was requested");
    let fallback = run_with("on-1", Setting::On, |run| {
        let settings = run.report.settings.allocator.as_mut().unwrap();
        settings.driver = Some("cuda-pool".to_owned());
        settings.reason = Some("the hook is shadowed".to_owned());
    });
    fails(
        &judge_decode("d", &[fallback]),
        "the fallback `cuda-pool` is in force instead of the cache: the hook is shadowed",
    );
    let driver = |name: Option<&str>| {
        let name = name.map(str::to_owned);
        move |run: &mut LegNumbers| {
            run.report.settings.allocator.as_mut().unwrap().driver = name;
        }
    };
    let other = run_with("start", Setting::On, driver(Some("none of yours")));
    fails(&judge_start("s", &[other]), "start: the driver is `none of yours`, not `cuda`");
    fails(&judge_start("s", &[run_with("start", Setting::On, driver(None))]), "is `none`, not");
    // Without the cache the driver is the same one, or the pair compares two things.
    let other = run_with("killed-1", Setting::Killed, driver(Some("mmap")));
    fails(&judge_decode("d", &[run("on-1", Setting::On), other]), "killed-1: the driver is `mmap`");
    let fallback = run_with("killed-1", Setting::Killed, driver(Some("cuda-pool")));
    fails(&judge_decode("d", &[fallback]), "the fallback `cuda-pool` is in force");
}

#[test]
fn a_cache_that_saves_nothing_or_a_hook_that_sees_nothing_fails() {
    let with_allocs = |setting, calls: u64| {
        run_with("x", setting, |run| {
            for step in &mut run.report.allocator.as_mut().unwrap().decode_steps {
                step.driver_allocs = calls;
            }
        })
    };
    let result = judge_decode("d", &[with_allocs(Setting::On, 50), run("k", Setting::Killed)]);
    fails(&result, "on makes 50.0 driver allocations a step, killed 100.0");
    let result = judge_decode("d", &[run("on", Setting::On), with_allocs(Setting::Killed, 0)]);
    fails(&result, "the hook does not see candle's");
}

#[test]
fn sums_that_do_not_add_up_and_counters_that_must_be_zero_fail() {
    let torn = run_with("on-1", Setting::On, |run| {
        run.report.allocator.as_mut().unwrap().totals.hits = 5;
    });
    fails(&judge_start("s", &[torn]), "10 requests, but hits, misses and bypasses add up to 6");
    let nonzero = run_with("on-1", Setting::On, |run| {
        let totals = &mut run.report.allocator.as_mut().unwrap().totals;
        totals.must_be_zero.insert("capture_frees".to_owned(), 3);
    });
    fails(&judge_start("s", &[nonzero]), "`capture_frees` must be 0 but is 3");
    let one_less = run_with("on-1", Setting::On, |run| {
        let totals = &mut run.report.allocator.as_mut().unwrap().totals;
        totals.must_be_zero.remove("cap_overshoots");
    });
    fails(&judge_start("s", &[one_less]), "`cap_overshoots` must be 0 but is not reported");
    let none = run_with("on-1", Setting::On, |run| {
        run.report.allocator.as_mut().unwrap().totals.must_be_zero.clear();
    });
    fails(&judge_start("s", &[none]), "must be 0 but is not reported");
    // A counter that this program does not know is held to its word too.
    let newer = run_with("on-1", Setting::On, |run| {
        let totals = &mut run.report.allocator.as_mut().unwrap().totals;
        totals.must_be_zero.insert("later_troubles".to_owned(), 1);
    });
    fails(&judge_start("s", &[newer]), "`later_troubles` must be 0 but is 1");
}

#[test]
fn runs_of_the_same_length_must_yield_as_many_tokens() {
    let short =
        run_with("killed-1", Setting::Killed, |run| run.report.output.token_ids.truncate(1));
    let result = judge_decode("d", &[run("on-1", Setting::On), short]);
    fails(&result, "on-1 generated 5 tokens, killed-1 only 1");
    let short = run_with("on", Setting::On, |run| run.report.output.token_ids.truncate(1));
    let result = judge_memory("m", &[short, run("killed", Setting::Killed)]);
    fails(&result, "killed generated 5 tokens, on only 1");
    // What was asked for another length is compared as far as the shorter one goes.
    let (mut longer, end) = run("cap", Setting::CapMib(1));
    longer.max_tokens = 9;
    let LegEnd::Measured(mut longer_numbers) = end else { unreachable!() };
    longer_numbers.report.output.token_ids.extend([12, 13, 14, 15]);
    let on = (leg("on-1", Setting::On), numbers(Setting::On));
    let runs = [(longer, LegEnd::Measured(longer_numbers))];
    let result = judge_cap("c", &runs, Some((&on.0, &on.1)));
    assert_eq!(result.verdict, CheckVerdict::Pass, "{}", result.seen);
}

#[test]
fn a_run_on_another_device_fails() {
    let cpu = run_with("start", Setting::On, |run| run.report.device.backend = Some("cpu".into()));
    fails(&judge_start("s", &[cpu]), "it ran on cpu");
    assert_eq!(judge_start("s", &[run("start", Setting::On)]).verdict, CheckVerdict::Pass);
}

#[test]
fn a_failed_run_fails_and_a_skipped_one_leaves_the_rest() {
    let failed = (leg("killed-1", Setting::Killed), LegEnd::Failed("SKIP:oom".to_owned()));
    let result = judge_decode("d", &[run("on-1", Setting::On), failed]);
    fails(&result, "killed-1: SKIP:oom");
    let skipped = |name, setting| (leg(name, setting), LegEnd::Skipped("3 s are left".to_owned()));
    let runs =
        [run("on-1", Setting::On), run("killed-1", Setting::Killed), skipped("on-2", Setting::On)];
    let result = judge_decode("d", &runs);
    assert_eq!(result.verdict, CheckVerdict::Pass);
    assert!(result.seen.ends_with("; skipped on-2: 3 s are left"), "{}", result.seen);
    let one = judge_decode("d", &[run("on-1", Setting::On), skipped("killed-1", Setting::Killed)]);
    assert_eq!(one.verdict, CheckVerdict::NotPossible);
    let none = judge_decode("d", &[skipped("on-1", Setting::On)]);
    assert_eq!((none.verdict, none.legs.len()), (CheckVerdict::NotPossible, 0));
}

#[test]
fn the_memory_curve_is_held_to_the_cap() {
    let runs = [
        run("on", Setting::On),
        run("unbounded", Setting::Unbounded),
        run("killed", Setting::Killed),
    ];
    let result = judge_memory("memory/m", &runs);
    assert_eq!(result.verdict, CheckVerdict::Pass, "{}", result.seen);
    assert!(result.seen.contains("on flat (+0.000 MiB a token, 9 MiB held at the end)"));
    assert!(result.seen.contains("unbounded growing (+4.000 MiB a token"), "{}", result.seen);
    // Without a cache nobody adds up; what the device has left tells instead.
    let killed = run_with("killed", Setting::Killed, |run| {
        for window in &mut run.report.memory.windows {
            (window.held_end_bytes, window.rss_end_bytes) = (None, Some(7));
        }
    });
    let told = judge_memory("m", &[run("on", Setting::On), killed.clone()]);
    assert!(told.seen.contains("killed without a curve"), "{}", told.seen);
    let (leg, LegEnd::Measured(mut numbers)) = killed else { unreachable!() };
    numbers.report.device.total_memory_bytes = Some(8 << 30);
    let free: Vec<Value> = (0..8)
        .map(|index| json!({"device_free_end_bytes": (7_u64 << 30) - (index << 20)}))
        .collect();
    numbers.json = json!({"memory": {"windows": free}});
    let told = judge_memory("m", &[run("on", Setting::On), (leg, LegEnd::Measured(numbers))]);
    assert!(
        told.seen.contains("killed flat (+0.016 MiB a token, 1031 MiB of the device in use at")
    );
    let over = run_with("on", Setting::On, |run| {
        run.report.memory.idle_peak_bytes = Some((1 << 30) + 1);
    });
    fails(&judge_memory("m", &[over]), "above the cap of 1073741824");
    let blind = run_with("on", Setting::On, |run| run.report.memory.idle_peak_bytes = None);
    fails(&judge_memory("m", &[blind]), "no peak of idle bytes");
}

#[test]
fn one_run_alone_has_not_the_same_tokens_as_another() {
    let result = judge_memory("m", &[run("on", Setting::On)]);
    assert_eq!(result.verdict, CheckVerdict::Pass, "{}", result.seen);
    assert!(!result.seen.contains("same tokens"), "{}", result.seen);
    let result = judge_memory("m", &[run("on", Setting::On), run("killed", Setting::Killed)]);
    assert!(result.seen.ends_with("; same tokens"), "{}", result.seen);
}

#[test]
fn a_run_without_a_cap_must_have_none() {
    let capped = run_with("unbounded", Setting::Unbounded, |run| {
        run.report.settings.allocator.as_mut().unwrap().cap_bytes = Some(1 << 30);
    });
    let result = judge_memory("m", &[run("on", Setting::On), capped]);
    fails(&result, "unbounded: a cap of 1073741824 bytes is in force, but none was requested");
}

#[test]
fn memory_that_grows_beyond_the_cap_fails() {
    let growing = |mib_per_window: u64| {
        run_with("on", Setting::On, |run| {
            for (index, window) in run.report.memory.windows.iter_mut().enumerate() {
                window.held_end_bytes = Some((9 + index as u64 * mib_per_window) << 20);
            }
        })
    };
    // Growing up to what the cap allows is filling: the live memory of the first window and the cap.
    let result = judge_memory("m", &[growing(1024 / 7)]);
    assert_eq!(result.verdict, CheckVerdict::Pass, "{}", result.seen);
    assert!(result.seen.contains("on growing"), "{}", result.seen);
    let result = judge_memory("m", &[growing(256), run("killed", Setting::Killed)]);
    fails(&result, "on: held memory grew from 9 to 1801 MiB, by more than the cap of 1024 MiB");
    assert!(result.figures["on"]["held"]["slope_mib_per_token"].is_number());
    // Where nothing is known of held memory, nothing shows that it was kept.
    let blind = run_with("on", Setting::On, |run| {
        run.report.memory.windows[7].held_end_bytes = None;
    });
    fails(
        &judge_memory("m", &[blind]),
        "on: the report does not say for every window what is held",
    );
    let short = run_with("on", Setting::On, |run| run.report.memory.windows.truncate(2));
    let result = judge_memory("m", &[short]);
    assert_eq!(result.verdict, CheckVerdict::NotPossible, "{}", result.seen);
    assert!(result.seen.contains("2 windows are too few for a curve"), "{}", result.seen);
}

#[test]
fn a_tight_cap_must_be_in_force_and_kept() {
    let on = (leg("on-1", Setting::On), numbers(Setting::On));
    let other = Some((&on.0, &on.1));
    let result = judge_cap("cap/m", &[run("cap", Setting::CapMib(1))], other);
    assert_eq!(result.verdict, CheckVerdict::Pass, "{}", result.seen);
    assert!(result.seen.starts_with("at most 1.00 MiB idle under a cap of 1 MiB; 1.0 allocs"));
    let far = run_with("cap", Setting::CapMib(1), |run| {
        run.report.memory.idle_peak_bytes = Some(1000);
    });
    assert!(judge_cap("c", &[far], other).seen.contains("a cap of 1 MiB, which was never close;"));
    let loose = run_with("cap", Setting::CapMib(1), |run| {
        run.report.settings.allocator.as_mut().unwrap().cap_bytes = Some(1 << 30);
    });
    fails(&judge_cap("c", &[loose], other), "a cap of 1 MiB was requested");
    let over = run_with("cap", Setting::CapMib(1), |run| {
        run.report.memory.idle_peak_bytes = Some(3 << 20);
    });
    fails(&judge_cap("c", &[over], other), "above the cap");
    let alone = judge_cap("c", &[run("cap", Setting::CapMib(1))], None);
    assert_eq!(alone.verdict, CheckVerdict::NotPossible);
}

#[test]
fn a_rescue_must_have_happened_to_count() {
    let free = (leg("on-1", Setting::On), numbers(Setting::On));
    let rescued = |retries: u64, rescues: u64| {
        run_with("oom-rescue", Setting::On, |run| {
            run.json = json!({"allocator": {"totals": {
                "oom_retries": retries, "oom_rescues": rescues}}});
        })
    };
    let judge = |run: Run| judge_oom_rescue("o", &[run], Some((&free.0, &free.1)));
    assert_eq!(judge(rescued(2, 2)).verdict, CheckVerdict::Pass);
    assert_eq!(judge(rescued(0, 0)).verdict, CheckVerdict::NotPossible);
    fails(&judge(rescued(2, 0)), "none was rescued");
    fails(&judge(run("oom-rescue", Setting::On)), "no `oom_retries`");
}
