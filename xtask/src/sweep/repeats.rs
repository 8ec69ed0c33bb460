//! Several runs of a cell: which of them is its row, and how far they are apart. Pure.

use crate::cell::journal::{CellEnd, Entry, Journal, Repeats};
use crate::cell::runner::Measured;
use crate::cell::session::End;

/// The place of the run with the median decode speed (of an even count the lower one; of prefill where
/// nothing decodes), and what the journal keeps of all. There is at least one run.
pub(crate) fn pick_median(runs: &[End]) -> (usize, Repeats) {
    pick(&runs.iter().map(measured_of).collect::<Vec<_>>())
}

/// How the end of a run in the journal is called.
pub(crate) fn run_name(number: u64, count: u64) -> String {
    format!("run {number} of {count}")
}

/// The ends of all `count` runs of a cell, where the journal stops before the row that they make: a kill
/// came in between. `None` where a run is missing, or the cell has its row.
pub(crate) fn find_whole_runs<'j>(
    journal: &'j Journal,
    model: &str,
    len: u64,
    count: u64,
) -> Option<Vec<&'j CellEnd>> {
    let mut runs: Vec<&CellEnd> = Vec::new();
    let mut is_running = false;
    for entry in &journal.entries {
        match entry {
            Entry::CellLaunch(launch)
                if launch.model == model && launch.prompt_target_len == len =>
            {
                is_running = true;
            }
            Entry::CellEnd(end) if end.model == model && end.prompt_target_len == len => {
                is_running = false;
                let name = |number: usize| Some(run_name(number as u64, count));
                // Every start of a sweep begins with the first run.
                if end.row.is_some() || end.reason == name(1) {
                    runs.clear();
                }
                if end.row.is_none() && end.reason == name(runs.len() + 1) {
                    runs.push(end);
                }
            }
            _ => {}
        }
    }
    (count > 1 && !is_running && runs.len() as u64 == count).then_some(runs)
}

/// The place of the run in the middle, and what is kept of all, as [`pick_median`] has it.
pub(crate) fn pick_median_of(runs: &[CellEnd]) -> (usize, Repeats) {
    pick(&runs.iter().map(|run| run.measured.unwrap_or_default()).collect::<Vec<_>>())
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
    use crate::cell::journal::tests;

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

    /// A run's launch and its end; `None` where it has none.
    fn run(reason: Option<&str>, row: Option<&str>) -> [Option<Entry>; 2] {
        let Entry::CellEnd(end) = tests::end("a", 8, None, row) else { unreachable!() };
        let end = CellEnd { reason: reason.map(str::to_owned), ..*end };
        let is_there = reason.is_some() || row.is_some();
        [Some(tests::launch("a", 8)), is_there.then(|| Entry::CellEnd(Box::new(end)))]
    }

    #[test]
    fn runs_without_their_row_are_found_where_all_are_there() {
        let found = |runs: &[[Option<Entry>; 2]]| {
            let entries = runs.iter().flatten().flatten().cloned().collect();
            let journal = Journal { entries, unreadable_lines: Vec::new() };
            assert_eq!(find_whole_runs(&journal, "a", 9, 3), None);
            assert_eq!(find_whole_runs(&journal, "b", 8, 3), None);
            find_whole_runs(&journal, "a", 8, 3).map(|runs| runs.len())
        };
        let [one, two, three] =
            ["run 1 of 3", "run 2 of 3", "run 3 of 3"].map(|name| run(Some(name), None));
        let again = run(Some("disturbed, and repeated"), None);
        let whole = [one.clone(), again.clone(), two.clone(), again.clone(), three.clone()];
        assert_eq!(found(&whole), Some(3));
        for cut in 0..whole.len() {
            assert_eq!(found(&whole[..cut]), None, "{cut} of 5");
        }
        // A start that was killed, and another that was not.
        let both = [one.clone(), two.clone(), one.clone(), two.clone(), three.clone()];
        assert_eq!(found(&both), Some(3));
        // Two sweeps' halves are not one set.
        assert_eq!(found(&[one.clone(), two.clone(), one.clone(), three.clone()]), None);
        // It is being launched again, or has its row.
        assert_eq!(found(&[&whole[..], &[run(None, None)]].concat()), None);
        assert_eq!(found(&[&whole[..], &[run(None, Some("row"))]].concat()), None);
        let other = ["run 1 of 2", "run 2 of 2"].map(|name| run(Some(name), None));
        assert_eq!(found(&other), None);
    }

    #[test]
    fn prefill_decides_where_nothing_decodes() {
        let mut runs = decodes(&[1.0, 2.0, 3.0]);
        runs.iter_mut().for_each(|run| run.decode_tok_s = None);
        assert_eq!(pick(&runs).0, 1);
        assert_eq!(pick(&[Measured::default()]).0, 0);
    }
}
