//! How changes, sizes and intervals are written, in reports, verdict lines and gates alike.

use crate::ab::metric::{Kind, Metric};
use crate::stats::Interval;
use crate::stats::verdict::{Scale, Verdict};

/// From this ratio on a change is written as a factor: nobody reads "+61055.56 %".
const FACTOR_FROM: f64 = 10.0;

/// What a verdict is called for a metric: what is counted or held is not fast or slow.
pub(crate) fn verdict_word(metric: Metric, verdict: Verdict) -> &'static str {
    match (metric.kind(), verdict) {
        (Kind::Count, Verdict::Faster) => "fewer",
        (Kind::Memory | Kind::Slope, Verdict::Faster) => "less",
        (Kind::Count | Kind::Memory | Kind::Slope, Verdict::Slower) => "more",
        _ => verdict.word(),
    }
}

/// A change against base with its sign and unit. `value` is in percent for log ratios.
pub(crate) fn show_change(metric: Metric, scale: Scale, value: f64) -> String {
    match scale {
        _ if !value.is_finite() => "unbounded".to_owned(),
        Scale::LogRatio => factor(value).unwrap_or_else(|| format!("{value:+.2} %")),
        Scale::Difference if value >= 0.0 => format!("+{}", metric.render(value)),
        Scale::Difference => metric.render(value),
    }
}

/// The size of a change, for example a noise floor.
pub(crate) fn show_size(metric: Metric, scale: Scale, value: f64) -> String {
    match scale {
        Scale::LogRatio => factor(value).unwrap_or_else(|| format!("{value:.2} %")),
        Scale::Difference => metric.render(value),
    }
}

/// The ends of an interval of changes.
pub(crate) fn show_interval(metric: Metric, scale: Scale, interval: Interval) -> String {
    let Interval { low, high } = interval;
    let is_percent = |value: f64| value.is_finite() && factor(value).is_none();
    if scale == Scale::LogRatio && is_percent(low) && is_percent(high) {
        return format!("{low:+.2} to {high:+.2} %");
    }
    format!("{} to {}", show_change(metric, scale, low), show_change(metric, scale, high))
}

fn factor(change_pct: f64) -> Option<String> {
    let ratio = 1.0 + change_pct / 100.0;
    let digits = if ratio < 100.0 { 1 } else { 0 };
    (ratio >= FACTOR_FROM).then(|| format!("×{ratio:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_ten_times_and_more_is_a_factor() {
        let show = |value| show_change(Metric::DriverAllocsPerStep, Scale::LogRatio, value);
        assert_eq!(show(-30.854), "-30.85 %");
        assert_eq!(show(899.99), "+899.99 %");
        assert_eq!(show(900.0), "×10.0");
        assert_eq!(show(390_300.0), "×3904");
        assert_eq!(show(f64::INFINITY), "unbounded");
        assert_eq!(show_size(Metric::LoadMs, Scale::LogRatio, 2.514), "2.51 %");
        assert_eq!(show_size(Metric::SlopeMibPerToken, Scale::Difference, 0.5), "0.5000");
        assert_eq!(show_change(Metric::SlopeMibPerToken, Scale::Difference, 6.0), "+6.0000");
    }

    #[test]
    fn only_times_are_fast_or_slow() {
        let words = |metric| {
            [Verdict::Faster, Verdict::Slower, Verdict::Inert]
                .map(|word| verdict_word(metric, word))
        };
        assert_eq!(words(Metric::LoadMs), ["faster", "slower", "inert"]);
        assert_eq!(words(Metric::DriverFreesPerStep), ["fewer", "more", "inert"]);
        assert_eq!(words(Metric::RssPeakMib), ["less", "more", "inert"]);
        assert_eq!(words(Metric::SlopeMibPerToken), ["less", "more", "inert"]);
    }

    #[test]
    fn an_interval_has_its_unit_once_unless_the_ends_differ_in_it() {
        let show =
            |low, high| show_interval(Metric::DecodeTokS, Scale::LogRatio, Interval { low, high });
        assert_eq!(show(-3.31, 0.471), "-3.31 to +0.47 %");
        assert_eq!(show(850.0, 61_055.56), "+850.00 % to ×612");
        assert_eq!(show(-100.0, f64::INFINITY), "-100.00 % to unbounded");
    }
}
