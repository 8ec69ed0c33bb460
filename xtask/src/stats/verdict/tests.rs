//! The words by hand.

use super::*;

const SEEDED: Bootstrap = Bootstrap { seed: 1, stream: 0, resamples: 500 };
const ONE_PERCENT: Margin = Margin { relative: 0.01, absolute: None };

fn effect(pairs: &[(f64, f64)]) -> Effect {
    paired_effect(pairs, SEEDED).unwrap()
}

/// An effect with a given interval, centred in it.
fn at(low: f64, high: f64) -> Effect {
    Effect {
        scale: Scale::LogRatio,
        center: Center { estimate: f64::midpoint(low, high), interval: Interval { low, high } },
        deviation: Some(0.02),
        blocks: 8,
    }
}

fn word(effect: &Effect, floor: f64, better: Better) -> Verdict {
    let same = margin_interval(ONE_PERCENT, effect.scale, &[]);
    judge(effect, floor, same, better).verdict
}

#[test]
fn pairs_give_log_ratios_by_hand() {
    let doubled = effect(&[(1.0, 2.0), (3.0, 6.0), (0.5, 1.0)]);
    assert_eq!(doubled.scale, Scale::LogRatio);
    assert_eq!(doubled.center.estimate, 2.0_f64.ln());
    assert_eq!(relative_effect(doubled.center.estimate, doubled.scale), Some(1.0));
    assert_eq!(doubled.deviation, Some(0.0));
}

#[test]
fn a_zero_makes_it_a_difference() {
    let counts = effect(&[(0.0, 10_115.0), (0.0, 10_115.0), (0.0, 10_115.0)]);
    assert_eq!(counts.scale, Scale::Difference);
    assert_eq!(counts.center.interval, Interval { low: 10_115.0, high: 10_115.0 });
    assert_eq!(word(&counts, 0.0, Better::Lower), Verdict::Slower);
    assert_eq!(relative_effect(10_115.0, counts.scale), None);
}

#[test]
fn no_pair_and_no_number_give_no_effect() {
    assert_eq!(paired_effect(&[], SEEDED), None);
    assert_eq!(paired_effect(&[(1.0, f64::NAN)], SEEDED), None);
    assert_eq!(paired_effect(&[(f64::INFINITY, 1.0)], SEEDED), None);
}

#[test]
fn an_effect_must_clear_zero_and_the_noise_floor() {
    assert_eq!(word(&at(0.02, 0.06), 0.01, Better::Higher), Verdict::Faster);
    assert_eq!(word(&at(0.02, 0.06), 0.01, Better::Lower), Verdict::Slower);
    assert_eq!(word(&at(-0.06, -0.02), 0.01, Better::Higher), Verdict::Slower);
    assert_eq!(word(&at(-0.06, -0.02), 0.01, Better::Lower), Verdict::Faster);
    // Beyond zero, but the base differs from itself by as much.
    assert_eq!(word(&at(0.02, 0.06), 0.02, Better::Higher), Verdict::Unresolved);
    assert_eq!(word(&at(-0.01, 0.06), 0.0, Better::Higher), Verdict::Unresolved);
}

#[test]
fn equivalent_means_within_the_margin_on_both_sides() {
    assert_eq!(word(&at(-0.009, 0.0099), 0.002, Better::Higher), Verdict::Equivalent);
    assert_eq!(word(&at(-0.009, 0.0101), 0.002, Better::Higher), Verdict::Unresolved);
    // e^0.00995 − 1 is just below one percent, e^−0.01005 just above minus one percent.
    assert_eq!(word(&at(-0.01005, 0.00995), 0.0, Better::Higher), Verdict::Equivalent);
    assert_eq!(word(&at(-0.01006, 0.00995), 0.0, Better::Higher), Verdict::Unresolved);
}

#[test]
fn a_real_difference_below_the_margin_is_named_as_such() {
    let small = at(0.002, 0.004);
    let judged =
        judge(&small, 0.001, margin_interval(ONE_PERCENT, Scale::LogRatio, &[]), Better::Higher);
    assert_eq!((judged.verdict, judged.within_margin), (Verdict::Faster, true));
}

#[test]
fn unresolved_says_what_could_have_been_seen_and_what_it_takes() {
    let judged = judge(
        &at(-0.03, 0.05),
        0.01,
        margin_interval(ONE_PERCENT, Scale::LogRatio, &[]),
        Better::Higher,
    );
    assert_eq!(judged.verdict, Verdict::Unresolved);
    assert_eq!(judged.detectable, Some(detectable_effect(0.02, 8) + 0.01));
    assert_eq!(judged.blocks_needed, blocks_needed(0.02, 0.01_f64.ln_1p()));
    assert!(judged.blocks_needed.unwrap() > 8);
}

#[test]
fn one_block_is_unresolved_whatever_it_shows() {
    let judged = judge(
        &effect(&[(10.0, 30.0)]),
        0.0,
        margin_interval(ONE_PERCENT, Scale::LogRatio, &[10.0]),
        Better::Higher,
    );
    assert_eq!(judged.verdict, Verdict::Unresolved);
    assert_eq!((judged.detectable, judged.blocks_needed), (None, None));
}

#[test]
fn equal_values_without_variance_are_equivalent() {
    for value in [0.0, 131.44] {
        let same = effect(&[(value, value); 6]);
        let margin = margin_interval(ONE_PERCENT, same.scale, &[value; 6]);
        assert_eq!(judge(&same, 0.0, margin, Better::Lower).verdict, Verdict::Equivalent);
    }
}

#[test]
fn the_noise_floor_is_the_null_legs_effect_or_its_far_end() {
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-15, "{found}");
    near(noise_floor(&at(-0.01, 0.03)), 0.01);
    near(noise_floor(&at(-0.03, 0.01)), 0.01);
    near(noise_floor(&at(0.01, 0.03)), 0.03);
    near(noise_floor(&at(-0.05, -0.01)), 0.05);
}

#[test]
fn the_margin_of_a_difference_is_absolute_or_a_share_of_base() {
    let reach = |margin, base: &[f64]| margin_interval(margin, Scale::Difference, base).high;
    assert_eq!(reach(ONE_PERCENT, &[300.0, 100.0, 200.0]), 2.0);
    assert_eq!(reach(ONE_PERCENT, &[]), 0.0);
    assert_eq!(reach(Margin { relative: 0.01, absolute: Some(0.05) }, &[200.0]), 0.05);
}
