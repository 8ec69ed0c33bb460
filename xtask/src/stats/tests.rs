//! Hand-computed tables, and figures of an independent implementation.
//!
//! The constants marked scipy come from the script in docs/METHODOLOGY.md (scipy 1.17.1).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::Interval;
use super::interval::{Bootstrap, bootstrap_interval, center, index_below, signed_rank_interval};
use super::location::{
    hodges_lehmann, mean, median, median_absolute_deviation, robust_standard_deviation,
    standard_deviation, walsh_averages,
};
use super::power::{blocks_needed, detectable_effect};
use super::slope::theil_sen;
use super::student::Tail;

const SEEDED: Bootstrap = Bootstrap { seed: 7, stream: 0, resamples: Bootstrap::RESAMPLES };

/// Unsorted, with three tied values.
const TIED: [f64; 10] = [0.031, -0.012, 0.044, 0.02, 0.02, -0.005, 0.061, 0.013, 0.02, 0.027];
/// Unsorted.
const EIGHT: [f64; 8] = [1.1, 2.3, 0.4, 3.7, 2.9, 1.8, 4.4, 0.9];

#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
        "found {found}, expected {expected}"
    );
}

#[track_caller]
fn assert_interval(found: Interval, low: f64, high: f64) {
    assert_close(found.low, low);
    assert_close(found.high, high);
}

#[test]
fn the_median_of_unsorted_values_by_hand() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[4.0]), Some(4.0));
    assert_eq!(median(&[9.0, 1.0]), Some(5.0));
    assert_eq!(median(&[3.0, -7.0, 3.0, 100.0, 2.0]), Some(3.0));
    assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
}

#[test]
fn the_median_absolute_deviation_by_hand() {
    // Median 4; deviations 3 2 0 0 2 5 12 → sorted 0 0 2 2 3 5 12.
    assert_eq!(median_absolute_deviation(&[1.0, 2.0, 4.0, 4.0, 6.0, 9.0, 16.0]), Some(2.0));
    assert_close(median_absolute_deviation(&TIED).unwrap(), 0.009);
}

#[test]
fn spread_falls_back_to_the_ordinary_one_where_most_values_tie() {
    let mostly_tied = [2.0, 2.0, 2.0, 2.0, 5.0];
    assert_eq!(median_absolute_deviation(&mostly_tied), Some(0.0));
    assert_eq!(robust_standard_deviation(&mostly_tied), standard_deviation(&mostly_tied));
    assert_eq!(robust_standard_deviation(&[3.0; 5]), Some(0.0));
    assert_eq!(robust_standard_deviation(&[3.0]), None);
    assert_close(robust_standard_deviation(&TIED).unwrap(), 0.009 * 1.482_602_218_505_602);
}

#[test]
fn mean_and_standard_deviation_agree_with_scipy() {
    assert_close(mean(&TIED).unwrap(), 0.0219);
    assert_close(standard_deviation(&TIED).unwrap(), 0.021_314_835_730_594_367);
}

#[test]
fn hodges_lehmann_by_hand() {
    // Walsh averages of 1, 2, 6: 1, 1.5, 2, 3.5, 4, 6 → (2 + 3.5)/2.
    assert_eq!(walsh_averages(&[6.0, 1.0, 2.0]), [1.0, 1.5, 2.0, 3.5, 4.0, 6.0]);
    assert_eq!(hodges_lehmann(&[6.0, 1.0, 2.0]), Some(2.75));
    assert_eq!(hodges_lehmann(&[]), None);
    assert_close(hodges_lehmann(&TIED).unwrap(), 0.02);
    assert_close(hodges_lehmann(&EIGHT).unwrap(), 2.175);
}

#[test]
fn the_signed_rank_interval_inverts_the_exact_test_of_scipy() {
    // scipy.stats.wilcoxon(EIGHT − θ, mode="exact"): p = 0.039 just outside, 0.055 just inside.
    assert_interval(signed_rank_interval(&EIGHT), 0.9, 3.65);
    // Depth 9 of 55 averages for ten values.
    let averages = walsh_averages(&TIED);
    assert_interval(signed_rank_interval(&TIED), averages[8], averages[46]);
}

#[test]
fn below_six_values_the_signed_rank_interval_is_the_whole_range() {
    assert_interval(signed_rank_interval(&[4.0, 1.0, 3.0, 9.0, 2.0]), 1.0, 9.0);
    assert_eq!(signed_rank_interval(&[4.0]), Interval::EVERYTHING);
    assert_eq!(signed_rank_interval(&[]), Interval::EVERYTHING);
}

#[test]
fn the_bootstrap_agrees_with_scipy_and_with_itself() {
    // scipy.stats.bootstrap, percentile, 200,000 resamples: 1.05 to 3.2.
    let found = bootstrap_interval(&EIGHT, Bootstrap { resamples: 50_000, ..SEEDED });
    assert!((found.low - 1.05).abs() <= 0.051 && (found.high - 3.2).abs() <= 0.051, "{found:?}");
    assert_eq!(bootstrap_interval(&EIGHT, SEEDED), bootstrap_interval(&EIGHT, SEEDED));
    let other_stream = Bootstrap { stream: 1, resamples: 50, ..SEEDED };
    assert_ne!(
        bootstrap_interval(&TIED, other_stream),
        bootstrap_interval(&TIED, Bootstrap { resamples: 50, ..SEEDED })
    );
}

#[test]
fn the_weights_of_a_resample_give_its_own_hodges_lehmann_estimate() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..200 {
        let picks: Vec<usize> = (0..8).map(|_| index_below(8, &mut rng)).collect();
        let resample: Vec<f64> = picks.iter().map(|pick| EIGHT[*pick]).collect();
        let mut counts = vec![0; 8];
        picks.iter().for_each(|pick| counts[*pick] += 1);
        let found = super::interval::resampled_estimate(&EIGHT, &counts);
        assert_close(found, hodges_lehmann(&resample).unwrap());
    }
}

#[test]
fn the_centre_is_never_narrower_than_any_of_its_intervals() {
    let found = center(&EIGHT, SEEDED).unwrap();
    assert_close(found.estimate, 2.175);
    // The bootstrap's ends are near 1.05 and 3.2; those of the signed-rank interval are wider.
    assert_interval(found.interval, 0.9, 3.65);
    // Five values: Student's t reaches further than the range, 0.4 ± 2.77645·√0.3/√5.
    let five = center(&[1.0, 0.0, 0.0, 1.0, 0.0], SEEDED).unwrap();
    assert_interval(five.interval, 0.4 - 0.680_087_380_658_256, 0.4 + 0.680_087_380_658_256);
}

#[test]
fn one_block_says_nothing_and_zero_variance_says_all() {
    let one = center(&[0.3], SEEDED).unwrap();
    assert_eq!((one.estimate, one.interval), (0.3, Interval::EVERYTHING));
    let same = center(&[0.25; 6], SEEDED).unwrap();
    assert_eq!((same.estimate, same.interval), (0.25, Interval::new(0.25, 0.25)));
    assert_eq!(center(&[], SEEDED), None);
}

#[test]
fn the_order_of_the_values_does_not_matter_to_exact_intervals() {
    let mut reversed = TIED;
    reversed.reverse();
    assert_eq!(signed_rank_interval(&TIED), signed_rank_interval(&reversed));
    assert_eq!(hodges_lehmann(&TIED), hodges_lehmann(&reversed));
}

#[test]
fn student_quantiles_agree_with_scipy() {
    let table: [(usize, f64, f64); 6] = [
        (1, 12.706_204_736_174_695, 1.376_381_920_471_174),
        (4, 2.776_445_105_197_793, 0.940_964_577_235_182),
        (11, 2.200_985_160_091_639, 0.875_529_978_073_882),
        (30, 2.042_272_456_301_238, 0.853_767_261_471_298),
        (200, 1.971_896_223_633_909, 0.843_422_131_535_419),
        (500, 1.964_719_837_467_367, 0.842_340_706_153_505),
    ];
    for (freedom, interval, power) in table {
        for (found, expected) in [
            (Tail::INTERVAL.student_quantile(freedom), interval),
            (Tail::POWER.student_quantile(freedom), power),
        ] {
            assert!((found - expected).abs() < 1e-10, "{freedom}: {found} for {expected}");
        }
    }
    assert_eq!(Tail::INTERVAL.student_quantile(0), f64::INFINITY);
}

#[test]
fn what_blocks_can_see_and_what_it_takes_to_see_more_agree() {
    // scipy: (t.ppf(0.975, 11) + t.ppf(0.8, 11)) · 0.01 · √(π/3) / √12.
    assert_close(detectable_effect(0.01, 12), 0.009_088_301_840_018);
    assert_eq!(detectable_effect(0.01, 1), f64::INFINITY);
    assert_eq!(detectable_effect(0.0, 6), 0.0);
    for (deviation, effect) in [(0.014, 0.01), (0.14, 0.01), (0.001, 0.05)] {
        let blocks = blocks_needed(deviation, effect).unwrap();
        assert!(detectable_effect(deviation, blocks) <= effect);
        assert!(detectable_effect(deviation, blocks - 1) > effect);
    }
    assert_eq!(blocks_needed(0.01, 0.0), None);
    assert_eq!(blocks_needed(1e9, 1e-9), None);
}

#[test]
fn theil_sen_by_hand() {
    // Slopes of (0, 0), (1, 1), (2, 4): 1, 2, 3.
    let line = theil_sen(&[(2.0, 4.0), (0.0, 0.0), (1.0, 1.0)]).unwrap();
    assert_eq!((line.slope, line.intercept), (2.0, -1.0));
    assert_eq!(theil_sen(&[(1.0, 2.0)]), None);
    assert_eq!(theil_sen(&[(1.0, 2.0), (1.0, 3.0)]), None);
    let flat = theil_sen(&[(0.0, 5.0), (1.0, 5.0), (2.0, 5.0), (3.0, 5.0)]).unwrap();
    assert_eq!((flat.slope, flat.interval), (0.0, Interval::new(0.0, 0.0)));
}

#[test]
fn theil_sen_agrees_with_scipy_on_an_outlier_and_on_ties() {
    let x = [5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0, 10.0];
    let y = [10.2, 2.1, 18.5, 6.3, 13.9, 4.0, 100.0, 8.1, 12.0, 19.7];
    let line = theil_sen(&x.into_iter().zip(y).collect::<Vec<_>>()).unwrap();
    assert_close(line.slope, 1.98);
    assert_close(line.intercept, 0.21);
    assert_interval(line.interval, 1.914_285_714_285_714, 2.1);

    let x = [1.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 6.0];
    let y = [2.0, 2.0, 2.0, 5.0, 5.0, 4.0, 9.0, 9.0];
    let tied = theil_sen(&x.into_iter().zip(y).collect::<Vec<_>>()).unwrap();
    assert_close(tied.slope, 1.5);
    assert_interval(tied.interval, 2.0 / 3.0, 2.0);
}
