//! Whether a run still fits into the time that is left.

use super::seen::LegNumbers;

/// No run takes longer, however much time is left.
pub(crate) const LEG_LIMIT_S: f64 = 150.0;
/// What a first run with a model is assumed to need: its weights may have to be generated.
const FIRST_RUN_S: f64 = 20.0;
/// Runs mostly take a little longer than estimated.
const MARGIN: f64 = 1.15;
/// A run that takes this many times its estimate hangs …
const HANG_FACTOR: f64 = 4.0;
/// … but not before this.
const LEAST_HANG_S: f64 = 20.0;

/// Whether a run that had to be stopped was hanging, rather than cut off by the budget.
///
/// It does not matter how late in the budget it was started: only how long it took, and what was
/// expected of it.
pub(crate) fn is_hang(wall_s: f64, estimate_s: f64) -> bool {
    wall_s > (HANG_FACTOR * estimate_s).max(LEAST_HANG_S) || wall_s >= LEG_LIMIT_S
}

/// Seconds that a run with `max_tokens` will take, from the earlier runs with its model.
pub(crate) fn estimate_s(earlier: &[&LegNumbers], max_tokens: u64) -> f64 {
    let parts: Vec<(f64, f64)> = earlier
        .iter()
        .map(|numbers| {
            let step_s = numbers.step_ms().unwrap_or_default() / 1e3;
            let decode_s = numbers.report.timing.decode_ms.unwrap_or_default() / 1e3;
            ((numbers.wall_s - decode_s).max(0.0), step_s)
        })
        .collect();
    // The fastest start is the one whose weights were there; the slowest step is the safe one.
    let start_s = parts.iter().map(|part| part.0).fold(f64::INFINITY, f64::min);
    let step_s = parts.iter().map(|part| part.1).fold(0.0, f64::max);
    if start_s.is_finite() { (start_s + step_s * max_tokens as f64) * MARGIN } else { FIRST_RUN_S }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(wall_s: f64, steps: usize, step_ms: f64) -> LegNumbers {
        let mut report = formats::cell_report::CellReport::default();
        report.timing.decode_step_ms = vec![step_ms; steps];
        report.timing.decode_ms = Some(step_ms * steps as f64);
        LegNumbers { report, json: serde_json::Value::Null, wall_s }
    }

    #[test]
    fn a_run_is_estimated_from_start_and_steps_of_earlier_ones() {
        assert!((estimate_s(&[], 4) - FIRST_RUN_S).abs() < 1e-9);
        // 9 s of which 1 s are steps; then 3 s of which 1 s are steps of twice the length.
        let (first, second) = (numbers(9.0, 100, 10.0), numbers(3.0, 50, 20.0));
        let estimate = estimate_s(&[&first, &second], 500);
        assert!((estimate - (2.0 + 0.02 * 500.0) * MARGIN).abs() < 1e-9, "{estimate}");
    }
}
