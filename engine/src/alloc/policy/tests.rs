use proptest::prelude::*;

use super::*;

#[test]
fn decode_enables_everything_else_drains_and_the_kill_switch_wins() {
    use Action::{DrainAndDisable, Enable, Leave};
    for (seq_len, enabled, killed, action) in [
        (1, false, false, Enable),
        (1, true, false, Leave),
        (0, true, false, DrainAndDisable),
        (0, false, false, Leave),
        (2, true, false, DrainAndDisable),
        (512, false, false, Leave),
        (usize::MAX, true, false, DrainAndDisable),
        (1, false, true, Leave),
        (1, true, true, DrainAndDisable),
        (7, true, true, DrainAndDisable),
        (7, false, true, Leave),
    ] {
        let got = alloc_cache_action(seq_len, enabled, killed);
        assert_eq!(got, action, "seq_len {seq_len} enabled {enabled} killed {killed}");
    }
}

#[test]
fn a_prefill_drains_unless_the_policy_says_otherwise() {
    use Action::{DrainAndDisable, Enable, Hold, Leave, ServePrefill};
    let modes = [Mode::Off, Mode::On, Mode::Prefill, Mode::Held, Mode::Killed, Mode::Closed];
    for (prefill, before_prefill, before_decode) in [
        (
            Prefill::Drain,
            [Leave, DrainAndDisable, Leave, Leave, Leave, Leave],
            [Enable, Leave, Enable, Enable, Leave, Leave],
        ),
        (
            Prefill::Hold,
            [Leave, Hold, Leave, Hold, Leave, Leave],
            [Enable, Leave, Enable, Enable, Leave, Leave],
        ),
        (
            Prefill::On,
            [ServePrefill, ServePrefill, Leave, Leave, Leave, Leave],
            [Enable, Leave, Enable, Enable, Leave, Leave],
        ),
    ] {
        assert_eq!(modes.map(|mode| action_before(prefill, 2048, mode)), before_prefill);
        assert_eq!(modes.map(|mode| action_before(prefill, 1, mode)), before_decode);
    }
}

#[test]
fn the_policy_for_prefill_is_read_by_value() {
    for (raw, value, warns) in [
        (None, Prefill::Drain, false),
        (Some("drain"), Prefill::Drain, false),
        (Some(" Hold\n"), Prefill::Hold, false),
        (Some("on"), Prefill::On, false),
        (Some("1"), Prefill::Drain, true),
        (Some(""), Prefill::Drain, true),
    ] {
        let reading = parse_prefill(raw.map(str::as_bytes));
        assert_eq!((reading.value, reading.warning.is_some()), (value, warns), "{raw:?}");
    }
}

#[test]
fn the_kill_switch_is_read_by_value() {
    use KillSwitch::{Killed, Policy};
    for (raw, value, warns) in [
        (None, Policy, false),
        (Some("0"), Killed, false),
        (Some("false"), Killed, false),
        (Some("no"), Killed, false),
        (Some("off"), Killed, false),
        (Some(" OFF\n"), Killed, false),
        (Some("False"), Killed, false),
        (Some("1"), Policy, false),
        (Some("true"), Policy, false),
        (Some("yes"), Policy, false),
        (Some("on"), Policy, false),
        (Some(""), Policy, true),
        (Some("00"), Policy, true),
        (Some("2"), Policy, true),
        (Some("disable"), Policy, true),
    ] {
        let reading = parse_kill_switch(raw.map(str::as_bytes));
        assert_eq!((reading.value, reading.warning.is_some()), (value, warns), "{raw:?}");
        assert_eq!(reading.raw.is_some(), raw.is_some(), "{raw:?}");
    }
}

#[test]
fn the_cap_is_unbounded_for_an_exact_zero_alone() {
    use CapRequest::{Bytes, Default, Unbounded};
    for (raw, value, warns) in [
        (None, Default, false),
        (Some("0"), Unbounded, false),
        (Some("1"), Bytes(1 << 20), false),
        (Some("512"), Bytes(512 << 20), false),
        (Some("064"), Bytes(64 << 20), false),
        (Some("17592186044415"), Bytes(17_592_186_044_415 << 20), false),
        (Some("17592186044416"), Default, true),
        (Some("99999999999999999999999"), Default, true),
        (Some("00"), Default, true),
        (Some(" 0"), Default, true),
        (Some("0 "), Default, true),
        (Some("+0"), Default, true),
        (Some("-0"), Default, true),
        (Some("-1"), Default, true),
        (Some("0.0"), Default, true),
        (Some("1.5"), Default, true),
        (Some("1e3"), Default, true),
        (Some("512M"), Default, true),
        (Some("0x10"), Default, true),
        (Some(""), Default, true),
        (Some("unbounded"), Default, true),
        (Some("off"), Default, true),
        (Some("٠"), Default, true),
    ] {
        let reading = parse_cap_mb(raw.map(str::as_bytes));
        assert_eq!((reading.value, reading.warning.is_some()), (value, warns), "{raw:?}");
    }
}

#[test]
fn statistics_are_off_unless_a_number_of_steps_is_given() {
    for (raw, value, warns) in [
        (None, None, false),
        (Some(""), None, false),
        (Some("0"), None, false),
        (Some("off"), None, false),
        (Some("No"), None, false),
        (Some("64"), Some(64), false),
        (Some(" 64 "), Some(64), false),
        (Some("1"), Some(1), false),
        (Some("-1"), None, true),
        (Some("often"), None, true),
        (Some("1.0"), None, true),
    ] {
        let reading = parse_stats_steps(raw.map(str::as_bytes));
        assert_eq!((reading.value, reading.warning.is_some()), (value, warns), "{raw:?}");
    }
}

#[test]
fn the_default_cap_is_bounded_by_free_memory_and_has_a_floor() {
    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    let bounded = |request, free| {
        let plan = plan_cap(request, free);
        (plan.cap, plan.source, plan.exceeds_free_memory)
    };
    for (request, free, expected) in [
        (CapRequest::Default, None, (Cap::Bounded(GIB), CapSource::Default, false)),
        (CapRequest::Default, Some(8 * GIB), (Cap::Bounded(GIB), CapSource::Default, false)),
        (CapRequest::Default, Some(100 * GIB), (Cap::Bounded(GIB), CapSource::Default, false)),
        (
            CapRequest::Default,
            Some(4 * GIB),
            (Cap::Bounded(512 * MIB), CapSource::ShareOfFreeMemory, false),
        ),
        (
            CapRequest::Default,
            Some(512 * MIB),
            (Cap::Bounded(64 * MIB), CapSource::ShareOfFreeMemory, false),
        ),
        (CapRequest::Default, Some(511 * MIB), (Cap::Bounded(64 * MIB), CapSource::Floor, false)),
        (CapRequest::Default, Some(0), (Cap::Bounded(64 * MIB), CapSource::Floor, true)),
        (
            CapRequest::Bytes(2 * GIB),
            Some(GIB),
            (Cap::Bounded(2 * GIB), CapSource::Environment, true),
        ),
        (CapRequest::Bytes(MIB), Some(GIB), (Cap::Bounded(MIB), CapSource::Environment, false)),
        (CapRequest::Unbounded, Some(0), (Cap::Unbounded, CapSource::Environment, false)),
    ] {
        assert_eq!(bounded(request, free), expected, "{request:?} with {free:?} free");
    }
}

#[test]
fn each_variable_warns_once_and_is_reported_raw_and_parsed() {
    let settings = EnvSettings::parse(|name| match name {
        ENV_KILL_SWITCH => Some(b"maybe".to_vec()),
        ENV_CAP_MB => Some(vec![0xff, b'1']),
        ENV_PREFILL => Some(b"Hold".to_vec()),
        ENV_STATS_STEPS => None,
        other => panic!("no such variable: {other}"),
    });
    assert_eq!(settings.warnings().count(), 2);
    let report = settings.to_report();
    assert_eq!(report[1].name, ENV_CAP_MB);
    assert_eq!(report[1].raw.as_deref(), Some("\\xff1"));
    assert_eq!(report[1].parsed.as_deref(), Some("bounded default"));
    assert_eq!(report[2].parsed.as_deref(), Some("hold"));
    assert_eq!(report[3].raw, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    /// Random bytes, with the digits and signs that come near a number made likely.
    #[test]
    fn random_values_never_give_an_unbounded_cache(
        raw in prop::collection::vec(
            prop_oneof![Just(b'0'), b'0'..=b'9', Just(b' '), Just(b'-'), any::<u8>()],
            0..6,
        )
    ) {
        let cap = parse_cap_mb(Some(&raw));
        prop_assert_eq!(cap.value == CapRequest::Unbounded, raw == b"0");
        if let CapRequest::Bytes(bytes) = cap.value {
            prop_assert!(raw.iter().all(u8::is_ascii_digit) && bytes > 0);
        } else if raw != b"0" {
            prop_assert!(cap.warning.is_some());
        }
        let killed = parse_kill_switch(Some(&raw)).value == KillSwitch::Killed;
        let word = String::from_utf8_lossy(raw.trim_ascii()).to_ascii_lowercase();
        prop_assert_eq!(killed, matches!(word.as_str(), "0" | "false" | "no" | "off"));
        prop_assert!(parse_stats_steps(Some(&raw)).value != Some(0));
    }
}
