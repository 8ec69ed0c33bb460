//! What the terminal shows of a cell that ended.

use crate::cell::classify::Classification;
use crate::cell::grid::Cell;
use crate::cell::runner::Measured;
use crate::cell::session::End;

/// Why a cell has no numbers, where no process says so.
pub(crate) fn render_reason(end: &End) -> Option<String> {
    match end {
        End::Refused { reason, .. } | End::NotStarted(reason) => Some(reason.clone()),
        End::Faked(_) => Some("faked".to_owned()),
        End::Ran(outcome) if !outcome.was_interrupted() => None,
        End::Ran(_) | End::Interrupted => Some("interrupted".to_owned()),
    }
}

/// What became of a cell, as the terminal shows it.
pub(crate) fn render_end(cell: Cell<'_>, end: &End) -> String {
    let class = end.classification();
    let tag = match class {
        None => "done",
        Some(Classification::FailMissingModel) => "miss",
        Some(class) if class.is_failure() => "fail",
        Some(Classification::Oom) if matches!(end, End::Ran(_)) => "oom ",
        Some(_) => "skip",
    };
    let said = match end {
        End::Ran(outcome) => match &outcome.numbers {
            Ok(numbers) if class.is_none() => {
                let speeds = render_measured(&numbers.measured);
                let disturbed = outcome.disturbance().map(|why| format!("disturbed: {why}"));
                let notes = numbers.notes.iter().cloned().chain(disturbed);
                std::iter::once(speeds).chain(notes).collect::<Vec<_>>().join("; ")
            }
            _ => match outcome.doubt(&cell.name()) {
                Some(doubt) => format!("{}; {doubt}", outcome.describe()),
                None => outcome.describe(),
            },
        },
        _ => render_reason(end).unwrap_or_default(),
    };
    let said = match class {
        None => said,
        Some(class) => format!("{class}: {said}"),
    };
    let took = match end {
        End::Ran(outcome) => format!(" ({:.1} s)", outcome.end.wall.as_secs_f64()),
        _ => String::new(),
    };
    format!("[{tag}] {} @ {}: {said}{took}", cell.name(), cell.len)
}

fn render_measured(measured: &Measured) -> String {
    let speed =
        |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.2} tok/s"));
    let parts: Vec<String> =
        [speed("prefill", measured.prefill_tok_s), speed("decode", measured.decode_tok_s)]
            .into_iter()
            .flatten()
            .collect();
    parts.join(", ")
}
