//! Several runs of a cell: which of them is its row, and how far they are apart. Pure.

use crate::cell::journal::Repeats;
use crate::cell::runner::Measured;
use crate::cell::session::End;

/// The place of the run with the median decode speed (of an even count the lower one; of prefill where
/// nothing decodes), and what the journal keeps of all. There is at least one run.
pub(crate) fn pick_median(runs: &[End]) -> (usize, Repeats) {
    pick(&runs.iter().map(measured_of).collect::<Vec<_>>())
}

fn pick(measured: &[Measured]) -> (usize, Repeats) {
    let decode: Vec<Option<f64>> = measured.iter().map(|run| run.decode_tok_s).collect();
    let prefill: Vec<Option<f64>> = measured.iter().map(|run| run.prefill_tok_s).collect();
    let by = if decode.iter().any(Option::is_some) { &decode } else { &prefill };
    let mut known: Vec<(f64, usize)> =
        by.iter().enumerate().filter_map(|(index, speed)| Some(((*speed)?, index))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let median = known.get(known.len().saturating_sub(1) / 2).copied();
    let spread_pct = median.filter(|_| known.len() > 1).map(|(speed, _)| {
        let range = known[known.len() - 1].0 - known[0].0;
        100.0 * range / 2.0 / speed
    });
    let place = median.map_or(0, |(_, index)| index);
    (place, Repeats { prefill_tok_s: prefill, decode_tok_s: decode, spread_pct })
}

fn measured_of(end: &End) -> Measured {
    match end {
        End::Ran(outcome) => {
            outcome.numbers.as_ref().map(|numbers| numbers.measured).unwrap_or_default()
        }
        _ => Measured::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decodes(speeds: &[f64]) -> Vec<Measured> {
        let measured = |&speed: &f64| Measured {
            decode_tok_s: Some(speed),
            prefill_tok_s: Some(1000.0 - speed),
            ..Measured::default()
        };
        speeds.iter().map(measured).collect()
    }

    #[test]
    fn the_run_in_the_middle_is_the_row() {
        let (place, repeats) = pick(&decodes(&[50.0, 40.0, 52.0]));
        assert_eq!((place, repeats.spread_pct), (0, Some(12.0)));
        assert_eq!(repeats.decode_tok_s, [Some(50.0), Some(40.0), Some(52.0)]);
        assert_eq!(repeats.prefill_tok_s[1], Some(960.0));
        // Of an even count the lower one.
        assert_eq!(pick(&decodes(&[10.0, 40.0, 30.0, 20.0])).0, 3);
        assert_eq!(
            pick(&decodes(&[7.0])),
            (
                0,
                Repeats {
                    prefill_tok_s: vec![Some(993.0)],
                    decode_tok_s: vec![Some(7.0)],
                    spread_pct: None,
                }
            )
        );
    }

    #[test]
    fn prefill_decides_where_nothing_decodes() {
        let mut runs = decodes(&[1.0, 2.0, 3.0]);
        runs.iter_mut().for_each(|run| run.decode_tok_s = None);
        assert_eq!(pick(&runs).0, 1);
        assert_eq!(pick(&[Measured::default()]).0, 0);
    }
}
